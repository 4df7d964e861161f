// tenon compare: the first input in which two runs differ, their metrics side by side, and their weights.
#include "command_line.hpp"

#include "record/run_folder.hpp"
#include "report/compare.hpp"

#include <tenon/error.hpp>

#include <iostream>
#include <optional>

namespace tenon::cli {
namespace {

void declare_compare(po::options_description& options) {
  options.add_options()("numerics", "compare operands (observer numerics) and the newest checkpoints too");
  options.add_options()("json", "print everything as JSON");
}

/// Runs that save nothing can still have lines about operands; without either there is nothing to compare.
report::NumericsAnswer compare_numerics(const std::string& a, const std::string& b) {
  report::NumericsAnswer answer;
  answer.operands = report::compare_operands(a, b);
  try {
    answer.checkpoints = report::compare_checkpoints(a, b);
  } catch (const Error& error) {
    if (!answer.operands.in_a || !answer.operands.in_b) throw;
    answer.no_checkpoints = error.what();
  }
  return answer;
}

int run_compare(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kCompare, {"run_a", "run_b"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("run_b") == 0)
    fail_config("tenon compare: which two runs? usage: tenon compare RUN_A RUN_B [options]");
  const auto files = make_posix_files();
  const auto load = [&](const char* name) {
    const std::string folder = parsed.values[name].as<std::vector<std::string>>()[0];
    return report::load_run(open_newest_attempt(*files, folder).path);
  };
  const report::Run a = load("run_a"), b = load("run_b");
  const report::Comparison comparison = report::compare_runs(a, b);
  std::optional<report::NumericsAnswer> numerics;
  if (parsed.values.count("numerics") > 0) numerics = compare_numerics(a.record.folder, b.record.folder);
  const report::NumericsAnswer* shown = numerics ? &*numerics : nullptr;
  std::cout << (parsed.values.count("json") > 0 ? report::comparison_json(a, b, comparison, shown)
                                                : report::comparison_text(a, b, comparison, shown));
  return 0;
}

}  // namespace

const Command kCompare{"compare", "RUN_A RUN_B [options]",
                       "Say in what two runs differ, and show their metrics side by side.", run_compare,
                       declare_compare};

}  // namespace tenon::cli
