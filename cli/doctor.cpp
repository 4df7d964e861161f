// tenon doctor: examines every plugin in a child process and reports ok, or off with a reason, and the
// findings of its devices and power sources about this machine; and the place that a launcher gave this
// process. Absent hardware is not a failure; a claim that does not hold is one.
#include "command_line.hpp"
#include "process_place.hpp"

#include "base/json_writer.hpp"
#include "base/process_facts.hpp"
#include "plugin/probe.hpp"
#include "record/build_info.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/power.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace tenon::cli {
namespace {

struct Finding {
  std::string name, version;
  std::size_t components = 0;
  std::string reason;  ///< why it is off; "" = ok
  std::vector<plugin::DeviceFindings> devices;
  std::vector<plugin::SensorFindings> sensors;

  /// True for optional hardware: a plugin whose only component is a device that this machine does not have.
  bool lacks_hardware() const { return components == 1 && devices.size() == 1 && !devices[0].off.empty(); }
  bool failed() const {
    return !reason.empty() ||
           std::any_of(devices.begin(), devices.end(), [](const plugin::DeviceFindings& device) {
             return std::any_of(device.probes.begin(), device.probes.end(),
                                [](const plugin::Probed& probe) { return !probe.holds; });
           });
  }
};

/// Examines each plugin in a child process, so that a crash or a hang is a finding.
std::vector<Finding> probe_plugins(Registry& registry) {
  std::vector<Finding> findings;
  for (const PluginStatus& plugin : registry.plugins()) {
    Finding finding{plugin.id.empty() ? plugin.file : plugin.id,
                    plugin.version,
                    plugin.offers.size(),
                    plugin.reason,
                    {},
                    {}};
    if (plugin.state == PluginStatus::State::kHidden) {
      findings.push_back(std::move(finding));
      continue;
    }
    if (plugin.state != PluginStatus::State::kFailed) {
      const plugin::ProbeResult probe = plugin::probe_plugin({.file = plugin.file});
      finding.reason = probe.ok ? "" : probe.reason;
    }
    const bool knows_hardware =
        std::any_of(plugin.offers.begin(), plugin.offers.end(), [](const PluginStatus::Offer& offer) {
          return offer.kind == Device::kKind || offer.kind == Power::kKind;
        });
    if (finding.reason.empty() && knows_hardware) {
      plugin::PluginFindings asked = plugin::ask_hardware(plugin.file);
      finding.reason = asked.failure;
      finding.devices = std::move(asked.devices);
      finding.sensors = std::move(asked.sensors);
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

void print_device(const plugin::DeviceFindings& device) {
  for (const auto& [name, value] : device.facts) std::cout << fmt::format("           {}: {}\n", name, value);
  std::vector<std::string_view> held;
  for (const plugin::Probed& probe : device.probes) {
    if (probe.holds) {
      held.push_back(probe.claim);
    } else {
      std::cout << fmt::format("           FAILED: {}: {}\n", probe.claim, probe.text);
    }
  }
  if (!held.empty())
    std::cout << fmt::format("           tried, and equal to the host's numbers: {}\n",
                             fmt::join(held, "; "));
}

/// "measured watts", "modelled watts", "measured share".
std::string what_it_reads(const plugin::SensorFindings& sensor) {
  return fmt::format("{} {}", sensor.measured ? "measured" : "modelled", sensor.watts ? "watts" : "share");
}

void print_sensor(const plugin::SensorFindings& sensor) {
  std::cout << (sensor.absent.empty()
                    ? fmt::format("           sensor: {} ({})\n", sensor.sensor, what_it_reads(sensor))
                    : fmt::format("           absent: {}\n", sensor.absent));
}

void print_text(const std::vector<Finding>& findings, const std::string& places) {
  const BuildInfo build = build_info();
  std::cout << fmt::format("program    tenon {} ({}), {}, {}\n", build.version, build.git, build.compiler,
                           build.build_type);
  std::cout << fmt::format("processor  {}, {} usable cores\n", cpu_model(), usable_cores());
  std::cout << fmt::format("place      {}\n", place_text(process_variables()));
  for (const Finding& finding : findings) {
    if (finding.lacks_hardware()) {
      std::cout << fmt::format("off        {} {}\n           {}\n", finding.name, finding.version,
                               finding.devices[0].off);
    } else if (finding.reason.empty()) {
      std::cout << fmt::format("ok         {} {} ({} components)\n", finding.name, finding.version,
                               finding.components);
    } else {
      std::cout << fmt::format("off        {}\n           {}\n", finding.name, finding.reason);
    }
    for (const plugin::DeviceFindings& device : finding.devices) print_device(device);
    for (const plugin::SensorFindings& sensor : finding.sensors) print_sensor(sensor);
  }
  std::cout << "plugins were looked for in:\n" << places << "\n";
}

void print_json(const std::vector<Finding>& findings) {
  const BuildInfo build = build_info();
  JsonWriter json;
  json.begin_object();
  json.member("version", build.version);
  json.member("git", build.git);
  json.member("compiler", build.compiler);
  json.member("processor", cpu_model());
  json.member("cores", usable_cores());
  json.member("place", place_text(process_variables()));
  json.objects("plugins", findings, [&](const Finding& finding) {
    json.member("name", finding.name);
    json.member("version", finding.version);
    json.member("components", static_cast<std::int64_t>(finding.components));
    json.member("ok", finding.reason.empty());
    json.member("reason", finding.reason);
    json.objects("devices", finding.devices, [&](const plugin::DeviceFindings& device) {
      json.member("component", device.component);
      json.member("usable", device.off.empty());
      json.member("reason", device.off);
      json.begin_object("facts");
      for (const auto& [name, value] : device.facts) json.member(name, value);
      json.end_object();
      json.objects("probes", device.probes, [&](const plugin::Probed& probe) {
        json.member("claim", probe.claim);
        json.member("holds", probe.holds);
        json.member("text", probe.text);
      });
    });
    json.objects("sensors", finding.sensors, [&](const plugin::SensorFindings& sensor) {
      json.member("component", sensor.component);
      json.member("present", sensor.absent.empty());
      json.member("reason", sensor.absent);
      if (!sensor.absent.empty()) return;
      json.member("sensor", sensor.sensor);
      json.member("origin", sensor.measured ? "measured" : "modelled");
      json.member("unit", sensor.watts ? "watts" : "share");
      json.member("rated", sensor.rated);
    });
  });
  json.end_object();
  std::cout << json.take();
}

void declare_doctor(po::options_description& options) {
  options.add_options()("json", "print the findings as JSON");
}

int run_doctor(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kDoctor, {}, arguments);
  if (parsed.helped) return 0;
  Runtime runtime;
  runtime.discover({});
  const std::vector<Finding> findings = probe_plugins(runtime.registry());
  if (parsed.values.count("json") > 0) {
    print_json(findings);
  } else {
    print_text(findings, runtime.registry().places());
  }
  const bool failed =
      std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.failed(); });
  return failed ? static_cast<int>(ErrorKind::kPlugin) : 0;
}

}  // namespace

const Command kDoctor{"doctor", "[--json]",
                      "Look at every plugin and say what works and what is off, and why.", run_doctor,
                      declare_doctor};

}  // namespace tenon::cli
