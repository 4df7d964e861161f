// The probe: what a plugin file is, and what its devices and power sources say of this machine.
#include "plugin/probe.hpp"

#include "base/child_process.hpp"
#include "plugin/abi_tag.hpp"
#include "plugin/search.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/power.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace tenon::plugin {
namespace {

// Splits off the line at the front of `text`.
std::string_view take_line(std::string_view& text) {
  const std::size_t end_of_line = text.find('\n');
  const std::string_view line = text.substr(0, end_of_line);
  text.remove_prefix(end_of_line == std::string_view::npos ? text.size() : end_of_line + 1);
  return line;
}

}  // namespace

std::filesystem::path helper_program(std::string_view name) {
  const std::filesystem::path here = core_folder();
  std::error_code ignored;
  // The library folder may be lib or lib/<architecture>.
  for (const char* up : {"..", "../.."}) {
    std::filesystem::path program = (here / up / "libexec" / "tenon" / name).lexically_normal();
    if (std::filesystem::exists(program, ignored)) return program;
  }
  return (here / "../libexec/tenon" / name).lexically_normal();
}

ProbeResult probe_plugin(const ProbeRequest& request) {
  std::error_code failure;
  const std::filesystem::path file = std::filesystem::canonical(request.file, failure);
  if (failure) return {false, {}, cannot_load(request.file, failure.message() + ".")};

  const base::ChildResult child =
      base::run_child({.program = request.program.empty() ? helper_program("tenon_probe") : request.program,
                       .arguments = {file.string()},
                       .environment = {}},
                      request.time_limit);

  std::string_view rest = child.answer;
  std::string stage = "starting the probe";
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    if (line.substr(0, 6) == "stage ") {
      stage = line.substr(6);
    } else if (line == "error") {
      return {false, {}, std::string(rest)};
    } else if (line == "description") {
      if (auto description = from_lines(rest)) return {true, std::move(*description), ""};
      break;
    } else {
      break;
    }
  }
  return {false,
          {},
          cannot_load(file, fmt::format("{} {}. It ran in a child process only.{}", stage,
                                        base::describe_exit(child, request.time_limit),
                                        base::last_words(child.words)))};
}

// Facts of this machine. Lines of words between tabs: "device NAME OFF", then "fact NAME VALUE" and "probe
// CLAIM 0|1 TEXT" of it; "sensor NAME ABSENT SENSOR measured|modelled watts|share RATED".

namespace {

// Loading CUDA's libraries from a cold disk and making a context take seconds each.
constexpr std::chrono::milliseconds kTimeLimit{60000};

std::string plain(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c == '\t' || c == '\n') c = ' ';
  }
  return result;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t tab = line.find('\t');
    words.emplace_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return words;
    line.remove_prefix(tab + 1);
  }
}

class Lines final : public FactReport {
 public:
  explicit Lines(void (*send)(std::string_view)) : send_(send) {}
  void fact(std::string_view name, std::string_view value) override {
    send_(fmt::format("fact\t{}\t{}\n", plain(name), plain(value)));
  }
  void probe(std::string_view claim, bool holds, std::string_view text) override {
    send_(fmt::format("probe\t{}\t{}\t{}\n", plain(claim), holds ? 1 : 0, plain(text)));
  }

 private:
  void (*send_)(std::string_view);
};

/// A component is asked outside of a run: there is one rank, no clock, and nothing runs in the background.
class NoRun final : public Host {
 public:
  void log(LogLevel, std::string_view) override {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override {
    fail_plugin("no background loop runs while a component is asked for facts");
  }
  double deadline() const override { return 10; }
  void* query(std::string_view) override { return nullptr; }
};

void answer_device(Registry& registry, const std::string& id, void (*send)(std::string_view)) {
  NoRun host;
  std::string off;
  Resolution options;  // outlives the device
  Component<Device> device;
  try {
    const Config config = Config::parse("", "tenon doctor", {});
    options =
        resolve_options(component_request(config.root(), registry.describe(Device::kKind, id), &registry));
    registry.create_inner(*options.options, host);
    device = registry.create<Device>(id, *options.options, host);
    const auto* answers = static_cast<DeviceAvailability*>(device->query(DeviceAvailability::kId));
    if (answers != nullptr && answers->usable() == 0) off = answers->reason();
    if (off.empty()) device->open({.local_rank = 0, .threads = 1, .kernels = "auto"});
  } catch (const Error& error) {
    off = error.what();
  }
  send(fmt::format("device\tdevice.{}\t{}\n", id, plain(off)));
  if (!device) return;
  auto* facts = static_cast<ComponentFacts*>(device->query(ComponentFacts::kId));
  Lines lines(send);
  if (facts != nullptr) facts->report(lines);
}

/// Sends nothing for a component of another role, and for one that its defaults do not make.
void answer_source(Registry& registry, const std::string& id, void (*send)(std::string_view)) {
  NoRun host;
  Resolution options;  // outlives the component
  Component<Power> component;
  try {
    const Config config = Config::parse("", "tenon doctor", {});
    options =
        resolve_options(component_request(config.root(), registry.describe(Power::kKind, id), &registry));
    registry.create_inner(*options.options, host);
    component = registry.create<Power>(id, *options.options, host);
  } catch (const Error&) {
    return;
  }
  auto* source = static_cast<PowerSource*>(component->query(PowerSource::kId));
  if (source == nullptr) return;
  std::string absent;
  PowerSourceInfo info;
  try {
    info = source->open(0);
  } catch (const Error& error) {
    absent = error.what();
  }
  send(fmt::format("sensor\tpower.{}\t{}\t{}\t{}\t{}\t{}\n", id, plain(absent), plain(info.sensor),
                   info.origin == PowerOrigin::kMeasured ? "measured" : "modelled",
                   info.unit == PowerUnit::kWatts ? "watts" : "share", info.rated));
}

std::optional<SensorFindings> sensor_of(const std::vector<std::string>& words) {
  if (words[0] != "sensor" || words.size() != 7) return std::nullopt;
  return SensorFindings{words[1],
                        words[2],
                        words[3],
                        words[4] == "measured",
                        words[5] == "watts",
                        std::strtod(words[6].c_str(), nullptr)};
}

}  // namespace

void answer_hardware(const std::string& file, void (*send)(std::string_view)) {
  Registry registry;
  registry.discover_only({file});
  for (const std::string& id : registry.ids(Device::kKind)) answer_device(registry, id, send);
  for (const std::string& id : registry.ids(Power::kKind)) answer_source(registry, id, send);
  send("end\n");
}

PluginFindings ask_hardware(const std::filesystem::path& file) {
  PluginFindings findings;
  const base::ChildResult child = base::run_child({.program = helper_program("tenon_probe"),
                                                   .arguments = {"--hardware", file.string()},
                                                   .environment = {}},
                                                  kTimeLimit);
  std::string_view rest = child.answer;
  bool ended = false;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::vector<std::string> words = words_of(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ended = words[0] == "end";
    if (words[0] == "device" && words.size() == 3) findings.devices.push_back({words[1], words[2], {}, {}});
    if (auto sensor = sensor_of(words)) findings.sensors.push_back(std::move(*sensor));
    if (findings.devices.empty()) continue;
    DeviceFindings& device = findings.devices.back();
    if (words[0] == "fact" && words.size() == 3) device.facts.emplace_back(words[1], words[2]);
    if (words[0] == "probe" && words.size() == 4)
      device.probes.push_back({words[1], words[2] == "1", words[3]});
  }
  if (!ended) {
    findings.failure = fmt::format("its devices and sensors were asked in a child process, which {}.{}",
                                   base::describe_exit(child, kTimeLimit), base::last_words(child.words));
  }
  return findings;
}

}  // namespace tenon::plugin
