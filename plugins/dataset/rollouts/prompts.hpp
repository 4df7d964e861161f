// The prompts of a file of rollouts: one JSON object per line.
#pragma once

#include <tenon/config.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::rollouts {

struct Prompt {
  std::int64_t line = 0;  ///< of the file, from 1
  std::vector<std::int32_t> ids;
  std::string text;
  Value sample;  ///< the line
};

/// Reads `path`: every line that is not empty. `conversations` writes lines with "messages" and may be null.
/// Throws Error(kConfig) with the line for one that is no prompt, for an empty prompt, and for one that has
/// more than `most` tokens.
std::vector<Prompt> read_prompts(const std::string& path, const Tokenizer& tokenizer,
                                 const ConversationText* conversations, std::int64_t most);

}  // namespace tenon::rollouts
