// One finished run as it is on disk (DESIGN 8), read without trusting it: metrics.jsonl may end in a torn
// line, a file may be missing. Reads only; compares nothing.
#pragma once

#include "ab/experiment.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

/// One line of metrics.jsonl. A NaN or infinite loss is kept as such.
struct MetricPoint {
  std::int64_t step = 0;
  double value = 0;
  double wall_s = 0;
  double samples = 0;
  double tokens = 0;
  double bytes_sent = 0;

  double at(Axis axis) const;
};

/// Summary in summary.json of numbers that a strategy records by name.
struct Distribution {
  double count = 0, mean = 0, least = 0, most = 0;
};

/// Seconds of a rank by activity of its training thread.
struct TimeSplit {
  double total = 0, compute = 0, exposed = 0, late = 0, data = 0, other = 0;
  double overlapped = 0;  ///< transfers beside other work; counted in none of the parts

  /// Difference between the parts and the total, as a share of the total.
  double gap() const;
};

/// Mean of each part; empty for no splits.
std::optional<TimeSplit> mean_of(const std::vector<TimeSplit>& splits);

using Series = std::vector<MetricPoint>;  ///< in order of step

struct RunRecord {
  std::string folder;  ///< the attempt
  int attempt = 0;

  std::string status;  ///< completed | interrupted | failed
  double steps = 0, samples = 0, tokens = 0, wall_s = 0, bytes_sent = 0;
  std::optional<double> peak_rss_mb, stall_s, hidden_comm_share;
  std::optional<double> exposed_comm_s, late_s;  ///< waiting for bytes and for ranks, mean over ranks
  std::optional<TimeSplit> time;                 ///< mean over ranks; empty without an account of time
  std::map<std::string, double> bytes_by_purpose;
  std::map<std::string, double> rank_bytes;  ///< sent, by purpose, mean over the ranks that train
  std::map<std::string, Distribution> distributions;
  std::map<std::string, double> quantized_operands;
  std::map<std::string, double> final_metrics;  ///< "val/loss" -> value
  std::string weights_hash, state_hash;

  std::map<std::string, Series> series;             ///< "val/loss" -> curve
  std::map<std::string, std::string> config;        ///< flattened config.resolved.toml
  std::map<std::string, std::string> manifest;      ///< flattened manifest.json
  std::map<std::string, std::string> plugins_lock;  ///< flattened plugins.lock, "plugin.<id>.sha256"
  std::vector<std::string> notes;                   ///< what was odd but readable

  /// Consumption along an axis, from summary.json.
  double consumed(Axis axis) const;
  /// Last value of a metric: summary.json's word, else the last line of metrics.jsonl.
  std::optional<double> final_value(const std::string& metric) const;
};

/// Bytes for one purpose in bytes_by_purpose or rank_bytes; 0 if nothing was sent for it.
double bytes_of(const std::map<std::string, double>& purposes, const std::string& purpose);

/// Newest attempt below `parent` (folders named 1, 2, ...); 0 if there is none.
int newest_attempt(const std::string& parent);

/// Whether a run must have ended, or may still run or have been killed: then summary.json may be absent, its
/// status is "unfinished" and its sums are those of the last metric line.
enum class RunState { kEnded, kAny };

/// Reads an attempt. Throws Error(kRun) naming the file, the line and what was expected. A last line without
/// newline that does not parse is dropped with a note; any other broken line is an error.
RunRecord read_run(const std::string& folder, RunState state = RunState::kEnded);

/// The parsers of read_run, on text; `where` names the source in errors.
void parse_metrics(const std::string& text, const std::string& where, RunRecord& run);
void parse_summary(const std::string& text, const std::string& where, RunRecord& run);
/// "a.b[0]" -> value as text.
std::map<std::string, std::string> flatten_json(const std::string& text, const std::string& where);

}  // namespace tenon::ab
