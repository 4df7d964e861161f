// Files with a CRC-32C per MiB: one wrapper computes them while a file is written, another checks every block
// that it reads. The list itself is in the manifest.
#pragma once

#include <tenon/files.hpp>

namespace tenon::checkpoint {

inline constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

/// Record of a file in a manifest. crcs has one value per started block.
struct FileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> crcs;
  bool operator==(const FileRecord&) const = default;
};

std::int64_t block_count(std::int64_t bytes) noexcept;

/// Passes everything on and keeps the record of it.
class DigestingFile final : public WritableFile {
 public:
  DigestingFile(WritableFile& inner, std::string name) : inner_(inner) { record_.name = std::move(name); }
  void append(std::span<const std::byte> bytes) override;
  void sync() override { inner_.sync(); }
  void close() override { inner_.close(); }
  const FileRecord& record() const noexcept { return record_; }

 private:
  WritableFile& inner_;
  FileRecord record_;
};

/// Reads through the check: a wrong size or block throws Error(kRun) that names file, block and both values.
/// Keeps one block, so small reads in order cost one pass; a block that is wanted whole is checked in the
/// caller's buffer, which may hold a damaged one after the error. One thread at a time.
class CheckedFile final : public ReadableFile {
 public:
  CheckedFile(std::unique_ptr<ReadableFile> inner, FileRecord record, std::string path);
  std::int64_t size() const override { return record_.bytes; }
  void read(std::int64_t offset, std::span<std::byte> out) const override;
  /// Checks every block.
  void verify() const;

 private:
  std::size_t block_size(std::int64_t index) const noexcept;
  /// Reads the block into `bytes`, which has its size, and checks it there.
  void load(std::int64_t index, std::span<std::byte> bytes) const;
  std::span<const std::byte> block(std::int64_t index) const;

  std::unique_ptr<ReadableFile> inner_;
  FileRecord record_;
  std::string path_;
  mutable std::vector<std::byte> cache_;
  mutable std::int64_t cached_ = -1;
};

}  // namespace tenon::checkpoint
