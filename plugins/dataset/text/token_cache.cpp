// Three files: tokens, index, and last PATH.source, with the identity of the source (size and time of
// change), its SHA-256, the counts, and a CRC. Where that one is there, the others are complete.
#include "token_cache.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>

namespace tenon::text {
namespace {

constexpr char kSourceMagic[8] = {'t', 'e', 'n', 'o', 'n', 't', 'x', 't'};
constexpr std::uint32_t kSourceVersion = 1;

struct SourceRecord {
  char magic[8] = {};
  std::uint32_t version = kSourceVersion;
  std::uint32_t crc = 0;  ///< of everything after it
  FileIdentity source;
  std::int64_t documents = 0, empty = 0, lines = 0, bad = 0;
  char sha256[64] = {};
  char first_bad[256] = {};
};
static_assert(std::is_trivially_copyable_v<SourceRecord> && sizeof(SourceRecord) == 384);

std::span<const std::byte> checked_part(const SourceRecord& record) {
  return std::as_bytes(std::span(&record, 1)).subspan(offsetof(SourceRecord, source));
}

/// Everything that decides the tokens but the text. Another share of bad lines gives the same ones.
std::string recipe(const Tokenizer& tokenizer, const DocumentRule& rule) {
  return fmt::format("\n{}\n{}\n{}\n{}\n{}", tokenizer.digest(), static_cast<int>(rule.form), rule.line,
                     static_cast<int>(rule.byte), rule.key);
}

}  // namespace

TokenCache::TokenCache(const TokenCacheSpec& spec, std::string_view content, const Tokenizer& tokenizer,
                       Host& host)
    : spec_(spec),
      tokenizer_(tokenizer),
      files_(make_posix_files()),
      path_(packed_path(spec.source, spec.folder, recipe(tokenizer, spec.rule), "tokens.bin")) {
  open_packed(
      *files_,
      {.owner = spec_.owner,
       .source = spec_.source,
       .path = path_,
       .growing = path_ + ".body.tmp",
       .held = "its tokens, 2 or 4 bytes each",
       .deadline = host.deadline(),
       .bytes_per_second = 1e6},  // of a text that is encoded as one document, the slowest tokenizers do more
      [&](const FileIdentity& identity) { return open(identity); },
      [&](const FileIdentity& identity) { encode(content, identity, host); });
  check_bad_lines(counts_, spec_.rule, fmt::format("data file '{}'", spec_.source));
}

bool TokenCache::open(const FileIdentity& source) {
  const std::string path = path_ + ".source";
  if (!files_->exists(path)) return false;
  try {
    const std::unique_ptr<ReadableFile> file = files_->open(path);
    SourceRecord record;
    if (file->size() != sizeof record) return false;
    file->read(0, std::as_writable_bytes(std::span(&record, 1)));
    if (std::memcmp(record.magic, kSourceMagic, sizeof kSourceMagic) != 0 ||
        record.version != kSourceVersion || record.crc != crc32c(checked_part(record)) ||
        record.source != source)
      return false;
    index_ = read_document_index(*files_, document_index_path(path_));
    const std::int64_t width = index_.vocabulary <= 65536 ? 2 : 4;
    if (index_.tokenizer != tokenizer_.digest() ||
        files_->open(path_)->size() != 1024 + width * index_.tokens)
      return false;
    counts_ = {record.documents, record.empty, record.lines, record.bad,
               std::string(record.first_bad, strnlen(record.first_bad, sizeof record.first_bad))};
    sha256_.assign(record.sha256, sizeof record.sha256);
    return true;
  } catch (const Error&) {
    return false;  // an unreadable file counts as absent and is made again
  }
}

void TokenCache::encode(std::string_view content, const FileIdentity& source, Host& host) {
  host.log(LogLevel::kInfo, fmt::format("{}: encoding the {} bytes of '{}' into '{}'", spec_.owner,
                                        content.size(), spec_.source, path_));
  const std::string record_path = path_ + ".source";
  if (files_->exists(record_path)) files_->remove(record_path);
  TokenFileWriter writer(*files_, path_, tokenizer_);
  counts_ = for_each_document(content, spec_.rule, fmt::format("data file '{}'", spec_.source),
                              [&](const TextDocument& document) {
                                if (spec_.rule.form == DocumentForm::kWhole) {
                                  writer.append(tokenizer_.encode(document.text));
                                } else {
                                  writer.append_document(document, tokenizer_);
                                }
                              });
  writer.finish();
  SourceRecord record;
  std::memcpy(record.magic, kSourceMagic, sizeof kSourceMagic);
  record.source = source;
  record.documents = counts_.documents;
  record.empty = counts_.empty;
  record.lines = counts_.lines;
  record.bad = counts_.bad;
  counts_.first_bad.copy(record.first_bad, sizeof record.first_bad);
  sha256_of(std::as_bytes(std::span(content))).copy(record.sha256, sizeof record.sha256);
  record.crc = crc32c(checked_part(record));
  const std::string_view bytes(reinterpret_cast<const char*>(&record), sizeof record);
  files_->write_text_atomically(record_path, bytes);
  host.log(LogLevel::kInfo, fmt::format("{}: '{}' has {} tokens in {} documents", spec_.owner, spec_.source,
                                        writer.tokens(), writer.documents()));
}

}  // namespace tenon::text
