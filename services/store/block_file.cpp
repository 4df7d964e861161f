// Block digests on the way out and checks on the way in.
#include "store/block_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tenon::checkpoint {

std::int64_t block_count(std::int64_t bytes) noexcept {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0);
}

void DigestingFile::append(std::span<const std::byte> bytes) {
  inner_.append(bytes);
  while (!bytes.empty()) {
    const std::int64_t filled = record_.bytes % kBlockBytes;
    if (filled == 0) record_.crcs.push_back(0);
    const auto size = std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(kBlockBytes - filled));
    record_.crcs.back() = crc32c_extend(record_.crcs.back(), bytes.first(size));
    record_.bytes += static_cast<std::int64_t>(size);
    bytes = bytes.subspan(size);
  }
}

CheckedFile::CheckedFile(std::unique_ptr<ReadableFile> inner, FileRecord record, std::string path)
    : inner_(std::move(inner)), record_(std::move(record)), path_(std::move(path)) {
  if (inner_->size() != record_.bytes) {
    fail_run(fmt::format("{}: {} bytes, the manifest says {}", path_, inner_->size(), record_.bytes));
  }
}

std::size_t CheckedFile::block_size(std::int64_t index) const noexcept {
  return std::min(kBlockBytes, record_.bytes - index * kBlockBytes);
}

void CheckedFile::load(std::int64_t index, std::span<std::byte> bytes) const {
  const std::int64_t begin = index * kBlockBytes;
  const std::size_t size = bytes.size();
  inner_->read(begin, bytes);
  const std::uint32_t found = crc32c(bytes);
  const std::uint32_t expected = record_.crcs[index];
  if (found != expected) {
    fail_run(fmt::format("{}: block {} (bytes {} to {}) has CRC-32C {:08x}, the manifest says {:08x}", path_,
                         index, begin, begin + static_cast<std::int64_t>(size), found, expected));
  }
}

std::span<const std::byte> CheckedFile::block(std::int64_t index) const {
  if (cached_ != index) {
    cached_ = -1;
    cache_.resize(block_size(0));
    load(index, std::span(cache_).first(block_size(index)));
    cached_ = index;
  }
  return std::span(cache_).first(block_size(index));
}

void CheckedFile::read(std::int64_t offset, std::span<std::byte> out) const {
  if (offset < 0 || offset > record_.bytes ||
      static_cast<std::int64_t>(out.size()) > record_.bytes - offset) {
    fail_run(fmt::format("{}: bytes {} to {} are outside a file of {}", path_, offset,
                         offset + static_cast<std::int64_t>(out.size()), record_.bytes));
  }
  while (!out.empty()) {
    const std::int64_t index = offset / kBlockBytes;
    const std::size_t skip = offset % kBlockBytes;
    const std::size_t size = std::min(out.size(), block_size(index) - skip);
    if (size == block_size(index) && index != cached_) {
      load(index, out.first(size));
    } else {
      std::memcpy(out.data(), block(index).data() + skip, size);
    }
    out = out.subspan(size);
    offset += static_cast<std::int64_t>(size);
  }
}

void CheckedFile::verify() const {
  for (std::int64_t index = 0; index < block_count(record_.bytes); ++index) block(index);
}

}  // namespace tenon::checkpoint
