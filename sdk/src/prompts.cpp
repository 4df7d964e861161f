// Texts between special tokens are encoded each by itself, so that the ids of one do not depend on its
// neighbours.
#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>
#include <tenon/sdk/prompts.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

TENON_ABI_BEGIN

PromptEncoder::~PromptEncoder() = default;

std::string_view token_text(const Tokenizer& tokenizer, std::int32_t id) {
  return id < tokenizer.vocabulary() ? tokenizer.token_bytes(id) : "\xEF\xBF\xBD";
}

std::vector<std::int32_t> encode_with_special(const Tokenizer& tokenizer, std::string_view text,
                                              std::span<const SpecialToken> special) {
  std::vector<std::int32_t> ids;
  std::size_t plain = 0;  // begin of the text that is not encoded yet
  const auto flush = [&](std::size_t end) {
    if (end == plain) return;
    const std::vector<std::int32_t> more = tokenizer.encode(text.substr(plain, end - plain));
    ids.insert(ids.end(), more.begin(), more.end());
  };
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* longest = nullptr;
    for (const SpecialToken& token : special) {
      if (token.text.empty() || !text.substr(at).starts_with(token.text)) continue;
      if (longest == nullptr || token.text.size() > longest->text.size()) longest = &token;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    flush(at);
    ids.push_back(longest->id);
    plain = at += longest->text.size();
  }
  flush(text.size());
  return ids;
}

ThinkingBudget thinking_budget(const Tokenizer& tokenizer, std::int64_t tokens, std::int64_t grace,
                               std::string_view close, const std::string& label) {
  if (close.empty())
    fail_config(fmt::format("{}: the closing tag of the thinking budget is empty, expected a text", label));
  ThinkingBudget budget{tokens, grace, encode_with_special(tokenizer, close, tokenizer.special()), {}};
  const std::string written = tokenizer.decode(budget.close);
  if (written != close)
    fail_config(
        fmt::format("{}: the tokenizer cannot write the closing tag '{}' of the thinking budget: its tokens "
                    "are '{}'; give the tag that the model was trained with",
                    label, close, written));
  for (std::int64_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer.token_bytes(token).ends_with('\n')) budget.newlines.push_back(token);
  }
  return budget;
}

namespace {

void parse_prompt(PromptLine& prompt, std::string_view line, const PromptEncoder& encoder) {
  Value value = parse_json(line, prompt.place);
  const Value* const text = value.find("prompt");
  const bool messages = value.find("messages") != nullptr;
  if (messages && (encoder.has_conversations() || text == nullptr)) {
    prompt.ids = encoder.conversation(value, prompt.place);
    prompt.text = encoder.decode(prompt.ids);
  } else if (text != nullptr && text->is_text()) {
    prompt.text = text->text();
    prompt.ids = encoder.encode(prompt.text, prompt.place);
  } else {
    fail_config(
        fmt::format("{}: expected an object with a text \"prompt\", or with \"messages\"", prompt.place));
  }
  prompt.sample = std::move(value);
}

}  // namespace

std::vector<PromptLine> read_prompts(std::string_view all, const std::string& path, PromptForm form,
                                     const PromptEncoder& encoder) {
  std::vector<PromptLine> prompts;
  std::optional<bool> json;
  if (form == PromptForm::kJsonLines) json = true;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    std::string_view line = all.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    if (!json) json = line[first] == '{';
    PromptLine prompt{fmt::format("{}:{}", path, number), number, {}, {}, std::nullopt};
    if (*json) {
      parse_prompt(prompt, line, encoder);
    } else {
      prompt.text = line;
      prompt.ids = encoder.encode(prompt.text, prompt.place);
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

TENON_ABI_END
