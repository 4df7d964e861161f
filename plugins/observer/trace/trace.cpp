// Events of trace.hpp: "X" (begin and duration) for spans, "M" for the names of rank and lanes. Times are
// whole nanoseconds, written as microseconds with three decimals.
#include "trace.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace tenon::trace {

// First fit: the first lane of the track that is free when the span begins.

Lanes::Place Lanes::place(std::string_view track, std::int64_t begin, std::int64_t end) {
  int same = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].track != track) continue;
    ++same;
    if (lanes_[i].free_at > begin) continue;
    lanes_[i].free_at = end;
    return {static_cast<int>(i), false};
  }
  std::string name(track);
  if (same > 0) name += " " + std::to_string(same + 1);
  lanes_.push_back({std::string(track), std::move(name), end});
  return {static_cast<int>(lanes_.size()) - 1, true};
}

namespace {

constexpr std::size_t kFull = std::size_t{64} << 10;

void append_integer(std::string& out, std::int64_t value) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

void append_microseconds(std::string& out, std::int64_t nanoseconds) {
  append_integer(out, nanoseconds / 1000);
  const auto rest = static_cast<int>(nanoseconds % 1000);
  out += '.';
  out += static_cast<char>('0' + rest / 100);
  out += static_cast<char>('0' + rest / 10 % 10);
  out += static_cast<char>('0' + rest % 10);
}

void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (code < 0x20) {
      out += "\\u00";
      out += "0123456789abcdef"[code >> 4];
      out += "0123456789abcdef"[code & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

std::int64_t nanoseconds(double seconds) {
  return static_cast<std::int64_t>(std::llround(std::max(0.0, seconds) * 1e9));
}

}  // namespace

Trace::Trace(const Options& options)
    : Trace(options.integer("first"), options.integer("slots"), make_posix_files()) {}

Trace::Trace(std::int64_t first, std::int64_t slots, std::unique_ptr<FileSystem> files)
    : first_(first), slots_(slots), files_(std::move(files)) {
  buffer_.reserve(2 * kFull);
}

void Trace::on_start(const RunInfo& info) {
  rank_ = info.rank;
  slot_ = info.first_slot;
  // The clock of a resumed run restarts at zero; a separate file keeps both timelines.
  std::string name = "trace.rank" + std::to_string(rank_);
  if (info.first_slot > 0) name += ".slot" + std::to_string(info.first_slot);
  file_ = files_->create(info.folder + "/" + name + ".json");
  event();
  buffer_ += R"({"ph":"M","name":"process_name","pid":)";
  append_integer(buffer_, rank_);
  buffer_ += R"(,"tid":0,"args":{"name":"rank )";
  append_integer(buffer_, rank_);
  buffer_ += "\"}}";
  flush();
}

void Trace::on_span(const Span& span) {
  if (file_ == nullptr || slot_ < first_ || (slots_ > 0 && slot_ >= first_ + slots_)) return;
  const std::int64_t begin = nanoseconds(span.begin_s);
  const std::int64_t end = std::max(begin, nanoseconds(span.end_s));
  const Lanes::Place place = lanes_.place(span.track, begin, end);
  if (place.opened) {
    event();
    buffer_ += R"({"ph":"M","name":"thread_name","pid":)";
    append_integer(buffer_, rank_);
    buffer_ += ",\"tid\":";
    append_integer(buffer_, place.lane);
    buffer_ += ",\"args\":{\"name\":";
    append_text(buffer_, lanes_.name(place.lane));
    buffer_ += "}}";
  }
  event();
  buffer_ += "{\"ph\":\"X\",\"name\":";
  append_text(buffer_, span.name);
  buffer_ += ",\"cat\":";
  append_text(buffer_, span.track);
  buffer_ += ",\"pid\":";
  append_integer(buffer_, rank_);
  buffer_ += ",\"tid\":";
  append_integer(buffer_, place.lane);
  buffer_ += ",\"ts\":";
  append_microseconds(buffer_, begin);
  buffer_ += ",\"dur\":";
  append_microseconds(buffer_, end - begin);
  buffer_ += ",\"args\":{\"slot\":";
  append_integer(buffer_, slot_);
  buffer_ += "}}";
  if (buffer_.size() >= kFull) flush();
}

void Trace::on_slot(const SlotRecord& record) {
  slot_ = record.slot + 1;
}

void Trace::on_finish(std::string_view, std::string_view) {
  if (file_ == nullptr) return;
  buffer_ += "\n]\n";
  flush();
  file_->close();
  file_ = nullptr;
}

void* Trace::query(std::string_view interface_id) {
  return interface_id == kSpanObserverId ? this : nullptr;
}

/// Starts one more event, after the opening bracket or a comma.
void Trace::event() {
  buffer_ += empty_ ? "[\n" : ",\n";
  empty_ = false;
}

void Trace::flush() {
  file_->append(std::as_bytes(std::span(buffer_.data(), buffer_.size())));
  buffer_.clear();
}

}  // namespace tenon::trace

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.trace",
                               .version = "0.1.0",
                               .summary = "timelines of all ranks for trace viewers"},
             tenon::trace::Trace)
