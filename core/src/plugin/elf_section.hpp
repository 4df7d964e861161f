// Reads one section of an ELF64 little-endian file for this processor, without mapping or running it. The
// bytes are not trusted: every offset is checked against the size of the source before it is used, and every
// size has a limit.
#pragma once

#include "base/file_descriptor.hpp"

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::plugin {

/// Bytes that are read by position, so that a file of hundreds of megabytes costs a few kilobytes.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  /// Fills `out` from `offset`; false when that fails. The caller has checked offset and size.
  virtual bool read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  bool read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::span<const std::byte> bytes_;
};

/// Opens a regular file; problem() tells why it could not. Reads it a window at a time: the records of a
/// section table are adjacent. For one thread.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::filesystem::path& file);

  const std::string& problem() const { return problem_; }
  std::uint64_t size() const override { return size_; }
  bool read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  bool read_file(std::uint64_t offset, std::span<std::byte> out) const;

  base::FileDescriptor file_;
  std::uint64_t size_ = 0;
  mutable std::vector<std::byte> window_;
  mutable std::uint64_t window_begin_ = 0;
  std::string problem_;
};

/// The processor that this program is built for, as ELF headers name it.
#if defined(__x86_64__)
inline constexpr std::uint16_t kElfMachine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr std::uint16_t kElfMachine = EM_AARCH64;
#elif defined(__riscv)
inline constexpr std::uint16_t kElfMachine = EM_RISCV;
#endif

inline constexpr std::size_t kLongestSection = std::size_t{64} * 1024;

struct SectionResult {
  std::string text;
  std::string problem;  ///< "" when the section was read
};

/// The contents of the first section called `name`.
SectionResult read_elf_section(const ByteSource& source, std::string_view name);

}  // namespace tenon::plugin
