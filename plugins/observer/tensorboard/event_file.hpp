// An event file: records of a length, its masked CRC-32C, an Event message, and the message's masked CRC-32C.
// Field numbers are those of TensorBoard's event.proto and summary.proto.
#pragma once

#include "histogram.hpp"
#include "proto.hpp"

#include <tenon/files.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tenon::tensorboard {

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
