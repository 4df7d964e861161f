#include "subject.hpp"

#include "plugin/abi_tag.hpp"
#include "plugin/descriptor.hpp"
#include "plugin/search.hpp"

#include <tenon/device.hpp>

#include <fmt/format.h>

#include <set>
#include <string_view>

namespace tenon::conformance {

void fail(const std::string& text) {
  throw Failure{text};
}

void not_applicable(const std::string& reason) {
  throw NotApplicable{reason};
}

std::vector<Check> all_checks() {
  std::vector<Check> all;
  for (const std::span<const Check> group :
       {plugin_checks(),         component_checks(), run_checks(),       layer_checks(),
        layer_gradient_checks(), model_checks(),     optimizer_checks(), optimizer_row_checks(),
        schedule_checks(),       dataset_checks(),   simulator_checks(), power_checks(),
        transform_checks(),      tokenizer_checks(), reward_checks(),    precision_checks(),
        sync_checks(),           recovery_checks(),  transport_checks(), device_checks(),
        device_quant_checks(),   tier_checks(),      observer_checks()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

const Check* find_check(const std::vector<Check>& checks, const std::string& name) {
  for (const Check& check : checks) {
    if (check.name == name) return &check;
  }
  return nullptr;
}

namespace {

namespace fs = std::filesystem;

/// Kind of "optimizer.lion" as the tag writes it; Error(kConfig) when the file does not offer it.
std::string kind_in(const plugin::AbiTag& tag, const std::string& component) {
  for (const plugin::Offer& offer : tag.offers) {
    if (plugin::component_name(offer.kind, offer.id) == component) return offer.kind;
  }
  fail_config(fmt::format("plugin {} offers no {}", tag.plugin_id, component));
}

}  // namespace

Subject::Subject(Spec spec) : spec_(std::move(spec)) {
  const plugin::AbiTag tag = plugin::read_abi_tag(spec_.file);
  plugin_id_ = tag.plugin_id;
  if (!spec_.component.empty()) kind_ = kind_in(tag, spec_.component);
}

Subject::~Subject() = default;

std::string Subject::type() const {
  return plugin_id_ + "/" + spec_.component.substr(spec_.component.find('.') + 1);
}

std::vector<std::string> Subject::plugin_files() const {
  std::vector<std::string> files{spec_.file.string()};
  std::set<std::string> ids{plugin_id_};
  for (plugin::SearchPlace& place : plugin::search_places(spec_.plugins)) {
    plugin::visit(place);
    for (const fs::path& file : place.files) {
      try {
        if (ids.insert(plugin::read_abi_tag(file).plugin_id).second) files.push_back(file.string());
      } catch (const Error&) {  // a broken neighbour is not under test
      }
    }
  }
  return files;
}

Registry& Subject::registry() {
  if (!registry_) {
    registry_ = std::make_unique<Registry>();
    registry_->discover_only(plugin_files());
    layers_ = make_registry_layers(*registry_, host_);
    host_.layers = layers_.get();
  }
  return *registry_;
}

LayerFactory& Subject::layers() {
  registry();
  return *layers_;
}

Device& Subject::device(std::string_view kernels) {
  for (const OpenDevice& open : devices_) {
    if (open.kernels == kernels) return *open.device;
  }
  devices_.push_back({std::string(kernels), another_device(kernels)});
  return *devices_.back().device;
}

testing::Made<Device> Subject::another_device(std::string_view kernels, int threads) {
  testing::Made<Device> device = shipped<Device>(spec_.device, "");
  device->open({.local_rank = 0, .threads = threads, .kernels = spec_.device == "cpu" ? kernels : "auto"});
  return device;
}

bool Subject::declares(std::uint64_t capability) {
  return (registry().find(kind(), type()).component->capabilities & capability) != 0;
}

void Subject::require_determinism() {
  if (declares(TENON_CAP_NONDETERMINISTIC))
    not_applicable("it declares that it is nondeterministic under the wall clock");
}

void Subject::require_same_bits_on_threads() {
  require_determinism();
  if (!on_processor()) not_applicable("no thread of the host computes on this device");
}

void Subject::require_hardware() {
  const bool itself = kind_ == Device::kKind;
  if (!itself && spec_.device == "cpu") return;
  const testing::Made<Device> device = itself ? make<Device>() : shipped<Device>(spec_.device, "");
  if (!itself && device->space() != MemorySpace::kHost && declares(TENON_CAP_HOST))
    not_applicable("it declares that it works in host memory alone (TENON_CAP_HOST)");
  auto* const answers = static_cast<DeviceAvailability*>(device->query(DeviceAvailability::kId));
  if (answers == nullptr) return;
  places_ = answers->usable();
  if (places_ == 0)
    not_applicable(fmt::format("{} cannot be used on this machine: {}",
                               itself ? "it" : "device " + spec_.device, answers->reason()));
}

RunResult Subject::train_well(const RunRequest& request, const std::string& what) {
  RunResult result = train(request);
  require_taken(result);
  const char* const expected = request.kill_after > 0   ? "killed"
                               : request.stop_after > 0 ? "interrupted"
                                                        : "completed";
  if (result.status != expected) {
    fail(fmt::format("{} on {} rank{} ended as {}, expected {}{}{}", what, request.ranks,
                     request.ranks == 1 ? "" : "s", result.status, expected, result.error.empty() ? "" : ": ",
                     result.error));
  }
  return result;
}

void Subject::require_taken(const RunResult& result) {
  if (!on_processor() && result.exit_status == static_cast<int>(ErrorKind::kConfig))
    throw Error(ErrorKind::kConfig, result.error);
}

std::string brief(std::string_view text) {
  constexpr std::string_view kPlaces = " Places searched:", kFailed = "\n  failed: ";
  const std::size_t at = text.find(kPlaces);
  if (at == std::string_view::npos) return std::string(text);
  std::string result(text.substr(0, at));
  result +=
      " Searched: this plugin, [conformance] plugins of the case file, TENON_PLUGIN_PATH, the installed "
      "plugins.";
  if (const std::size_t failed = text.find(kFailed, at); failed != std::string_view::npos)
    result += text.substr(failed);
  return result;
}

std::string run_check(const Check& check, Subject::Spec spec) {
  // A component may refuse memory that only operators may touch (docs/plugins/contracts.md); component.*
  // checks see no device.
  const bool may_refuse = check.kind != nullptr && spec.device != "cpu" &&
                          !std::string_view(check.name).starts_with("component.");
  try {
    Subject subject(std::move(spec));
    // The component.* checks need no hardware.
    if (check.kind != nullptr && !std::string_view(check.name).starts_with("component."))
      subject.require_hardware();
    check.run(subject);
    return "pass";
  } catch (const Failure& failure) {
    return "fail " + brief(failure.text);
  } catch (const NotApplicable& reason) {
    return "skip " + reason.text;
  } catch (const Error& error) {
    if (may_refuse && error.kind() == ErrorKind::kConfig)
      return "skip it refuses this device: " + brief(error.what());
    return "fail " + brief(error.what());
  } catch (const std::exception& error) {
    return std::string("fail ") + error.what();
  } catch (...) {
    return "fail something that is no std::exception was thrown";
  }
}

}  // namespace tenon::conformance
