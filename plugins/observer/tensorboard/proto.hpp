// The subset of Protocol Buffers' wire format that event files need: varints, 64-bit and 32-bit numbers, and
// length-delimited fields. A field with the default value is written too if a reader could not infer it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon::tensorboard {

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

}  // namespace tenon::tensorboard
