// Templates: ids of roles, messages and special tokens, what is learned, prompts, and lines that are refused.
#include "chat_template.hpp"

#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/json.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>

namespace tenon::text::chat_template_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

/// Bytes and three special tokens, one of whose texts begins another's.
class MarkedBytes final : public ByteTokenizer {
 public:
  std::int64_t vocabulary() const override { return 259; }
  std::span<const SpecialToken> special() const override { return special_; }

 private:
  std::array<SpecialToken, 3> special_{{{"<|a", 256}, {"<|a|>", 257}, {"<|end|>", 258}}};
};

constexpr const char* kPlain = R"(
[template.user]
before = "U:"
after = "\n"
[template.assistant]
before = "A:"
after = ".\n"
[template.system]
after = "\n\n"
)";

constexpr OptionSpec kOptions[] = {ChatTemplate::roles_option(), ChatTemplate::special_option(),
                                   ChatTemplate::answer_option()};

ChatTemplate made(const std::string& toml, const Tokenizer& tokenizer) {
  const Config config = Config::parse(toml, "test.toml", {});
  const auto resolved = resolve_options(
      OptionRequest{.table = config.root(), .owner = "data.conversations", .specs = option_list(kOptions)});
  return {"data.conversations", *resolved.options, tokenizer};
}

Value line(const std::string& text) {
  return parse_json(text, "line");
}

/// Text of the tokens, those that are learned in brackets.
std::string shown(const ChatTemplate& form, const Tokenizer& tokenizer, const std::string& json) {
  ChatTokens tokens;
  form.conversation(line(json), tokens);
  std::string text;
  bool inside = false;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.learned[i] != inside) text += inside ? "]" : "[";
    inside = tokens.learned[i];
    text += tokenizer.decode(std::span(tokens.ids).subspan(i, 1));
  }
  return inside ? text + "]" : text;
}

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"},
        {"role": "user", "content": "é?"}, {"role": "assistant", "content": "no"}], "answer": 2})";

TEST(ChatTemplateTest, LearnsAnswersAndTheirEndsAlone) {
  const ByteTokenizer bytes;
  const ChatTemplate form = made(kPlain, bytes);
  EXPECT_EQ(shown(form, bytes, kTwoTurns), "U:1+1\nA:[2.\n]U:é?\nA:[no.\n]");
  EXPECT_EQ(shown(form, bytes, R"({"messages": [{"role": "system", "content": "S"},
      {"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": "x"}]})"),
            "S\n\nU:\nA:[.\n]U:x\n");
}

TEST(ChatTemplateTest, AnotherRoleMayAnswer) {
  const ByteTokenizer bytes;
  const ChatTemplate form =
      made("answer_role = 'bot'\n[template.human]\nafter = ' '\n[template.bot]\nafter = '!'", bytes);
  EXPECT_EQ(shown(form, bytes,
                  R"({"messages": [{"role": "human", "content": "a"}, {"role": "bot", "content": "b"}]})"),
            "a [b!]");
}

TEST(ChatTemplateTest, BeginsWithItsOwnSystemTextWhereThereIsNone) {
  const ByteTokenizer bytes;
  const ChatTemplate form = made(
      "[template.user]\n[template.assistant]\n[template.system]\ntext = 'Think.'\nbefore = '<'\nafter = '>'",
      bytes);
  EXPECT_EQ(
      shown(form, bytes,
            R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
      "<Think.>a[b]");
  EXPECT_EQ(shown(form, bytes, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "system", "content": "Do not."}, {"role": "assistant", "content": "b"}]})"),
            "a<Do not.>[b]");
}

TEST(ChatTemplateTest, SpecialTokensAreIdsInTheTemplateAlone) {
  const MarkedBytes tokens;
  const ChatTemplate form = made(
      "special = ['<|end|>', '<|a', '<|a|>']\n[template.user]\nbefore = '<|a|>u<|a|<|end|>'\n"
      "[template.assistant]\nafter = \"<|end|>\\n\"",
      tokens);
  ChatTokens found;
  form.conversation(line(R"({"messages": [{"role": "user", "content": "<|end|>"},
                                          {"role": "assistant", "content": "x"}]})"),
                    found);
  std::vector<std::int32_t> expected{257, 'u', 256, '|', 258};
  for (const char c : std::string("<|end|>x")) expected.push_back(c);
  expected.insert(expected.end(), {258, '\n'});
  EXPECT_EQ(found.ids, expected);
  EXPECT_THAT(std::vector<std::int32_t>(form.answer_end().begin(), form.answer_end().end()),
              ElementsAre(258, '\n'));
  // Without the option they are text.
  const ChatTemplate plain = made("[template.user]\n[template.assistant]\nafter = '<|end|>'", tokens);
  EXPECT_EQ(plain.answer_end().size(), 7u);
}

TEST(ChatTemplateTest, PromptsAreTheBeginOfTheConversation) {
  const ByteTokenizer bytes;
  const ChatTemplate form = made(kPlain, bytes);
  EXPECT_EQ(bytes.decode(form.prompt(line(kTwoTurns))), "U:1+1\nA:2.\nU:é?\nA:");
  EXPECT_EQ(bytes.decode(form.prompt(line(R"({"messages": [{"role": "user", "content": "q"}]})"))),
            "U:q\nA:");
  ChatTokens whole;
  form.conversation(line(kTwoTurns), whole);
  const std::vector<std::int32_t> prompt = form.prompt(line(kTwoTurns));
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), whole.ids.begin()));
  const ChatTemplate bare = made("[template.assistant]", bytes);
  EXPECT_THAT(
      error_of([&] { bare.prompt(line(R"({"messages": [{"role": "assistant", "content": "b"}]})")); }),
      HasSubstr("nothing to answer to"));
}

TEST(ChatTemplateTest, RefusesLinesThatItCannotWrite) {
  const ByteTokenizer bytes;
  const ChatTemplate form = made(kPlain, bytes);
  const struct {
    const char *json, *says;
  } cases[] = {
      {"[1]", "expected a table with a list \"messages\", found a list"},
      {R"({"text": "x"})", "expected a table with a list \"messages\", found a table without it"},
      {R"({"messages": {}})", "expected a table with a list \"messages\", found a table"},
      {R"({"messages": []})", "expected a table with a list \"messages\", found an empty list"},
      {R"({"messages": ["x"]})", "message 0: expected text under \"role\", found none"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]})",
       "message 1: expected text under \"content\", found none"},
      {R"({"messages": [{"role": "user", "content": 7}]})",
       "message 0: expected text under \"content\", found the whole number 7"},
      {R"({"messages": [{"role": "tool", "content": "a"}]})",
       "message 0: the role 'tool' is not in the template, which has user, assistant, system; add "
       "[data.template.tool]"},
      {R"({"messages": [{"role": "user", "content": "a"}]})",
       "no answer: expected a message of the role 'assistant' with text"},
  };
  for (const auto& c : cases) {
    ChatTokens tokens;
    EXPECT_EQ(error_of([&] { form.conversation(line(c.json), tokens); }), c.says) << c.json;
  }
  // An answer of one token at the very begin is no target: nothing comes before it.
  const ChatTemplate bare = made("[template.assistant]", bytes);
  ChatTokens tokens;
  EXPECT_THAT(error_of([&] {
                bare.conversation(line(R"({"messages": [{"role": "assistant", "content": "b"}]})"), tokens);
              }),
              HasSubstr("no answer"));
}

TEST(ChatTemplateTest, RefusesTemplatesThatCannotWork) {
  const ByteTokenizer bytes;
  const MarkedBytes marked;
  EXPECT_EQ(error_of([&] { made("[template.user]", bytes); }),
            "data.conversations: the table [data.template.assistant] is missing; it says what is before and "
            "after an answer (role 'assistant', option 'answer_role')");
  EXPECT_EQ(error_of([&] { made("special = ['<s>']\n[template.assistant]", bytes); }),
            "data.conversations: special: the tokenizer has no special token '<s>'; it has none");
  EXPECT_EQ(error_of([&] { made("special = ['<s>']\n[template.assistant]", marked); }),
            "data.conversations: special: the tokenizer has no special token '<s>'; it has '<|a', '<|a|>', "
            "'<|end|>'");
  EXPECT_EQ(error_of([&] { made("[template.assistant]\ntext = 'x'", bytes); }),
            "data.conversations: template.assistant: 'text' begins a conversation; expected at one role, "
            "which is not that of answers");
  EXPECT_THAT(error_of([&] {
                made("[template.assistant]\n[template.a]\ntext = 'x'\n[template.b]\ntext = 'y'", bytes);
              }),
              HasSubstr("template.b: 'text' begins a conversation"));
  EXPECT_THAT(error_of([&] { made("[template.assistant]\nend = 'x'", bytes); }), HasSubstr("end"));
}

}  // namespace
}  // namespace tenon::text::chat_template_test
