// Contract `tokenizer/1`: text to ids of a vocabulary and back. It trains nothing and knows no model; data
// sets that only wrap one offer it as TextCodec. No run names one yet.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Any thread. Pure in options and files.
class Tokenizer {
 public:
  using Interface = Tokenizer;
  static constexpr const char* kKind = "tokenizer/1";
  virtual ~Tokenizer();
  /// Ids are [0, vocabulary()).
  virtual std::int64_t vocabulary() const = 0;
  /// The id that ends a text and stands for none of its bytes; -1 = there is none. encode() never gives it.
  virtual std::int32_t end_of_text() const = 0;
  /// Takes any bytes, UTF-8 or not: decode(encode(text)) is text.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The bytes of the ids one after another, so a part of a text may be no UTF-8. Throws Error(kRun) for an
  /// id outside of the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
