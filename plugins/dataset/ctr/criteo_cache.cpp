// Layout: the rows, then a page with the identity of the source (size and time of change), its SHA-256, the
// counts, and a CRC. The file is written under another name and renamed once it is durable, so a file with
// the right name is complete.
#include "criteo_cache.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::ctr {
namespace {

constexpr char kMagic[8] = {'t', 'e', 'n', 'o', 'n', 'c', 't', 'r'};
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kFooterBytes = 4096;
constexpr std::size_t kCopiedAtOnce = 8192;
constexpr std::int64_t kRowBytes = sizeof(CriteoRow);

struct Footer {
  char magic[8] = {};
  std::uint32_t version = kVersion;
  std::int32_t smallest = 0;
  std::int64_t source_size = 0, source_changed_ns = 0, rows = 0;
  char sha256[64] = {};
  FaultCounts faults;
  std::uint32_t crc = 0;  ///< of everything before it
  std::uint32_t unused = 0;
};
static_assert(std::is_trivially_copyable_v<Footer> && sizeof(Footer) <= kFooterBytes);

std::span<const std::byte> checked_part(const Footer& footer) {
  return std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, crc));
}

}  // namespace

CriteoCache::CriteoCache(const std::string& source, const std::string& folder, double deadline)
    : files_(make_posix_files()), path_(packed_path(source, folder, "", "rows")) {
  open_packed(
      *files_,
      {.owner = "data.criteo",
       .source = source,
       .path = path_,
       .growing = path_ + ".tmp",
       .held = "its packed rows, 160 bytes each",
       .deadline = deadline},
      [&](const FileIdentity& identity) { return open(identity); },
      [&](const FileIdentity& identity) { pack(source, identity); });
}

bool CriteoCache::open(const FileIdentity& source) {
  if (!files_->exists(path_)) return false;
  try {
    file_ = files_->open(path_);
    if (file_->size() < kFooterBytes) return false;
    Footer footer;
    file_->read(file_->size() - kFooterBytes, std::as_writable_bytes(std::span(&footer, 1)));
    if (std::memcmp(footer.magic, kMagic, sizeof kMagic) != 0 || footer.version != kVersion ||
        footer.crc != crc32c(checked_part(footer)) || footer.source_size != source.size ||
        footer.source_changed_ns != source.changed_ns ||
        file_->size() != kFooterBytes + footer.rows * kRowBytes) {
      return false;
    }
    rows_ = footer.rows;
    faults_ = footer.faults;
    smallest_ = footer.smallest;
    sha256_.assign(footer.sha256, sizeof footer.sha256);
    return true;
  } catch (const FileError&) {
    return false;  // an unreadable file counts as absent and is rebuilt
  }
}

void CriteoCache::pack(const std::string& source, const FileIdentity& identity) {
  Footer footer;
  std::memcpy(footer.magic, kMagic, sizeof kMagic);
  footer.source_size = identity.size;
  footer.source_changed_ns = identity.changed_ns;
  CriteoReader reader(source);
  const std::string temporary = path_ + ".tmp";
  const std::unique_ptr<WritableFile> out = files_->create(temporary);
  std::vector<CriteoRow> rows(kCopiedAtOnce);
  while (const std::size_t count = reader.read(rows)) {
    const auto now = std::span(rows).first(count);
    for (const CriteoRow& row : now) {
      for (const std::int32_t number : row.numbers) {
        footer.smallest = std::min(footer.smallest, number == kMissingNumber ? 0 : number);
      }
    }
    out->append(std::as_bytes(now));
    footer.rows += static_cast<std::int64_t>(count);
  }
  footer.faults = reader.faults();
  sha256_of_file(*files_, source).copy(footer.sha256, sizeof footer.sha256);
  footer.crc = crc32c(checked_part(footer));
  std::vector<std::byte> page(kFooterBytes, std::byte{0});
  std::memcpy(page.data(), &footer, sizeof footer);
  out->append(page);
  out->sync();
  out->close();
  files_->rename(temporary, path_);
  files_->sync_directory(parent_path(path_));
}

void CriteoCache::read(std::int64_t row, std::span<CriteoRow> out) const {
  file_->read(row * kRowBytes, std::as_writable_bytes(out));
}

}  // namespace tenon::ctr
