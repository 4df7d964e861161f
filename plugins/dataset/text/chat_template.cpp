// Texts of the template are encoded once. Each of them and each message is encoded by itself, so that an
// answer has the same ids whatever is before it, in training and in generation.
#include "chat_template.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/prompts.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tenon::text {

ChatTemplate::ChatTemplate(const std::string& owner, const Options& options, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer) {
  std::vector<SpecialToken> special;  // that the template's texts may hold
  for (const std::string_view name : options.texts("special")) {
    const std::span<const SpecialToken> known = tokenizer.special();
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const SpecialToken& token) { return token.text == name; });
    if (found == known.end()) {
      std::vector<std::string> texts;
      for (const SpecialToken& token : known) texts.push_back(fmt::format("'{}'", token.text));
      fail_config(fmt::format("{}: special: the tokenizer has no special token '{}'; it has {}", owner, name,
                              texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "))));
    }
    special.push_back(*found);
  }
  const auto encode = [&](std::string_view text) { return encode_with_special(tokenizer, text, special); };
  for (const std::string_view name : options.section_names("template")) {
    const Options& role = options.section("template", name);
    roles_.push_back({std::string(name), encode(role.text("before")), encode(role.text("after"))});
  }
  const std::string_view answer = options.text("answer_role");
  const Role* const found = find(answer);
  if (found == nullptr) {
    fail_config(
        fmt::format("{}: the table [data.template.{}] is missing; it says what is before and after an answer "
                    "(role '{}', option 'answer_role')",
                    owner, answer, answer));
  }
  answer_ = static_cast<std::size_t>(found - roles_.data());
  for (const std::string_view name : options.section_names("template")) {
    const Options& role = options.section("template", name);
    if (!role.has("text")) continue;
    if (opening_ != nullptr || name == answer) {
      fail_config(
          fmt::format("{}: template.{}: 'text' begins a conversation; expected at one role, which is "
                      "not that of answers",
                      owner, name));
    }
    opening_ = find(name);
    opening_text_ = role.text("text");
  }
}

const ChatTemplate::Role* ChatTemplate::find(std::string_view name) const {
  const auto found =
      std::find_if(roles_.begin(), roles_.end(), [&](const Role& role) { return role.name == name; });
  return found == roles_.end() ? nullptr : &*found;
}

std::vector<ChatTemplate::Message> ChatTemplate::messages(const Value& line) const {
  const Value* const list = line.find("messages");
  if (list == nullptr || !list->is_array() || list->array().empty()) {
    fail_config(fmt::format("expected a table with a list \"messages\", found {}",
                            !line.is_table()   ? line.description()
                            : list == nullptr  ? "a table without it"
                            : list->is_array() ? "an empty list"
                                               : list->description()));
  }
  std::vector<Message> found;
  for (std::size_t i = 0; i < list->array().size(); ++i) {
    const Value& message = list->array()[i];
    const auto member = [&](std::string_view key) -> std::string_view {
      const Value* const value = message.find(key);
      if (value == nullptr || !value->is_text()) {
        fail_config(fmt::format("message {}: expected text under \"{}\", found {}", i, key,
                                value == nullptr ? "none" : value->description()));
      }
      return value->text();
    };
    const std::string_view role = member("role");
    const Role* const known = find(role);
    if (known == nullptr) {
      std::vector<std::string_view> names;
      for (const Role& one : roles_) names.push_back(one.name);
      fail_config(
          fmt::format("message {}: the role '{}' is not in the template, which has {}; add "
                      "[data.template.{}]",
                      i, role, fmt::join(names, ", "), role));
    }
    found.push_back({known, member("content")});
  }
  const auto opens = [&](const Message& message) { return message.role == opening_; };
  if (opening_ != nullptr && std::none_of(found.begin(), found.end(), opens))
    found.insert(found.begin(), {opening_, opening_text_});
  return found;
}

void ChatTemplate::add(const Message& message, ChatTokens& tokens) const {
  const bool answer = message.role == &roles_[answer_];
  tokens.add(message.role->before, false);
  tokens.add(tokenizer_.encode(message.content), answer);
  tokens.add(message.role->after, answer);
}

void ChatTemplate::conversation(const Value& line, ChatTokens& tokens) const {
  const std::size_t first = tokens.ids.size();
  for (const Message& message : messages(line)) add(message, tokens);
  // Nothing comes before the first token, so it is no target.
  for (std::size_t i = first + 1; i < tokens.learned.size(); ++i)
    if (tokens.learned[i]) return;
  fail_config(fmt::format("no answer: expected a message of the role '{}' with text", roles_[answer_].name));
}

std::vector<std::int32_t> ChatTemplate::prompt(const Value& line) const {
  std::vector<Message> all = messages(line);
  const Role* const answer = &roles_[answer_];
  if (all.back().role == answer) all.pop_back();
  ChatTokens tokens;
  for (const Message& message : all) add(message, tokens);
  tokens.add(answer->before, false);
  if (tokens.ids.empty()) {
    fail_config(
        fmt::format("nothing to answer to: expected text before the answer of the role '{}'", answer->name));
  }
  return tokens.ids;
}

}  // namespace tenon::text
