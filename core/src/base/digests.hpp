// Streaming xxh3-128 over libxxhash, without its header in ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tenon {

class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  void reset();
  void update(std::span<const std::byte> bytes);
  /// Eight bytes, little-endian: the framing of counts and extents.
  void update_u64(std::uint64_t value);
  /// 32 lower-case hexadecimal digits of everything since reset; the stream may go on.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon
