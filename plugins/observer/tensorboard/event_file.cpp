// Messages of event_file.hpp. Their buffers are reused, so a steady run does not allocate here.
#include "event_file.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tenon::tensorboard {

// Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.

void ProtoMessage::raw(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtoMessage::key(int field, int wire_type) {
  raw(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

template <typename T>
void ProtoMessage::little_endian(T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

void ProtoMessage::varint(int field, std::uint64_t value) {
  key(field, 0);
  raw(value);
}

void ProtoMessage::real64(int field, double value) {
  key(field, 1);
  little_endian(std::bit_cast<std::uint64_t>(value));
}

void ProtoMessage::real32(int field, float value) {
  key(field, 5);
  little_endian(std::bit_cast<std::uint32_t>(value));
}

void ProtoMessage::text(int field, std::string_view value) {
  key(field, 2);
  raw(value.size());
  bytes_ += value;
}

void ProtoMessage::packed(int field, std::span<const double> values) {
  key(field, 2);
  raw(8 * values.size());
  for (const double value : values) little_endian(std::bit_cast<std::uint64_t>(value));
}

Histogram::Histogram() {
  constexpr double kMost = std::numeric_limits<double>::max();
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  limits_.push_back(-kMost);
  for (std::size_t i = positive.size(); i-- > 0;) limits_.push_back(-positive[i]);
  limits_.push_back(0);
  limits_.insert(limits_.end(), positive.begin(), positive.end());
  limits_.push_back(kMost);
  counts_.assign(limits_.size(), 0);
  clear();
}

void Histogram::clear() {
  std::fill(counts_.begin(), counts_.end(), 0.0);
  first_ = counts_.size();
  last_ = 0;
  min_ = std::numeric_limits<double>::infinity();
  max_ = -min_;
  count_ = sum_ = squares_ = 0;
  not_finite_ = 0;
}

void Histogram::add(double value) {
  if (!std::isfinite(value)) {
    ++not_finite_;
    return;
  }
  const std::size_t bucket = std::lower_bound(limits_.begin(), limits_.end(), value) - limits_.begin();
  counts_[bucket] += 1;
  first_ = std::min(first_, bucket);
  last_ = std::max(last_, bucket + 1);
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  count_ += 1;
  sum_ += value;
  squares_ += value * value;
}

// One empty bucket before the first used one marks where that one begins.
std::span<const double> Histogram::limits() const {
  if (count_ == 0) return {};
  const std::size_t first = first_ == 0 ? 0 : first_ - 1;
  return {limits_.data() + first, last_ - first};
}

std::span<const double> Histogram::counts() const {
  if (count_ == 0) return {};
  const std::size_t first = first_ == 0 ? 0 : first_ - 1;
  return {counts_.data() + first, last_ - first};
}

namespace {

constexpr std::size_t kFull = std::size_t{64} << 10;

// Event
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
// SessionLog
constexpr int kStatus = 1;
constexpr std::uint64_t kStart = 1;
// Summary and Summary.Value
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2, kHisto = 5;
// HistogramProto
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;

template <typename T>
void append_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

std::uint32_t masked(std::string_view bytes) {
  return crc32c_masked(crc32c(std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

}  // namespace

std::string event_file_name(std::int64_t unix_seconds, std::string_view host, int process, int counter) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%010lld", static_cast<long long>(unix_seconds));
  return std::string("events.out.tfevents.") + seconds + "." + std::string(host) + "." +
         std::to_string(process) + "." + std::to_string(counter);
}

EventFile::EventFile(std::unique_ptr<WritableFile> file, double wall_time) : file_(std::move(file)) {
  buffer_.reserve(2 * kFull);
  event_.clear();
  event_.real64(kWallTime, wall_time);
  event_.text(kFileVersion, "brain.Event:2");
  record();
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const std::exception&) {  // a caller that needs the error calls flush()
  }
}

void EventFile::begin(double wall_time, std::int64_t step) {
  event_.clear();
  event_.real64(kWallTime, wall_time);
  event_.varint(kStep, static_cast<std::uint64_t>(step));
}

void EventFile::summary() {
  summary_.clear();
  summary_.message(kValue, value_);
  event_.message(kSummary, summary_);
  record();
}

void EventFile::scalar(double wall_time, std::int64_t step, std::string_view tag, double value) {
  begin(wall_time, step);
  value_.clear();
  value_.text(kTag, tag);
  value_.real32(kSimpleValue, static_cast<float>(value));
  summary();
}

void EventFile::histogram(double wall_time, std::int64_t step, std::string_view tag,
                          const Histogram& histogram) {
  if (histogram.count() == 0) return;
  begin(wall_time, step);
  inner_.clear();
  inner_.real64(kMin, histogram.min());
  inner_.real64(kMax, histogram.max());
  inner_.real64(kNum, histogram.count());
  inner_.real64(kSum, histogram.sum());
  inner_.real64(kSumSquares, histogram.sum_of_squares());
  inner_.packed(kBucketLimit, histogram.limits());
  inner_.packed(kBucket, histogram.counts());
  value_.clear();
  value_.text(kTag, tag);
  value_.message(kHisto, inner_);
  summary();
}

void EventFile::restart(double wall_time, std::int64_t step) {
  begin(wall_time, step);
  inner_.clear();
  inner_.varint(kStatus, kStart);
  event_.message(kSessionLog, inner_);
  record();
}

void EventFile::record() {
  const std::size_t at = buffer_.size();
  append_little_endian(buffer_, static_cast<std::uint64_t>(event_.bytes().size()));
  append_little_endian(buffer_, masked(std::string_view(buffer_).substr(at)));
  buffer_ += event_.bytes();
  append_little_endian(buffer_, masked(event_.bytes()));
  if (buffer_.size() >= kFull) flush();
}

void EventFile::flush() {
  if (buffer_.empty()) return;
  file_->append(std::as_bytes(std::span(buffer_.data(), buffer_.size())));
  buffer_.clear();
}

}  // namespace tenon::tensorboard
