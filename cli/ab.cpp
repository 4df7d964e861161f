// tenon ab: compare arms over paired seeds.
#include "command_line.hpp"

#include "ab/ab.hpp"

#include <tenon/error.hpp>

#include <unistd.h>

#include <filesystem>
#include <iostream>

namespace tenon::cli {
namespace {

void declare_ab(po::options_description& options) {
  options.add_options()("out", po::value<std::string>(),
                        "DIR  folder of the study (default: out/<experiment>)");
  options.add_options()("jobs", po::value<int>()->default_value(1),
                        "N  runs at a time; with more than 1 the wall-clock columns stay blank");
  options.add_options()("aa", "the first arm against itself: is the pipeline honest?");
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value of the experiment, e.g. --set budget.steps=100 (repeatable)");
}

int run_ab(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kAb, {"experiment"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("experiment") == 0)
    fail_config("tenon ab: which EXPERIMENT? usage: tenon ab EXPERIMENT [options]");

  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  const ab::Experiment experiment =
      ab::read_experiment(parsed.values["experiment"].as<std::vector<std::string>>()[0], sets);
  ab::StudyOptions study;
  study.program = std::filesystem::read_symlink("/proc/self/exe").string();
  study.folder =
      parsed.values.count("out") > 0 ? parsed.values["out"].as<std::string>() : "out/" + experiment.name;
  study.jobs = parsed.values["jobs"].as<int>();
  study.self_check = parsed.values.count("aa") > 0;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  study.resolve = resolved_config;
  study.progress = [terminal](const std::string& line, bool finished) {
    print_progress(terminal, line, finished);
  };
  const ab::StudyOutcome outcome = ab::run_study(experiment, study);
  std::cout << ab::closing_text(outcome);
  return outcome.exit_status;
}

}  // namespace

const Command kAb{"ab", "EXPERIMENT [options]",
                  "Compare ways to train over paired seeds, and write a report.", run_ab, declare_ab};

}  // namespace tenon::cli
