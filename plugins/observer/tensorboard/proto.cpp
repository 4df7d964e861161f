// Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
#include "proto.hpp"

#include <bit>

namespace tenon::tensorboard {

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

}  // namespace tenon::tensorboard
