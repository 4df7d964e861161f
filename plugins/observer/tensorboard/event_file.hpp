// An event file: records of a length, its masked CRC-32C, an Event message, and the message's masked CRC-32C.
// Field numbers are those of TensorBoard's event.proto and summary.proto.
#pragma once

#include <tenon/files.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tensorboard {

// The subset of Protocol Buffers' wire format that event files need: varints, 64-bit and 32-bit numbers, and
// length-delimited fields. A field with the default value is written too if a reader could not infer it.

/// Appends fields to a message whose memory is reused.
class ProtoMessage {
 public:
  void clear() { bytes_.clear(); }
  const std::string& bytes() const { return bytes_; }
  void varint(int field, std::uint64_t value);
  void real64(int field, double value);
  void real32(int field, float value);
  void text(int field, std::string_view value);
  void message(int field, const ProtoMessage& value) { text(field, value.bytes()); }
  void packed(int field, std::span<const double> values);

 private:
  void raw(std::uint64_t value);
  void key(int field, int wire_type);
  template <typename T>
  void little_endian(T value);

  std::string bytes_;
};

/// A histogram in TensorBoard's form: bucket i counts values up to limit i; limits grow by 10 % from 1e-12 to
/// 1e20 on both sides of zero. They equal those of TensorFlow's summaries, so that curves of both are
/// comparable.
class Histogram {
 public:
  Histogram();
  void clear();
  /// Non-finite values are counted separately: a bucket for them would stretch the axis.
  void add(double value);

  double min() const { return min_; }
  double max() const { return max_; }
  double count() const { return count_; }
  double sum() const { return sum_; }
  double sum_of_squares() const { return squares_; }
  std::int64_t not_finite() const { return not_finite_; }
  /// Return limits and counts without the empty ends; valid until the next change.
  std::span<const double> limits() const;
  std::span<const double> counts() const;

 private:
  std::vector<double> limits_, counts_;
  std::size_t first_, last_;  ///< buckets in use: [first, last)
  double min_, max_, count_, sum_, squares_;
  std::int64_t not_finite_;
};

/// "events.out.tfevents.1700000000.host.42.0"
std::string event_file_name(std::int64_t unix_seconds, std::string_view host, int process, int counter);

class EventFile {
 public:
  /// Writes the version record.
  EventFile(std::unique_ptr<WritableFile> file, double wall_time);
  ~EventFile();

  void scalar(double wall_time, std::int64_t step, std::string_view tag, double value);
  /// Writes nothing when no value is finite.
  void histogram(double wall_time, std::int64_t step, std::string_view tag, const Histogram& histogram);
  /// Tells readers to drop events of this step and later ones from earlier files of the folder.
  void restart(double wall_time, std::int64_t step);
  void flush();
  std::size_t buffered() const { return buffer_.size(); }

 private:
  void begin(double wall_time, std::int64_t step);
  void summary();
  void record();

  std::unique_ptr<WritableFile> file_;
  ProtoMessage event_, summary_, value_, inner_;
  std::string buffer_;
};

}  // namespace tenon::tensorboard
