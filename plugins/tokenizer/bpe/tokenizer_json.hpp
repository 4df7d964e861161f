// tokenizer.json of Hugging Face: the subset that byte-level BPE needs, as GPT-2, Llama 3 and phi-4 have it.
// What the file says is checked here as far as it can be without the rest; Encoder checks how tokens and
// merges fit together.
#pragma once

#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::bpe {

/// The largest file that is read, and the largest number of ids.
inline constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 22;

/// Two tokens that become one. Earlier merges come first.
struct Merge {
  std::int32_t left = -1, right = -1, result = -1;
  friend bool operator==(const Merge&, const Merge&) = default;
};

/// A byte-level BPE tokenizer.
struct Description {
  std::vector<std::string> tokens;  ///< bytes by id; the text of a special token; "": no token has this id
  std::vector<Merge> merges;
  std::vector<SpecialToken> special;  ///< ascending by id
  std::string pattern;                ///< see Splitter
  bool ignore_merges = false;         ///< a piece that is a token is that token, whatever its merges give
};

/// `label` begins messages. Throws Error(kConfig): text that is cut off or no JSON, a duplicate key, a merge
/// of unknown tokens, two tokens of equal bytes, ids with too many gaps, a byte without a token, and every
/// setting that this subset does not have, with its place in the file and its value.
Description read_tokenizer_json(std::string_view text, const std::string& label);

/// The text of the file: equal bytes for equal descriptions. Special tokens are outside of the model's
/// vocabulary.
std::string write_tokenizer_json(const Description& description);

}  // namespace tenon::bpe
