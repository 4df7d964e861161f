// A sample has to hold the whole prompt, so one that is too long is an error and is not shortened.
#include "prompts.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

namespace tenon::rollouts {
namespace {

constexpr std::int64_t kLargestPrompts = std::int64_t{1} << 32;

class Encoder final : public PromptEncoder {
 public:
  Encoder(const Tokenizer& tokenizer, const ConversationText* conversations)
      : tokenizer_(tokenizer), conversations_(conversations) {}

  std::vector<std::int32_t> encode(const std::string& text, const std::string&) const override {
    return tokenizer_.encode(text);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return tokenizer_.decode(ids); }
  bool has_conversations() const override { return conversations_ != nullptr; }
  std::vector<std::int32_t> conversation(const Value& line, const std::string& place) const override {
    if (conversations_ != nullptr) return conversations_->prompt(line);
    fail_config(
        fmt::format("{}: the line has \"messages\", which [data.conversations] writes as tokens, and "
                    "there is no such table; add it, or give the line a \"prompt\"",
                    place));
  }

 private:
  const Tokenizer& tokenizer_;
  const ConversationText* conversations_;
};

}  // namespace

std::vector<PromptLine> prompts_of(const std::string& path, const Tokenizer& tokenizer,
                                   const ConversationText* conversations, std::int64_t most) {
  const std::string all = read_text(*make_posix_files(), path, kLargestPrompts);
  std::vector<PromptLine> prompts =
      read_prompts(all, path, PromptForm::kJsonLines, Encoder(tokenizer, conversations));
  for (const PromptLine& prompt : prompts) {
    if (prompt.ids.empty()) fail_config(fmt::format("{}: the prompt has no token", prompt.place));
    const auto count = static_cast<std::int64_t>(prompt.ids.size());
    if (count > most)
      fail_config(
          fmt::format("{}: the prompt has {} tokens, and data.context = {} leaves no room for an answer to "
                      "more than {}; raise data.context, or leave the line out",
                      prompt.place, count, most, most));
  }
  if (prompts.empty()) fail_config(fmt::format("data.rollouts: '{}' has no prompt", path));
  return prompts;
}

}  // namespace tenon::rollouts
