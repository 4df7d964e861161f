// Writing and trimming metrics.jsonl. Parsing a line is in run_files.cpp, beside the other JSON readers.
#include "record/metrics.hpp"

#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <limits>
#include <span>

namespace tenon {
namespace {

constexpr std::size_t kFull = std::size_t{64} << 10;
constexpr std::int64_t kLargestMetrics = std::int64_t{4} << 30;

/// Calls use(line, number, text) for every complete line; text is without its newline. Returns true if the
/// end was torn.
template <typename Use>
bool for_each_line(std::string_view text, const std::string& path, Use use) {
  MetricLine line;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view here = text.substr(0, end);
    if (!parse_metric_line(here, line)) {
      if (end == std::string_view::npos || end + 1 == text.size()) return true;
      fail_run(fmt::format(
          "{}:{}: not a line of metrics: expected {{\"step\": ..., \"split\": ..., \"name\": ..., "
          "\"value\": ..., ...}}, found '{}'; only the last line may be torn",
          path, number, here.substr(0, 120)));
    }
    use(line, here);
    if (end == std::string_view::npos) return true;  // whole, but its newline is missing
    text.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

MetricsWriter::MetricsWriter(FileSystem& files, const std::string& path, double interval_s)
    : interval_(interval_s), written_(std::chrono::steady_clock::now()) {
  drop_metrics_after(files, path, std::numeric_limits<std::int64_t>::max());
  file_ = files.append_to(path);
  buffer_.reserve(2 * kFull);
}

MetricsWriter::~MetricsWriter() {
  try {
    flush();
  } catch (const std::exception&) {  // a caller that needs the error calls flush() or sync()
  }
}

void MetricsWriter::append(const Metric& metric) {
  const auto number = [&](std::string_view key, auto value) {
    buffer_ += key;
    append_json_number(buffer_, value);
  };
  number("{\"step\": ", metric.step);
  buffer_ += ", \"split\": ";
  append_json_text(buffer_, split_name(metric));
  buffer_ += ", \"name\": ";
  append_json_text(buffer_, metric.name);
  number(", \"value\": ", metric.value);
  number(", \"wall_s\": ", metric.wall_s);
  number(", \"samples\": ", metric.samples);
  number(", \"tokens\": ", metric.tokens);
  number(", \"bytes_sent\": ", metric.bytes_sent);
  buffer_ += "}\n";
  if (buffer_.size() >= kFull) flush();
}

void MetricsWriter::tick() {
  if (!buffer_.empty() && std::chrono::steady_clock::now() - written_ >= interval_) flush();
}

void MetricsWriter::flush() {
  written_ = std::chrono::steady_clock::now();
  if (buffer_.empty()) return;
  // Cleared first: after an error it is unknown how much was written, and a second try would tear the file.
  struct Clear {
    std::string& text;
    ~Clear() { text.clear(); }
  } clear{buffer_};
  file_->append(std::as_bytes(std::span(buffer_)));
}

void MetricsWriter::sync() {
  flush();
  file_->sync();
}

std::vector<MetricLine> read_metrics(FileSystem& files, const std::string& path) {
  const std::string text = read_text(files, path, kLargestMetrics);
  std::vector<MetricLine> lines;
  for_each_line(text, path, [&](const MetricLine& line, std::string_view) { lines.push_back(line); });
  return lines;
}

std::int64_t drop_metrics_after(FileSystem& files, const std::string& path, std::int64_t step) {
  if (!files.exists(path)) return 0;
  const std::string text = read_text(files, path, kLargestMetrics);
  std::string kept;
  std::int64_t dropped = 0;
  const bool torn = for_each_line(text, path, [&](const MetricLine& line, std::string_view words) {
    if (line.step > step) {
      ++dropped;
      return;
    }
    kept += words;
    kept += '\n';
  });
  if (dropped > 0 || torn) files.write_text_atomically(path, kept);
  return dropped;
}

}  // namespace tenon
