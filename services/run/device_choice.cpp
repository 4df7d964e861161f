// A candidate whose plugin cannot be loaded is one that cannot be used: its text stands among the reasons.
#include "run/device_choice.hpp"

#include "loop/parts.hpp"
#include "loop/pause_gate.hpp"
#include "loop/rank_host.hpp"
#include "plugin/guard.hpp"
#include "plugin/process_end.hpp"

#include <tenon/clock.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {
namespace {

struct Candidate {
  std::string type, reason;  ///< "" = it can be used
  int preference = 0, usable = 0;
  MemorySpace space = MemorySpace::kHost;
};

Candidate query_device(Registry& registry, Host& host, const std::string& type) {
  Candidate found{type, "", 0, 0, MemorySpace::kHost};
  try {
    const Config nothing = Config::parse("", "device.type = auto", {});
    Resolution resolution =
        resolve_options(component_request(nothing.root(), registry.describe(Device::kKind, type), &registry));
    const Component<Device> device = registry.create<Device>(type, *resolution.options, host);
    const GuardContext names{device.plugin(), device.handle().ref().name};
    const plugin::HangWatch watch(names, "its availability", host.deadline());
    guard(names, [&] {
      const auto* answers = static_cast<const DeviceAvailability*>(device->query(DeviceAvailability::kId));
      if (answers == nullptr) {
        found.reason = "it does not say whether it can be used";
        return;
      }
      found.space = device->space();
      found.usable = answers->usable();
      found.reason = answers->reason();
      found.preference = answers->preference();
    });
    if (!found.reason.empty()) return found;
    if (found.preference == 0) found.reason = "it is taken by name only";
  } catch (const Error& error) {
    found.reason = error.what();
  }
  return found;
}

/// What of the run works in host memory alone; "" also where the configuration is wrong, which the check of
/// the run says better.
std::string host_only_part(const Config& config, Registry& registry) {
  try {
    const config::CheckedRun run = config::check_run(config, registry, {});
    return host_only(run.components, registry);
  } catch (const Error&) {
    return "";
  }
}

Config with_device(const Config& config, const std::string& type, const Origin& origin) {
  Value root = config.root();
  root.find("device")->set("type", Value(type), origin);
  return config.with_root(std::move(root));
}

}  // namespace

DeviceChoice choose_device(const Config& config, Registry& registry) {
  const Value* type = config.find("device.type");
  if (type == nullptr || !type->is_text() || type->text() != "auto") return {config, ""};
  const std::unique_ptr<Clock> clock = make_wall_clock();
  PauseGate gate(*clock, 1);
  RankHost host(HostSpec{-1, 1, 0, 1, clock.get(), nullptr, nullptr}, gate);
  const Candidate* best = nullptr;
  std::vector<Candidate> all;
  for (const std::string& id : registry.ids(Device::kKind)) all.push_back(query_device(registry, host, id));
  for (Candidate& candidate : all) {
    if (candidate.preference == 0 || candidate.usable == 0) continue;
    if (candidate.space != MemorySpace::kHost) {
      const std::string part = host_only_part(with_device(config, candidate.type, type->origin), registry);
      if (!part.empty()) {
        candidate.reason = fmt::format("{} works in host memory alone", part);
        continue;
      }
    }
    if (best == nullptr || candidate.preference > best->preference) best = &candidate;
  }
  std::vector<std::string> others;
  for (const Candidate& candidate : all) {
    if (&candidate == best) continue;
    const std::string& why = candidate.reason;
    others.push_back(fmt::format("'{}': {}", candidate.type, why.empty() ? "less preferred" : why));
  }
  if (best == nullptr)
    fail_config(
        fmt::format("device.type = \"auto\": no device can be used here. {}", fmt::join(others, "; ")));
  return {with_device(config, best->type, type->origin),
          fmt::format("device.type = \"auto\" took '{}'{}{}", best->type, others.empty() ? "" : "; not ",
                      fmt::join(others, "; "))};
}

}  // namespace tenon::train
