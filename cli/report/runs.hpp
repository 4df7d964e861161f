// Runs for the reports: their files, found below a folder, with names, origins of the configuration and the
// facts that every page repeats. Reads only.
#pragma once

#include "ab/run_record.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tenon::report {

/// A line of config.resolved.toml.
struct ConfigLine {
  std::string key, value, origin;  ///< "optimizer.lr", "3e-4", "r.toml:20:6"
};

struct Run {
  std::string name;  ///< run.name and, if there are several, the attempt
  ab::RunRecord record;
  std::vector<ConfigLine> config;
};

/// A metric's whole curve in numbers.
struct MetricFacts {
  std::int64_t lines = 0, last_step = 0, least_step = 0, most_step = 0;
  double last = 0, least = 0, most = 0;
};

/// Reads one attempt, ended or not.
Run load_run(const std::string& attempt);
/// Newest attempts of all runs below `folder`, in the order of their paths. `unreadable` lists what cannot be
/// read.
std::vector<Run> load_runs(const std::string& folder, std::vector<std::string>& unreadable);
/// True for an attempt and for a folder whose children are attempts.
bool is_run(const std::string& folder);

MetricFacts facts_of(const ab::Series& series);
/// Whether a key of the configuration may change the training: names, observers and [power] do not.
bool may_change_training(const std::string& key);
/// Lines of config.resolved.toml with their tables' names in front.
std::vector<ConfigLine> config_lines(const std::string& toml);
/// "seeds.seed" of the manifest, "" when absent; quotes of texts removed.
std::string manifest_text(const ab::RunRecord& run, const std::string& key);
/// "val/loss" if the run has it, else "train/loss", else the first metric; "" without metrics.
std::string main_metric(const ab::RunRecord& run);
bool higher_is_better(const std::string& metric);

}  // namespace tenon::report
