// Conversations as tokens: the texts around the messages of each role, and which tokens are learned. It reads
// one line of a file, as a value, and knows neither files nor rows.
#pragma once

#include <tenon/config.hpp>
#include <tenon/options.hpp>
#include <tenon/tokenizer.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// [data.template.ROLE]
inline constexpr OptionSpec kRoleOptions[] = {
    option::text("before", "\"\"").doc_text("text before a message of the role"),
    option::text("after", "\"\"").doc_text("text after it; after an answer it is the end, and is learned"),
    option::text("text", nullptr)
        .doc_text("message that begins a conversation which has none of the role, such as a system text"),
};

/// A conversation as tokens, appended to.
struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<bool> learned;  ///< by token: it belongs to an answer

  void add(std::span<const std::int32_t> more, bool is_learned) {
    ids.insert(ids.end(), more.begin(), more.end());
    learned.resize(ids.size(), is_learned);
  }
};

class ChatTemplate {
 public:
  static constexpr OptionSpec roles_option() {
    return option::sections<kRoleOptions>("template")
        .doc_text("a table [data.template.ROLE] for each role that a message may have: texts around it");
  }
  static constexpr OptionSpec special_option() {
    return option::texts("special", "[]")
        .doc_text(
            "special tokens of the tokenizer that the template's texts hold; they become their ids "
            "there, and stay text in messages");
  }
  static constexpr OptionSpec answer_option() {
    return option::text("answer_role", "\"assistant\"")
        .doc_text("role whose messages are learned, with what follows them");
  }

  /// Reads the three options above. `tokenizer` outlives this object. `owner` begins messages: "data.NAME".
  ChatTemplate(const std::string& owner, const Options& options, const Tokenizer& tokenizer);

  /// The whole conversation of a line: {"messages": [{"role": ..., "content": ...}, ...], ...}. At least one
  /// token after the first is learned. Throws Error(kConfig) that says what is wrong with the line.
  void conversation(const Value& line, ChatTokens& tokens) const;
  /// ConversationText::prompt.
  std::vector<std::int32_t> prompt(const Value& line) const;
  /// ConversationText::answer_end.
  std::span<const std::int32_t> answer_end() const { return roles_[answer_].after; }

 private:
  struct Role {
    std::string name;
    std::vector<std::int32_t> before, after;
  };
  struct Message {
    const Role* role;
    std::string_view content;
  };

  const Role* find(std::string_view name) const;
  std::vector<Message> messages(const Value& line) const;
  void add(const Message& message, ChatTokens& tokens) const;

  const Tokenizer& tokenizer_;
  std::vector<Role> roles_;
  std::size_t answer_ = 0;  ///< among roles_
  const Role* opening_ = nullptr;
  std::string opening_text_;  ///< message that begins a conversation without one of role opening_
};

}  // namespace tenon::text
