#include "prompts.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>

#include <fmt/format.h>

#include <fstream>

namespace tenon::rollouts {
namespace {

std::vector<std::int32_t> ids_of(const Value& line, const Tokenizer& tokenizer,
                                 const ConversationText* conversations, const std::string& place) {
  if (line.find("messages") != nullptr) {
    if (conversations == nullptr)
      fail_config(
          fmt::format("{}: the line has \"messages\", which [data.conversations] writes as tokens, and "
                      "there is no such table; add it, or give the line a \"prompt\"",
                      place));
    return conversations->prompt(line);
  }
  const Value* const text = line.find("prompt");
  if (text == nullptr || !text->is_text())
    fail_config(fmt::format("{}: expected an object with a text \"prompt\", or with \"messages\"", place));
  return tokenizer.encode(text->text());
}

}  // namespace

std::vector<Prompt> read_prompts(const std::string& path, const Tokenizer& tokenizer,
                                 const ConversationText* conversations, std::int64_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_config(fmt::format("data.rollouts: cannot open '{}'", path));
  std::vector<Prompt> prompts;
  std::string text;
  for (std::int64_t line = 1; std::getline(in, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, line);
    Prompt prompt{line, {}, {}, parse_json(text, place)};
    prompt.ids = ids_of(prompt.sample, tokenizer, conversations, place);
    if (prompt.ids.empty()) fail_config(fmt::format("{}: the prompt has no token", place));
    const auto count = static_cast<std::int64_t>(prompt.ids.size());
    if (count > most)
      fail_config(
          fmt::format("{}: the prompt has {} tokens, and data.context = {} leaves no room for an answer to "
                      "more than {}; raise data.context, or leave the line out",
                      place, count, most, most));
    prompt.text = tokenizer.decode(prompt.ids);
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) fail_config(fmt::format("data.rollouts: '{}' has no prompt", path));
  return prompts;
}

}  // namespace tenon::rollouts
