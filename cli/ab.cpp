// tenon ab: compare arms over paired seeds.
#include "built_model.hpp"
#include "command_line.hpp"

#include "ab/ab.hpp"
#include "ab/family.hpp"
#include "ab/proposal.hpp"
#include "ab/verdict_line.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

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
  options.add_options()("json", "print the verdict as one line of JSON instead of text");
  options.add_options()("exit-verdict",
                        "exit 10 better, 11 worse, 12 equivalent, 13 undecided, 14 identical, else as usual");
  options.add_options()(
      "propose", po::value<std::vector<std::string>>()->composing()->multitoken(),
      "K=V...  instead of EXPERIMENT: --base with and without these values; the experiment is "
      "written to DIR/experiment.toml");
  options.add_options()("base", po::value<std::string>(), "RUN  the run that --propose changes");
  options.add_options()("restart", "begin a sequential study anew; what DIR holds is kept in DIR/earlier");
  options.add_options()("family", po::value<std::string>(),
                        "DIR  one of many questions: take its level from the ledger there, which keeps the "
                        "false discovery rate of all at alpha");
  options.add_options()("ledger", po::value<std::string>(),
                        "DIR  instead of EXPERIMENT: print the questions of a family");
  options.add_options()("aa", "the first arm against itself: is the pipeline honest?");
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value of the experiment, e.g. --set budget.steps=100 (repeatable)");
}

std::vector<std::string> words(const po::variables_map& values, const char* name) {
  return values.count(name) > 0 ? values[name].as<std::vector<std::string>>() : std::vector<std::string>{};
}

/// The experiment that is asked for. A proposal is written first, with the folder that it then names.
ab::Experiment asked_experiment(const po::variables_map& values, std::string& folder) {
  const std::vector<std::string> sets = words(values, "set");
  const bool proposes = values.count("propose") > 0;
  if (proposes != (values.count("base") > 0))
    fail_config("tenon ab: --propose K=V... and --base RUN belong together; one of them is missing");
  if (!proposes) {
    if (values.count("experiment") == 0)
      fail_config("tenon ab: which EXPERIMENT? usage: tenon ab EXPERIMENT [options]");
    return ab::read_experiment(words(values, "experiment")[0], sets);
  }
  if (values.count("experiment") > 0) {
    fail_config(fmt::format("tenon ab: --propose makes the experiment, so there is none to name; found '{}'",
                            words(values, "experiment")[0]));
  }
  const std::string text =
      ab::proposal_text(values["base"].as<std::string>(), words(values, "propose"), sets);
  return ab::read_experiment(ab::write_proposal(text, folder, values.count("restart") > 0), {});
}

int print_ledger(const po::variables_map& values) {
  for (const char* other : {"experiment", "propose", "family"}) {
    if (values.count(other) > 0) {
      fail_config(
          fmt::format("tenon ab: --ledger prints a ledger and runs nothing, so {} has no place beside it",
                      other == std::string("experiment") ? "an experiment" : fmt::format("--{}", other)));
    }
  }
  const std::string folder = values["ledger"].as<std::string>();
  std::cout << (values.count("json") > 0 ? ab::ledger_line(folder) : ab::ledger_table(folder));
  return 0;
}

int run_ab(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kAb, {"experiment"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("ledger") > 0) return print_ledger(parsed.values);
  ab::StudyOptions study;
  if (parsed.values.count("out") > 0) study.folder = parsed.values["out"].as<std::string>();
  const ab::Experiment experiment = asked_experiment(parsed.values, study.folder);
  study.program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (study.folder.empty()) study.folder = "out/" + experiment.name;
  study.jobs = parsed.values["jobs"].as<int>();
  study.self_check = parsed.values.count("aa") > 0;
  study.restart = parsed.values.count("restart") > 0;
  if (parsed.values.count("family") > 0) study.family = parsed.values["family"].as<std::string>();
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  study.resolve = resolved_config;
  study.measure = model_size;
  study.progress = [terminal](const std::string& line, bool finished) {
    print_progress(terminal, line, finished);
  };
  const ab::StudyOutcome outcome = ab::run_study(experiment, study);
  if (parsed.values.count("json") > 0) {
    if (outcome.exit_status != 0) std::cerr << ab::closing_text(outcome);
    std::cout << ab::verdict_line(outcome);
  } else {
    std::cout << ab::closing_text(outcome);
  }
  return parsed.values.count("exit-verdict") > 0 ? ab::verdict_status(outcome) : outcome.exit_status;
}

}  // namespace

const Command kAb{"ab", "EXPERIMENT [options]",
                  "Compare ways to train over paired seeds, and write a report.", run_ab, declare_ab};

}  // namespace tenon::cli
