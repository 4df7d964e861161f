// tenon report: writes the page of a run, of the runs below a folder, or of a finished study.
#include "built_model.hpp"
#include "command_line.hpp"

#include "ab/ab.hpp"
#include "record/run_folder.hpp"
#include "report/model_drawing.hpp"
#include "report/pages.hpp"

#include <tenon/error.hpp>

#include <filesystem>
#include <iostream>

namespace tenon::cli {
namespace {

void write(const std::string& folder, const std::string& page) {
  const std::string path = (std::filesystem::path(folder) / "report.html").string();
  const auto files = make_posix_files();
  files->write_text_atomically(path, page);
  std::cout << path << "\n";
}

/// The drawing of the run's graph, or why there is none: data may have moved since. That prevents no page.
std::string model_of(const std::string& attempt) {
  try {
    Runtime runtime;
    const Config config = load_run(runtime, attempt + "/config.resolved.toml", {});
    config::CheckedRun checked = config::check_run(config, runtime.registry(), {});
    return report::graph_svg(read_model_graph(runtime.registry(), checked));
  } catch (const Error& error) {
    return std::string("The graph cannot be built here: ") + error.what();
  }
}

int report_one(const std::string& folder, bool as_json) {
  const auto files = make_posix_files();
  const report::Run run = report::load_run(open_newest_attempt(*files, folder).path);
  if (as_json) {
    std::cout << report::run_json(run);
    return 0;
  }
  std::cout << run.name << ": " << report::status_text(run) << "\n";
  write(run.record.folder, report::run_page(run, model_of(run.record.folder)));
  return 0;
}

int report_many(const std::string& folder, bool as_json, const std::vector<std::string>& columns) {
  std::vector<std::string> unreadable;
  const std::vector<report::Run> runs = report::load_runs(folder, unreadable);
  if (runs.empty()) {
    std::string text = "tenon report: " + folder +
                       " holds no run (a folder with metrics.jsonl and "
                       "config.resolved.toml), and no study (experiment.json)";
    for (const std::string& reason : unreadable) text += "\n  " + reason;
    fail_config(text);
  }
  if (as_json) {
    std::cout << report::runs_json(folder, runs, unreadable);
    return 0;
  }
  std::cout << runs.size() << " runs";
  if (!unreadable.empty()) std::cout << ", " << unreadable.size() << " left out (see the page)";
  std::cout << "\n";
  write(folder, report::runs_page(folder, runs, unreadable, columns));
  return 0;
}

void declare_report(po::options_description& options) {
  options.add_options()("json", "print the facts as JSON and write no page");
  options.add_options()("columns", po::value<std::string>(),
                        "KEY,KEY...  configuration keys of the table over seeds; else those that differ");
}

int run_report(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kReport, {"folder"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("folder") == 0)
    fail_config("tenon report: which RUN or DIR? usage: tenon report RUN|DIR");
  const std::string folder = parsed.values["folder"].as<std::vector<std::string>>()[0];
  const bool as_json = parsed.values.count("json") > 0;
  if (ab::is_study_folder(folder)) {
    const ab::StudyOutcome outcome = ab::report_study(folder);
    std::cout << (as_json ? ab::outcome_json(outcome) : ab::closing_text(outcome));
    return outcome.exit_status;
  }
  if (!std::filesystem::is_directory(folder)) fail_config("tenon report: there is no folder " + folder);
  if (report::is_run(folder)) return report_one(folder, as_json);
  std::vector<std::string> columns;
  if (parsed.values.count("columns") > 0)
    columns = split_at_commas(parsed.values["columns"].as<std::string>());
  return report_many(folder, as_json, columns);
}

}  // namespace

const Command kReport{"report", "RUN|DIR [options]", "Write the page of a run, of many runs, or of a study.",
                      run_report, declare_report};

}  // namespace tenon::cli
