// Tokenizer `sentencepiece`: a .model with byte fallback, by libsentencepiece. What the library would change
// in a text is switched off, and text that it cannot give back is written as bytes, so any bytes come back.
// It does not learn.
#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/plugin.hpp>
#include <tenon/tokenizer.hpp>

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <optional>

namespace tenon::sentence {
namespace {

constexpr std::int64_t kLargestModel = std::int64_t{256} << 20;
constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which stands for a space in pieces

/// The first unread field of a protobuf message: its number and, if it has a length, its bytes.
struct Field {
  std::uint64_t number = 0;
  std::string_view bytes;
};

std::optional<std::uint64_t> take_varint(std::string_view& message) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Nothing at the end, or where the bytes are no message.
std::optional<Field> take_field(std::string_view& message) {
  const auto key = take_varint(message);
  if (!key) return std::nullopt;
  Field field{*key >> 3, {}};
  std::uint64_t length = 0;
  switch (*key & 7) {
    case 0:
      return take_varint(message) ? std::optional(field) : std::nullopt;
    case 1:
      length = 8;
      break;
    case 2: {
      const auto found = take_varint(message);
      if (!found) return std::nullopt;
      length = *found;
      break;
    }
    case 5:
      length = 4;
      break;
    default:
      return std::nullopt;
  }
  if (length > message.size()) return std::nullopt;
  field.bytes = message.substr(0, length);
  message.remove_prefix(length);
  return field;
}

/// Whether a model has rules that change characters before pieces are found.
bool changes_characters(std::string_view model) {
  constexpr std::uint64_t kNormalizer = 3, kCharacterMap = 2;
  while (const auto field = take_field(model)) {
    if (field->number != kNormalizer) continue;
    std::string_view normalizer = field->bytes;
    while (const auto inner = take_field(normalizer))
      if (inner->number == kCharacterMap && !inner->bytes.empty()) return true;
  }
  return false;
}

/// Bytes of the valid UTF-8 character at the front, 0 if there is none.
std::size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
      (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F))
    return 0;
  return length;
}

}  // namespace

class SentencePiece final : public Tokenizer, public TokenizerFile {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::path("file", nullptr).mandatory().doc_text("the .model, of a vocabulary with byte fallback"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "sentencepiece", .summary = "a model of SentencePiece with byte fallback", .options = kOptions};

  explicit SentencePiece(const Options& options) {
    const std::string path(options.text("file"));
    try {
      file_ = read_text(*make_posix_files(), path, kLargestModel);
    } catch (const FileError& error) {
      fail_config(fmt::format("tokenizer file '{}': {}", path, error.what()));
    }
    if (changes_characters(file_))
      fail_config(fmt::format(
          "tokenizer file '{}': normalizer_spec changes characters (precompiled_charsmap), so text would "
          "not come back; train the model with --normalization_rule_name=identity",
          path));
    // Later values replace earlier ones: normalizer_spec {add_dummy_prefix: false, remove_extra_whitespaces:
    // false}.
    const std::string model = file_ + std::string("\x1A\x04\x18\x00\x20\x00", 6);
    if (const auto status = processor_.LoadFromSerializedProto(model); !status.ok())
      fail_config(
          fmt::format("tokenizer file '{}' is no model of SentencePiece: {}", path, status.ToString()));
    read_pieces(path);
    digest_ = sha256_of(std::as_bytes(std::span(file_)));
  }

  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int32_t end_of_text() const override { return end_of_text_; }
  std::span<const SpecialToken> special() const override { return special_; }
  std::string_view token_bytes(std::int32_t id) const override {
    if (id < 0 || id >= vocabulary())
      fail_run(fmt::format("token {} is outside of the vocabulary: expected 0 to {}", id, vocabulary() - 1));
    return tokens_[static_cast<std::size_t>(id)];
  }
  std::string_view digest() const override { return digest_; }

  /// Runs of valid characters other than U+2581 go through the library; all other bytes are tokens of their
  /// own.
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    while (!text.empty()) {
      std::size_t run = 0;
      while (run < text.size()) {
        const std::string_view rest = text.substr(run);
        const std::size_t length = rest.starts_with(kSpace) ? 0 : character_length(rest);
        if (length == 0) break;
        run += length;
      }
      append_run(text.substr(0, run), ids);
      text.remove_prefix(run);
      if (text.empty()) break;
      const std::size_t apart = text.starts_with(kSpace) ? kSpace.size() : 1;
      append_bytes(text.substr(0, apart), ids);
      text.remove_prefix(apart);
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += token_bytes(id);
    return text;
  }
  void* query(std::string_view interface_id) override {
    return interface_id == TokenizerFile::kId ? static_cast<TokenizerFile*>(this) : nullptr;
  }
  std::string_view name() const override { return "tokenizer.model"; }
  std::string text() const override { return file_; }

 private:
  void read_pieces(const std::string& path) {
    of_byte_.fill(-1);
    const int count = processor_.GetPieceSize();
    for (int id = 0; id < count; ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      std::string bytes;
      if (processor_.IsByte(id)) {  // "<0x0A>"
        const int byte = std::stoi(piece.substr(3, 2), nullptr, 16);
        bytes = static_cast<char>(byte);
        of_byte_[static_cast<std::size_t>(byte)] = id;
      } else if (processor_.IsControl(id) || processor_.IsUnknown(id)) {
        bytes = piece;
        special_.push_back({piece, id});
      } else if (!processor_.IsUnused(id)) {
        for (std::size_t at = 0; at < piece.size();) {
          const bool space = std::string_view(piece).substr(at).starts_with(kSpace);
          bytes += space ? ' ' : piece[at];
          at += space ? kSpace.size() : 1;
        }
      }
      tokens_.push_back(std::move(bytes));
    }
    if (std::ranges::find(of_byte_, -1) != of_byte_.end())
      fail_config(fmt::format(
          "tokenizer file '{}': the model has no byte fallback, so text that it does not know would not "
          "come back; train it with --byte_fallback",
          path));
    end_of_text_ = processor_.eos_id();
  }
  void append_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
    for (const char byte : text) ids.push_back(of_byte_[static_cast<unsigned char>(byte)]);
  }
  void append_run(std::string_view run, std::vector<std::int32_t>& ids) const {
    if (run.empty()) return;
    std::vector<int> found;
    const auto status = processor_.Encode(run, &found);
    if (!status.ok()) fail_run(fmt::format("tokenizer sentencepiece: {}", status.ToString()));
    const auto is_special = [&](int id) { return processor_.IsControl(id) || processor_.IsUnknown(id); };
    if (std::ranges::any_of(found, is_special) || decode(found) != run)
      append_bytes(run, ids);
    else
      ids.insert(ids.end(), found.begin(), found.end());
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::string file_;
  std::vector<std::string> tokens_;  // bytes by id
  std::vector<SpecialToken> special_;
  std::array<std::int32_t, 256> of_byte_;
  std::int32_t end_of_text_ = -1;
  std::string digest_;
};

}  // namespace tenon::sentence

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tokenizer_sentencepiece",
                               .version = "0.1.0",
                               .summary = "models of SentencePiece with byte fallback"},
             tenon::sentence::SentencePiece)
