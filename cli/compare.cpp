// tenon compare: the first input in which two runs differ, their metrics side by side, and their weights.
#include "command_line.hpp"

#include "record/run_folder.hpp"
#include "report/compare.hpp"
#include "witness/witness_comparison.hpp"
#include "witness_answer.hpp"

#include <tenon/error.hpp>

#include <iostream>
#include <optional>

namespace tenon::cli {
namespace {

void declare_compare(po::options_description& options) {
  options.add_options()("numerics", "compare operands (observer numerics) and the newest checkpoints too");
  options.add_options()("witness", "compare only what both recorded with [run] witness_every");
  options.add_options()("json", "print everything as JSON");
}

void print_witnesses(FileSystem& files, const std::string& a, const std::string& b, bool as_json) {
  const train::WitnessComparison comparison =
      train::compare_witnesses(train::read_witnesses(files, a), a, train::read_witnesses(files, b), b);
  if (!as_json) {
    std::cout << witness_text(comparison, a, b);
    return;
  }
  JsonWriter json;
  json.begin_object();
  json.member("run_a", a);
  json.member("run_b", b);
  add_witness(json, comparison);
  json.end_object();
  std::cout << json.take();
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
  const auto attempt = [&](const char* name) {
    return open_newest_attempt(*files, parsed.values[name].as<std::vector<std::string>>()[0]).path;
  };
  if (parsed.values.count("witness") > 0) {
    print_witnesses(*files, attempt("run_a"), attempt("run_b"), parsed.values.count("json") > 0);
    return 0;
  }
  const report::Run a = report::load_run(attempt("run_a")), b = report::load_run(attempt("run_b"));
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
