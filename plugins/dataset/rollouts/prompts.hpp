// The prompts of a file of rollouts: one JSON object per line, with a bound of its tokens.
#pragma once

#include <tenon/sdk/outside_training.hpp>
#include <tenon/sdk/prompts.hpp>
#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::rollouts {

/// Reads `path`. `conversations` writes lines with "messages" and may be null. Throws Error(kConfig) as
/// tenon::read_prompts(), for an empty prompt, and for one that has more than `most` tokens.
std::vector<PromptLine> prompts_of(const std::string& path, const Tokenizer& tokenizer,
                                   const ConversationText* conversations, std::int64_t most);

}  // namespace tenon::rollouts
