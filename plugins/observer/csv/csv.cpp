// Event handlers of csv.hpp.
#include "csv.hpp"

#include <tenon/error.hpp>

#include <array>
#include <charconv>
#include <system_error>

namespace tenon::csv {
namespace {

template <typename T>
void append_chars(std::string& out, T value) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

/// Returns the length of the first record with its line end; 0 when the text ends earlier.
std::size_t record_length(std::string_view text) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) return i + 1;
  }
  return 0;
}

}  // namespace

void append_field(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

void append_number(std::string& out, double value) {
  append_chars(out, value);
}

void append_number(std::string& out, std::int64_t value) {
  append_chars(out, value);
}

std::string keep_rows(std::string_view text, std::string_view header, std::int64_t last_step, bool& whole) {
  whole = true;
  if (!text.starts_with(header)) return "";
  std::string kept(header);
  text.remove_prefix(header.size());
  while (!text.empty()) {
    const std::size_t length = record_length(text);
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + length, step);
    if (length == 0 || error != std::errc() || *end != ',') {
      whole = false;
      break;
    }
    if (step <= last_step) kept.append(text, 0, length);
    text.remove_prefix(length);
  }
  return kept;
}

namespace {

constexpr std::size_t kFull = std::size_t{64} << 10;
constexpr std::int64_t kLargestFile = std::int64_t{4} << 30;

void check_name(const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos) return;
  fail_config("observer.csv: file: expected a name within the run folder, found '" + name + "'");
}

}  // namespace

Csv::Csv(const Options& options, Host& host)
    : Csv(std::string(options.text("file")), options.integer("flush_every"), host, make_posix_files()) {}

Csv::Csv(std::string name, std::int64_t flush_every, Host& host, std::unique_ptr<FileSystem> files)
    : name_(std::move(name)), flush_every_(flush_every), host_(host), files_(std::move(files)) {
  check_name(name_);
  buffer_.reserve(2 * kFull);
}

void Csv::on_start(const RunInfo& info) {
  const std::string path = info.folder + "/" + name_;
  std::string kept;
  if (files_->exists(path)) {
    bool whole = true;
    kept = keep_rows(read_text(*files_, path, kLargestFile), kHeader, info.first_slot, whole);
    if (kept.empty()) {
      fail_run(path +
               ": not a table of this observer (its first line differs); move it away or set another "
               "`file`");
    }
    if (!whole) host_.log(LogLevel::kWarning, path + ": the last row was torn and is dropped");
  }
  if (kept.empty()) kept = kHeader;
  files_->write_text_atomically(path, kept);
  file_ = files_->append_to(path);
}

void Csv::on_metric(const Metric& metric) {
  append_number(buffer_, metric.step);
  buffer_ += ',';
  append_field(buffer_, split_name(metric));
  buffer_ += ',';
  append_field(buffer_, metric.name);
  for (const double value : {metric.value, metric.wall_s}) {
    buffer_ += ',';
    append_number(buffer_, value);
  }
  for (const std::int64_t value :
       {metric.samples, metric.tokens, static_cast<std::int64_t>(metric.bytes_sent)}) {
    buffer_ += ',';
    append_number(buffer_, value);
  }
  buffer_ += '\n';
  if (buffer_.size() >= kFull) flush();
}

void Csv::on_slot(const SlotRecord& record) {
  if ((record.slot + 1) % flush_every_ == 0) flush();
}

void Csv::on_finish(std::string_view, std::string_view) {
  flush();
}

void Csv::flush() {
  if (file_ == nullptr || buffer_.empty()) return;
  file_->append(std::as_bytes(std::span(buffer_.data(), buffer_.size())));
  buffer_.clear();
}

}  // namespace tenon::csv

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.csv", .version = "0.1.0", .summary = "metrics as a table"},
             tenon::csv::Csv)
