// metrics.jsonl, the truth of a run: one JSON object per line, written by rank 0 and read by everything that
// compares runs. A value that JSON cannot write (NaN, infinity) is null and reads back as NaN.
#pragma once

#include <tenon/files.hpp>
#include <tenon/observer.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// One line, owning its texts.
struct MetricLine {
  std::int64_t step = 0;
  std::string split;
  std::string name;
  double value = 0;
  double wall_s = 0;
  std::int64_t samples = 0, tokens = 0;
  std::uint64_t bytes_sent = 0;
};

/// Appends to metrics.jsonl. Lines wait in a buffer that was reserved once, so append() allocates nothing;
/// they reach the file at flush(), at the first tick() that is `interval_s` after the last write, when the
/// buffer is full and at destruction. One thread at a time.
class MetricsWriter {
 public:
  /// Opens for appending. A torn last line, left by a killed process, is cut off first. Throws FileError.
  MetricsWriter(FileSystem& files, const std::string& path, double interval_s);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void append(const Metric& metric);
  /// End of a slot.
  void tick();
  /// End of an evaluation: hands all lines to the system.
  void flush();
  /// flush, and return once the lines are on the medium: before a checkpoint of the same slot is committed.
  void sync();

 private:
  std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  std::chrono::duration<double> interval_;
  std::chrono::steady_clock::time_point written_;
};

/// One line without its newline; false when it is not a complete line of this format.
bool parse_metric_line(std::string_view text, MetricLine& line);
/// All lines. A torn last line is ignored; any other malformed line throws Error(kRun) with path and line
/// number.
std::vector<MetricLine> read_metrics(FileSystem& files, const std::string& path);
/// Removes the lines of steps beyond `step` and a torn last line; the file is replaced atomically, or left
/// alone when nothing is to go. An absent file is fine. Returns how many lines went. Same errors as
/// read_metrics.
std::int64_t drop_metrics_after(FileSystem& files, const std::string& path, std::int64_t step);

}  // namespace tenon
