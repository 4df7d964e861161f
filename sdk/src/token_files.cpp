// A file only grows at its end, and the header in front counts the tokens: they go to a file of their own
// first, and are copied once they are counted.
#include <tenon/error.hpp>
#include <tenon/sdk/token_files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

TENON_ABI_BEGIN
namespace {

static_assert(std::endian::native == std::endian::little, "files of tokens are little-endian");

constexpr char kIndexMagic[8] = {'t', 'e', 'n', 'o', 'n', 'd', 'o', 'c'};
constexpr std::uint32_t kIndexVersion = 1;
constexpr std::size_t kDigestCharacters = 64;
constexpr std::size_t kTokensAtOnce = std::size_t{1} << 20;  // bytes
constexpr std::int64_t kMostTokensOfAFile = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestIndex = std::int64_t{1} << 35;

/// Everything before the documents. Without padding.
struct IndexHead {
  char magic[8] = {};
  std::uint32_t version = kIndexVersion, unused = 0;
  char tokenizer[kDigestCharacters] = {};
  std::int64_t vocabulary = 0, tokens = 0, documents = 0;
};
static_assert(sizeof(IndexHead) == 104);

std::vector<std::byte> bytes_of(const DocumentIndex& index) {
  IndexHead head;
  std::memcpy(head.magic, kIndexMagic, sizeof kIndexMagic);
  index.tokenizer.copy(head.tokenizer, kDigestCharacters);
  head.vocabulary = index.vocabulary;
  head.tokens = index.tokens;
  head.documents = static_cast<std::int64_t>(index.first.size());
  const auto first = std::as_bytes(std::span(index.first));
  std::vector<std::byte> bytes(sizeof head + first.size() + sizeof(std::uint32_t));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::ranges::copy(first, bytes.begin() + sizeof head);
  const std::uint32_t crc = crc32c(std::span(bytes).first(bytes.size() - sizeof crc));
  std::memcpy(bytes.data() + bytes.size() - sizeof crc, &crc, sizeof crc);
  return bytes;
}

bool is_digest(std::string_view text) {
  return text.size() == kDigestCharacters &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string document_index_path(const std::string& token_file) {
  return token_file + ".documents";
}

DocumentIndex read_document_index(FileSystem& files, const std::string& path) {
  const std::string label = fmt::format("document index '{}'", path);
  std::string content;
  try {
    content = read_text(files, path, kLargestIndex);
  } catch (const FileError& error) {
    fail_config(fmt::format("{}: {}", label, error.what()));
  }
  return parse_document_index(std::as_bytes(std::span(content)), label);
}

DocumentIndex parse_document_index(std::span<const std::byte> bytes, const std::string& label) {
  const auto refuse = [&](const std::string& why) { fail_config(fmt::format("{}: {}", label, why)); };
  IndexHead head;
  constexpr std::size_t kLeast = sizeof head + sizeof(std::int64_t) + sizeof(std::uint32_t);
  if (bytes.size() < kLeast)
    refuse(fmt::format("expected at least {} bytes, found {}; the file is cut off", kLeast, bytes.size()));
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, kIndexMagic, sizeof kIndexMagic) != 0)
    refuse("expected the magic text 'tenondoc' of an index of documents, found other bytes");
  if (head.version != kIndexVersion || head.unused != 0)
    refuse(fmt::format("expected version {}, found {}; write the tokens again", kIndexVersion, head.version));
  const std::size_t held = (bytes.size() - sizeof head - sizeof(std::uint32_t)) / sizeof(std::int64_t);
  const std::size_t expected = sizeof head + held * sizeof(std::int64_t) + sizeof(std::uint32_t);
  if (head.documents != static_cast<std::int64_t>(held) || bytes.size() != expected)
    refuse(
        fmt::format("its {} bytes do not hold the {} documents that it counts; the file is cut off, or "
                    "longer than it says",
                    bytes.size(), head.documents));
  std::uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof crc, sizeof crc);
  const std::uint32_t found = crc32c(bytes.first(bytes.size() - sizeof crc));
  if (crc != found)
    refuse(
        fmt::format("expected the CRC-32C {:08x} of its bytes, found {:08x}; the file is damaged: write the "
                    "tokens again",
                    found, crc));
  DocumentIndex index{std::string(head.tokenizer, kDigestCharacters), head.vocabulary, head.tokens, {}};
  if (!is_digest(index.tokenizer))
    refuse("expected the digest of a tokenizer in lower-case hexadecimal, found other characters");
  constexpr std::int64_t kLargestVocabulary = std::numeric_limits<std::int32_t>::max();
  if (index.vocabulary < 1 || index.vocabulary > kLargestVocabulary)
    refuse(fmt::format("expected a vocabulary of 1 to {} tokens, found {}", kLargestVocabulary,
                       index.vocabulary));
  if (index.tokens < 1 || index.tokens > kMostTokensOfAFile)
    refuse(fmt::format("expected 1 to {} tokens, found {}", kMostTokensOfAFile, index.tokens));
  index.first.resize(held);
  std::memcpy(index.first.data(), bytes.data() + sizeof head, held * sizeof(std::int64_t));
  if (index.first[0] != 0)
    refuse(fmt::format("expected the first document to begin at token 0, found {}", index.first[0]));
  for (std::size_t i = 1; i < held; ++i) {
    if (index.first[i] <= index.first[i - 1] || index.first[i] >= index.tokens)
      refuse(
          fmt::format("document {} begins at token {}: expected a token after {}, where the one before it "
                      "begins, of {} tokens",
                      i, index.first[i], index.first[i - 1], index.tokens));
  }
  return index;
}

TokenFileWriter::TokenFileWriter(FileSystem& files, std::string path, const Tokenizer& tokenizer)
    : files_(files),
      path_(std::move(path)),
      end_of_text_(tokenizer.end_of_text()),
      index_{std::string(tokenizer.digest()), tokenizer.vocabulary(), 0, {}},
      width_(index_.vocabulary <= 65536 ? 2 : 4) {
  if (!is_digest(index_.tokenizer))
    fail_plugin(fmt::format("the digest of the tokenizer is '{}': expected SHA-256 in lower-case hexadecimal",
                            index_.tokenizer));
  buffer_.reserve(kTokensAtOnce);
  body_ = files_.create(path_ + ".body.tmp");
}

TokenFileWriter::~TokenFileWriter() {
  if (!finished_) remove_temporaries();
}

void TokenFileWriter::remove_temporaries() noexcept {
  body_.reset();
  for (const std::string& name : {path_ + ".body.tmp", path_ + ".tmp", document_index_path(path_) + ".tmp"}) {
    try {
      remove_tree(files_, name);
    } catch (const FileError&) {  // what cannot be removed stays, and no name says that it is whole
    }
  }
}

void TokenFileWriter::append(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) write(id);
}

void TokenFileWriter::write(std::int32_t id) {
  if (id < 0 || id >= index_.vocabulary)
    fail_run(fmt::format("token file '{}': token {} at position {} is outside of the vocabulary of {}", path_,
                         id, index_.tokens, index_.vocabulary));
  if (index_.tokens == kMostTokensOfAFile)
    fail_config(fmt::format(
        "token file '{}': its header counts at most {} tokens, and the texts have more; write several files",
        path_, kMostTokensOfAFile));
  if (!open_) index_.first.push_back(index_.tokens);
  open_ = true;
  ++index_.tokens;
  const auto wide = static_cast<std::uint32_t>(id);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&wide);
  buffer_.insert(buffer_.end(), bytes, bytes + width_);
  if (buffer_.size() >= kTokensAtOnce) flush();
}

void TokenFileWriter::flush() {
  body_->append(buffer_);
  buffer_.clear();
}

void TokenFileWriter::append_document(const TextDocument& document, const Tokenizer& tokenizer) {
  const std::size_t separator = end_of_text_ < 0 ? document.separator.size() : 0;
  append(tokenizer.encode({document.text.data(), document.text.size() + separator}));
  end_document();
}

void TokenFileWriter::end_document() {
  if (open_ && end_of_text_ >= 0) write(end_of_text_);
  open_ = false;
}

void TokenFileWriter::finish() {
  if (index_.tokens == 0) fail_config(fmt::format("token file '{}': the texts hold no token", path_));
  flush();
  body_->close();
  write_whole();
  const std::string index = document_index_path(path_);
  const std::unique_ptr<WritableFile> out = files_.create(index + ".tmp");
  out->append(bytes_of(index_));
  out->sync();
  out->close();
  // Between the renames the tokens have no index rather than that of other tokens.
  if (files_.exists(index)) files_.remove(index);
  files_.rename(path_ + ".tmp", path_);
  files_.rename(index + ".tmp", index);
  files_.sync_directory(parent_path(path_));
  remove_temporaries();
  finished_ = true;
}

void TokenFileWriter::write_whole() const {
  std::array<std::int32_t, 256> header{};
  header[0] = width_ == 2 ? 20240520 : 20240801;
  header[1] = width_ == 2 ? 1 : 7;
  header[2] = static_cast<std::int32_t>(index_.tokens);
  const std::unique_ptr<WritableFile> out = files_.create(path_ + ".tmp");
  out->append(std::as_bytes(std::span(header)));
  const std::unique_ptr<ReadableFile> body = files_.open(path_ + ".body.tmp");
  std::vector<std::byte> piece(kTokensAtOnce);
  for (std::int64_t done = 0; done < body->size();) {
    const auto now = std::span(piece).first(
        static_cast<std::size_t>(std::min(body->size() - done, static_cast<std::int64_t>(piece.size()))));
    body->read(done, now);
    out->append(now);
    done += static_cast<std::int64_t>(now.size());
  }
  out->sync();
  out->close();
}

TENON_ABI_END
