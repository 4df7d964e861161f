// Files of prompts by their lines, texts with special tokens, and closing tags, with a tokenizer whose words
// a test can see.
#include <tenon/error.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/prompts.hpp>

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// Bytes, and after them "</think>" as 256, "</th" as 257, "\n\n" as 258; "~" is a byte that it cannot write.
class Tagged final : public ByteTokenizer {
 public:
  std::int64_t vocabulary() const override { return 260; }
  std::span<const SpecialToken> special() const override { return special_; }
  std::string_view token_bytes(std::int32_t id) const override {
    if (id == 258) return "\n\n";
    if (id == 259) return "";
    return id < 256 ? ByteTokenizer::token_bytes(id) : std::string_view(special_[id - 256].text);
  }
  Ids encode(std::string_view text) const override {
    Ids ids = ByteTokenizer::encode(text);
    std::replace(ids.begin(), ids.end(), std::int32_t{'~'}, std::int32_t{'?'});
    return ids;
  }

 private:
  std::vector<SpecialToken> special_{{"</think>", 256}, {"</th", 257}};
};

template <typename Call>
std::string refused(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(EncodeWithSpecial, TakesTheLongestThatBeginsAtAPlace) {
  const Tagged words;
  EXPECT_EQ(encode_with_special(words, "a</think>b", words.special()), (Ids{'a', 256, 'b'}));
  EXPECT_EQ(encode_with_special(words, "</th</think></thi", words.special()), (Ids{257, 256, 257, 'i'}));
  EXPECT_EQ(encode_with_special(words, "</t", words.special()), (Ids{'<', '/', 't'}));
  EXPECT_EQ(encode_with_special(words, "</th", {}), (Ids{'<', '/', 't', 'h'}));
  EXPECT_TRUE(encode_with_special(words, "", words.special()).empty());
}

TEST(TokenText, IsTheReplacementCharacterWhereThereIsNoToken) {
  const Tagged words;
  EXPECT_EQ(token_text(words, 'x'), "x");
  EXPECT_EQ(token_text(words, 256), "</think>");
  EXPECT_EQ(token_text(words, 260), "\xEF\xBF\xBD");
}

TEST(ThinkingBudgetOfAText, HasTheIdsOfTheTagAndTheTokensThatEndALine) {
  const ThinkingBudget budget = thinking_budget(Tagged(), 7, 3, "</think>\n", "here");
  EXPECT_EQ(budget.tokens, 7);
  EXPECT_EQ(budget.grace, 3);
  EXPECT_EQ(budget.close, (Ids{256, '\n'}));
  EXPECT_EQ(budget.newlines, (Ids{'\n', 258}));
  EXPECT_EQ(thinking_budget(ByteTokenizer(), 0, 0, "</t>", "here").close, (Ids{'<', '/', 't', '>'}));
}

TEST(ThinkingBudgetOfAText, RefusesATagThatCannotBeWritten) {
  EXPECT_EQ(refused([] { thinking_budget(Tagged(), 7, 3, "", "here"); }),
            "here: the closing tag of the thinking budget is empty, expected a text");
  EXPECT_EQ(
      refused([] { thinking_budget(Tagged(), 7, 3, "~", "here"); }),
      "here: the tokenizer cannot write the closing tag '~' of the thinking budget: its tokens are '?'; "
      "give the tag that the model was trained with");
}

class Encoder final : public PromptEncoder {
 public:
  explicit Encoder(bool conversations) : conversations_(conversations) {}
  Ids encode(const std::string& text, const std::string& place) const override {
    if (text == "no") fail_config(place + ": no");
    return ByteTokenizer().encode(text);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return ByteTokenizer().decode(ids); }
  bool has_conversations() const override { return conversations_; }
  Ids conversation(const Value& line, const std::string& place) const override {
    if (!conversations_) fail_config(place + ": has no conversations");
    return {'m', static_cast<std::int32_t>('0' + line.find("messages")->array().size())};
  }

 private:
  bool conversations_;
};

TEST(ReadPrompts, OfJsonLines) {
  const std::string all =
      "\n{\"prompt\": \"one\", \"answer\": 4}\r\n \t\r\n{\"prompt\": \"\"}\n{\"messages\": [1, 2]}";
  for (const PromptForm form : {PromptForm::kJsonLines, PromptForm::kEither}) {
    const std::vector<PromptLine> prompts = read_prompts(all, "f", form, Encoder(true));
    ASSERT_EQ(prompts.size(), 3u);
    EXPECT_EQ(prompts[0].place, "f:2");
    EXPECT_EQ(prompts[0].line, 2);
    EXPECT_EQ(prompts[0].text, "one");
    EXPECT_EQ(prompts[0].ids, (Ids{'o', 'n', 'e'}));
    EXPECT_EQ(prompts[0].sample->find("answer")->integer(), 4);
    EXPECT_EQ(prompts[1].place, "f:4");
    EXPECT_TRUE(prompts[1].ids.empty());
    EXPECT_EQ(prompts[2].text, "m2");
    EXPECT_EQ(prompts[2].ids, (Ids{'m', '2'}));
  }
}

TEST(ReadPrompts, OfTextsWhereTheFirstLineIsNoObject) {
  const std::vector<PromptLine> prompts =
      read_prompts("  a \n\n{\"prompt\": 1}\r\nc", "f", PromptForm::kEither, Encoder(false));
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "  a ");
  EXPECT_EQ(prompts[1].text, "{\"prompt\": 1}");
  EXPECT_EQ(prompts[2].place, "f:4");
  EXPECT_FALSE(prompts[0].sample.has_value());
  EXPECT_TRUE(read_prompts(" \n\t\n", "f", PromptForm::kEither, Encoder(false)).empty());
}

TEST(ReadPrompts, TakesTheConversationOfALineWithBothWhereThereAreConversations) {
  const std::string both = "{\"prompt\": \"p\", \"messages\": []}";
  EXPECT_EQ(read_prompts(both, "f", PromptForm::kJsonLines, Encoder(true))[0].text, "m0");
  EXPECT_EQ(read_prompts(both, "f", PromptForm::kJsonLines, Encoder(false))[0].text, "p");
}

TEST(ReadPrompts, RefusesLinesThatAreNoPrompts) {
  const char* expected = "f:1: expected an object with a text \"prompt\", or with \"messages\"";
  const struct {
    const char *line, *says;
  } cases[] = {
      {"{}", expected},
      {"{\"prompt\": 7}", expected},
      {"{\"prompt\": null}", expected},
      {"[1]", expected},
      {"\"prompt\"", expected},
      {"{\"prompt\": ", "f:1: not valid JSON"},
      {"{\"prompt\": \"no\"}", "f:1: no"},
      {"{\"messages\": []}", "f:1: has no conversations"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(refused([&] { read_prompts(c.line, "f", PromptForm::kJsonLines, Encoder(false)); }),
                HasSubstr(c.says))
        << c.line;
}

}  // namespace
}  // namespace tenon
