// Digests without the headers of their libraries: streaming xxh3-128 over libxxhash, and SHA-256 of a file
// over OpenSSL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tenon {

/// Two lower-case hexadecimal digits a byte.
std::string hex_of(std::span<const std::byte> bytes);

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

namespace tenon::plugin {

/// For plugins.lock: A/B runs use it to prove the difference. 64 lower-case hexadecimal digits; throws
/// Error(kRun) when the file cannot be read.
std::string file_sha256(const std::filesystem::path& file);

}  // namespace tenon::plugin
