// tenon power: a site's power from the phases of workers, with policies that smooth it; and the meter for any
// trace of power.
#include "power.hpp"

#include "command_line.hpp"
#include "power/figures.hpp"
#include "power/report.hpp"

#include "loop/named_component.hpp"
#include "offline_host.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

namespace tenon::cli {
namespace {

constexpr std::int64_t kLargestCsv = std::int64_t{1} << 31;

void declare_power(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set power.workers.count=1024 (repeatable)");
  options.add_options()("spec", po::value<std::string>(),
                        "FILE  of meter: the grid's limits, as configs/power/example_utility.toml");
  options.add_options()("rated", po::value<double>(),
                        "WATTS  of meter: rated power; default: the highest sample");
  options.add_options()("json", "print the figures as JSON");
}

/// A component of kind power with its role of a policy.
class PolicyComponent {
 public:
  PolicyComponent(Registry& registry, power::PolicyPlan& plan) {
    registry.create_inner(*plan.options, host_);
    component_ = registry.create<Power>(plan.type, *plan.options, host_);
    policy_ = static_cast<PowerPolicy*>(component_->query(PowerPolicy::kId));
    if (policy_ == nullptr)
      fail_config(fmt::format("[[power.policy]] type = \"{}\": this component of kind power is no policy",
                              plan.type));
  }
  PowerPolicy* policy() const { return policy_; }

 private:
  OfflineHost host_;
  train::NamedComponent<Power> component_;
  PowerPolicy* policy_ = nullptr;
};

void write(FileSystem& files, const std::string& folder, const std::string& name, const std::string& text) {
  files.write_text_atomically(folder + "/" + name, text);
}

int run_meter(const Parsed& parsed, const std::vector<std::string>& words) {
  if (words.size() != 2)
    fail_config("tenon power meter: which trace? usage: tenon power meter FILE.csv --spec FILE");
  if (parsed.values.count("spec") == 0)
    fail_config(
        "tenon power meter: --spec is missing; name the grid's limits, e.g. --spec "
        "configs/power/example_utility.toml");
  if (parsed.values.count("set") > 0) fail_config("tenon power meter: --set belongs to a CONFIG");
  const std::string& path = words[1];
  const auto files = make_posix_files();
  const power::Trace trace = power::parse_power_csv(read_text(*files, path, kLargestCsv), path);
  const power::GridSpec spec = power::read_spec(resolve_path(parsed.values["spec"].as<std::string>()));
  const bool given = parsed.values.count("rated") > 0;
  const double rated = given            ? parsed.values["rated"].as<double>()
                       : trace.is_share ? 1
                                        : *std::max_element(trace.watts.begin(), trace.watts.end());
  if (!(rated > 0))
    fail_config(fmt::format("tenon power meter: the rated power is {:g} W, expected more than 0{}", rated,
                            given ? "" : "; say it by --rated"));
  power::Reading reading;
  try {
    const power::Spectrum spectrum(trace, power::Window::kHann);
    // A model renews its value with every sample, even where the value stays.
    const bool sensor = !trace.sensor.ends_with("modelled");
    reading = power::measure(trace, spectrum, spectrum.mean_square(), spec, rated, sensor);
  } catch (const Error& error) {
    throw Error(error.kind(), path + ": " + error.what());
  }
  std::cout << (parsed.values.count("json") > 0
                    ? power::reading_json(reading, trace, spec, rated, path)
                    : power::reading_text(reading, trace, spec, rated, given, path));
  return 0;
}

int run_power(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kPower, {"config..."}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("config") == 0)
    fail_config(
        "tenon power: which CONFIG? usage: tenon power CONFIG [options], or tenon power meter FILE.csv "
        "--spec FILE");
  const auto words = parsed.values["config"].as<std::vector<std::string>>();
  if (words[0] == "meter") return run_meter(parsed, words);
  if (words.size() > 1) fail_config(fmt::format("tenon power: '{}' is one word too many", words[1]));
  for (const char* option : {"spec", "rated"}) {
    if (parsed.values.count(option) > 0)
      fail_config(fmt::format(
          "tenon power: --{} belongs to tenon power meter; of a CONFIG write --set power.spec=FILE", option));
  }
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  const power::SimulatedSite site = simulate_site(words[0], sets, {});
  const power::Plan& plan = site.plan;
  const power::SimulationResult& result = site.result;

  const auto files = make_posix_files();
  files->make_directories(plan.folder);
  const std::string json = power::result_json(plan, result);
  write(*files, plan.folder, "table.md", power::table_markdown(plan, result));
  write(*files, plan.folder, "power.json", json);
  write(*files, plan.folder, "traces.csv", power::traces_csv(result));
  for (const auto& [name, drawing] : power::figures(plan, result)) write(*files, plan.folder, name, drawing);
  std::cout << (parsed.values.count("json") > 0 ? json : power::closing_text(plan, result));
  return 0;
}

}  // namespace

power::SimulatedSite simulate_site(const std::string& path, const std::vector<std::string>& sets,
                                   const std::function<void(power::Plan&)>& change) {
  const Config config = Config::load(path, sets);
  Runtime runtime;
  runtime.discover(config::plugin_paths(config));
  power::SimulatedSite site{power::read_plan(config, runtime.registry(), path), {}};
  if (change) change(site.plan);
  std::vector<std::unique_ptr<PolicyComponent>> components;
  std::vector<PowerPolicy*> policies;
  for (power::PolicyPlan& policy : site.plan.policies) {
    try {
      components.push_back(std::make_unique<PolicyComponent>(runtime.registry(), policy));
    } catch (const Error& error) {
      const std::string place = policy.options->place_of(error.what());
      throw Error(error.kind(), place.empty() ? std::string(error.what()) : place + ": " + error.what());
    }
    policies.push_back(components.back()->policy());
  }
  site.result = power::simulate(site.plan, policies);
  return site;
}

const Command kPower{"power", "CONFIG [options] | meter FILE.csv --spec FILE",
                     "Simulate a site's power, smooth it, and hold it against a grid's limits.", run_power,
                     declare_power};

}  // namespace tenon::cli
