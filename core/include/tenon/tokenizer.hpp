// Contract `tokenizer/1`: text to ids of a vocabulary and back. Data sets, `tenon tokenize` and `tenon
// generate` use it; no model knows it.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// A token that stands for no bytes of a text: the end of a text, the begin of a role.
struct SpecialToken {
  std::string text;
  std::int32_t id = -1;
};

/// Any thread. Pure in options and files.
class Tokenizer {
 public:
  using Interface = Tokenizer;
  static constexpr const char* kKind = "tokenizer/1";
  virtual ~Tokenizer();
  /// Ids are [0, vocabulary()). Some of them may stand for nothing.
  virtual std::int64_t vocabulary() const = 0;
  /// The special token that ends a text; -1 = there is none.
  virtual std::int32_t end_of_text() const = 0;
  /// Ascending by id.
  virtual std::span<const SpecialToken> special() const = 0;
  /// What decode() gives for the token alone: the text of a special one, nothing for an id without a token.
  /// Valid as long as the tokenizer. Throws Error(kRun) for an id outside of the vocabulary.
  virtual std::string_view token_bytes(std::int32_t id) const = 0;
  /// SHA-256, in hexadecimal, of all that decides which ids a text has: equal digests are one tokenizer.
  virtual std::string_view digest() const = 0;
  /// Takes any bytes, UTF-8 or not: decode(encode(text)) is text. Never gives a special token: their texts
  /// are text here, and who wants one writes its id.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The bytes of the ids one after another, so a part of a text may be no UTF-8. Throws Error(kRun) for an
  /// id outside of the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Offered by tokenizers that other programs can read ("tenon.tokenizer.file/1"): `tenon export` writes the
/// file beside the weights.
class TokenizerFile {
 public:
  static constexpr const char* kId = "tenon.tokenizer.file/1";
  virtual ~TokenizerFile();
  virtual std::string_view name() const = 0;  ///< without folder: "tokenizer.json"
  virtual std::string text() const = 0;
};

/// What training may choose.
struct TokenizerTarget {
  std::int64_t vocabulary = 0;       ///< tokens, the special ones among them
  std::vector<std::string> special;  ///< texts; the first one ends a text
};

/// Offered by tokenizers that are learned from text ("tenon.tokenizer.training/1").
class TokenizerTraining {
 public:
  static constexpr const char* kId = "tenon.tokenizer.training/1";
  virtual ~TokenizerTraining();
  /// The file of a tokenizer of this type, with the options of this one, that was learned from `texts`: equal
  /// bytes for equal arguments. Throws Error(kRun) where the texts do not hold enough for the target.
  virtual std::string train(std::span<const std::string_view> texts, const TokenizerTarget& target) const = 0;
};

TENON_ABI_END
