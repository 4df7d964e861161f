// Prompts and answers of language models as tokens: files with a prompt per line, texts that hold special
// tokens, and the closing tag of a thinking budget. `tenon generate` and data sets of answers share them.
#pragma once

#include <tenon/abi.hpp>
#include <tenon/config.hpp>
#include <tenon/generator.hpp>
#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// The bytes of a token among others; U+FFFD for an id that the tokenizer does not have, since a model may
/// tell apart more tokens.
std::string_view token_text(const Tokenizer& tokenizer, std::int32_t id);

/// Ids of a text in which the texts of `special` are these tokens: the longest that begins at a place.
std::vector<std::int32_t> encode_with_special(const Tokenizer& tokenizer, std::string_view text,
                                              std::span<const SpecialToken> special);

/// `close`: text of the closing tag, which may hold special tokens. Newlines are the tokens whose text ends
/// with a line feed. Throws Error(kConfig), which begins with `label`, for a tag that is empty or that the
/// tokenizer cannot write.
ThinkingBudget thinking_budget(const Tokenizer& tokenizer, std::int64_t tokens, std::int64_t grace,
                               std::string_view close, const std::string& label);

/// A prompt and the line that it comes from.
struct PromptLine {
  std::string place;      ///< "FILE:3"
  std::int64_t line = 1;  ///< of the file, from 1
  std::string text;
  std::vector<std::int32_t> ids;
  std::optional<Value> sample;  ///< the JSON object
};

/// Makes tokens of prompts. Errors of its functions are expected to name `place`.
class PromptEncoder {
 public:
  virtual ~PromptEncoder();
  virtual std::vector<std::int32_t> encode(const std::string& text, const std::string& place) const = 0;
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Whether a line with "messages" is a conversation.
  virtual bool has_conversations() const = 0;
  /// `line`: a table with "messages". Throws Error(kConfig) where there are no conversations.
  virtual std::vector<std::int32_t> conversation(const Value& line, const std::string& place) const = 0;
};

enum class PromptForm : std::uint8_t {
  kJsonLines,  ///< an object per line, with "prompt" or "messages"
  kEither,     ///< so if the first line with text begins with a brace, else a text per line
};

/// The prompts of `all`, the text of a file; lines of blanks are left out. A line with "messages" is a
/// conversation where the encoder has them, else "prompt" is a text. `path` begins places. Throws
/// Error(kConfig) with the place for a line that is no prompt.
std::vector<PromptLine> read_prompts(std::string_view all, const std::string& path, PromptForm form,
                                     const PromptEncoder& encoder);

TENON_ABI_END
