// tenon train: one run from a configuration.
#include "command_line.hpp"
#include "process_place.hpp"
#include "transform.hpp"

#include "run/stages.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <iostream>

namespace tenon::cli {
namespace {

void declare_train(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set optimizer.lr=3e-4 (repeatable)");
  options.add_options()("run-dir", po::value<std::string>()->default_value(""),
                        "DIR  write attempts below DIR instead of runs/<name>");
  options.add_options()("resume", "continue the newest attempt from its newest valid checkpoint");
  options.add_options()("extend",
                        "with --resume: another run.steps may change the learning rates of the schedule");
  options.add_options()("accept-plugins",
                        "with --resume: go on although plugins are not those that trained so far");
  options.add_options()("stages", po::value<std::string>()->default_value(""),
                        "DIR  keep [[stage]]s below DIR: those of equal configuration are trained once");
  declare_verify(options);
  options.add_options()("quiet", "no progress line; errors and the final line only");
  options.add_options()("profile",
                        "time per layer and phase: a table at the end, profile.json in the run folder");
}

/// "" where the run has none.
std::string transport_type(const Config& config) {
  const Value* type = config.find("transport.type");
  return type == nullptr || !type->is_text() ? "" : type->text();
}

/// One after another, with a line for each.
RunResult train_stages(Runtime& runtime, const Config& config, const TrainRequest& request,
                       const std::string& shared) {
  train::StagePlan plan;
  plan.shared = shared;
  plan.transform = [&](const Config& stage, const std::string& folder) {
    const std::string digest = make_model(runtime, stage, folder);
    if (!request.quiet) std::cerr << fmt::format("weights_hash {}  ->  {}\n", digest, folder);
  };
  plan.progress = [&](int index, int stages, const std::string& name, bool done) {
    if (!request.quiet)
      std::cerr << fmt::format("stage {} of {}: {}{}\n", index + 1, stages, name,
                               done ? ", complete already" : "");
  };
  return train::train_stages(runtime, config, request, plan);
}

int run_train(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kTrain, {"config"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("config") == 0)
    fail_config("tenon train: which CONFIG? usage: tenon train CONFIG [options]");

  Runtime runtime;
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  Config config = load_run(runtime, parsed.values["config"].as<std::vector<std::string>>()[0], sets);
  if (parsed.values.count("profile") > 0) config = with_observer(config, "profile");

  TrainRequest request;
  request.run_dir = parsed.values["run-dir"].as<std::string>();
  request.resume = parsed.values.count("resume") > 0;
  request.extend = parsed.values.count("extend") > 0;
  if (request.extend && !request.resume)
    fail_config("tenon train: --extend changes the length of a run that is continued; add --resume");
  request.accept_plugins = parsed.values.count("accept-plugins") > 0;
  if (request.accept_plugins && !request.resume)
    fail_config("tenon train: --accept-plugins is about a run that is continued; add --resume");
  request.quiet = parsed.values.count("quiet") > 0;
  request.handle_signals = true;
  request.terminal = ::isatty(STDERR_FILENO) == 1;
  std::vector<std::string> line{"train"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  request.command_line = quoted_command_line(line);
  request.place = process_place(process_variables(), transport_type(config));

  const RunResult result =
      config.find("stage") == nullptr
          ? runtime.train(config, request)
          : train_stages(runtime, config, request, parsed.values["stages"].as<std::string>());
  if (!result.error.empty()) std::cerr << "tenon train: " << result.error << "\n";
  if (result.rank > 0) return result.exit_status;  // rank 0 prints for the run
  const auto loss = result.metrics.find("val/loss");
  std::cout << fmt::format("{} after {} steps, {:.1f} s{}  ->  {}\n", result.status, result.steps,
                           result.wall_s,
                           loss == result.metrics.end() || result.status == "interrupted"
                               ? ""
                               : fmt::format(", val/loss {:.4f}", loss->second),
                           result.folder);
  return result.exit_status;
}

}  // namespace

const Command kTrain{"train", "CONFIG [options]", "Train a model as a configuration says.", run_train,
                     declare_train};

}  // namespace tenon::cli
