// The rewards against cases worked out by hand, and their readers of texts against expressions whose values
// are known because they are built from them.
#include "numbers.hpp"

#include <tenon/config.hpp>
#include <tenon/registry.hpp>
#include <tenon/reward.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

namespace tenon::reward_basic {
namespace {

using ::testing::HasSubstr;
using Parts = std::map<std::string, double>;

class Collected final : public RewardParts {
 public:
  void add(std::string_view name, double value) override {
    EXPECT_TRUE(parts.emplace(std::string(name), value).second) << name << " is given twice";
  }
  Parts parts;
};

class Rewards : public ::testing::Test {
 protected:
  Rewards() { registry_.discover({}); }

  testing::Made<Reward> reward(std::string_view type, std::string_view options) {
    return testing::make<Reward>(registry_, host_, type, options);
  }
  /// `sample`: TOML lines; "-" = there is none.
  static Parts parts(const Reward& reward, std::string_view answer, const std::string& sample,
                     std::string_view prompt = "") {
    const Config config = Config::parse(sample == "-" ? "" : sample, "prompts.jsonl", {});
    Collected collected;
    reward.score({prompt, answer, sample == "-" ? nullptr : &config.root()}, collected);
    return collected.parts;
  }
  static double part(const Reward& reward, std::string_view answer, const std::string& sample,
                     std::string_view prompt = "") {
    const Parts all = parts(reward, answer, sample, prompt);
    EXPECT_EQ(all.size(), 1u);
    return all.begin()->second;
  }
  std::string refusal(std::string_view type, std::string_view options) {
    try {
      reward(type, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "made";
  }
  static std::string refusal(const Reward& reward, const std::string& sample, std::string_view answer = "1") {
    try {
      parts(reward, answer, sample);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRun);
      return error.what();
    }
    return "scored";
  }

  testing::QuietHost host_;
  Registry registry_;
};

struct Answer {
  const char *answer, *sample;
  bool right;
};

TEST_F(Rewards, ExactReadsTheLastNumber) {
  const Answer cases[] = {
      {"42", "answer = '42'", true},
      {"42", "answer = 42", true},
      {"42", "check = 'number'\nanswer = '42'", true},
      {"The answer is 42.", "answer = '42'", true},
      {"6 * 7 = 42", "answer = '42'", true},
      {"42 is it. Or 43", "answer = '42'", false},
      {"43", "answer = '42'", false},
      {"-42", "answer = '42'", false},
      {"= -42", "answer = '-42'", true},
      {"10-42", "answer = '42'", true},
      {"x-42", "answer = '42'", true},
      {"(10)-42", "answer = '42'", true},
      {"10 -42", "answer = '-42'", true},
      {"+42", "answer = 42", true},
      {"042.0", "answer = 42", true},
      {"0.1", "answer = 0.1", true},
      {"0.10", "answer = '0.1'", true},
      {"0.100000001", "answer = 0.1", false},
      {"1.2.3", "answer = 3", true},
      {"forty-two", "answer = 42", false},
      {"", "answer = 0", false},
      {"9223372036854775807", "answer = '9223372036854775807'", true},
      {"9223372036854775808", "answer = '9223372036854775807'", false},
      {"18446744073709551616", "answer = 0", false},
      {"42000000000000000000000000000000000000000000", "answer = '42'", false},
      {"\xff\xfe 42 \x80", "answer = 42", true},
      {"34", "check = 'sum'\nterms = [12, '30', -8]", true},
      {"0.3", "check = 'sum'\nterms = [0.1, 0.2]", true},
      {"0.30000000000000004", "check = 'sum'\nterms = [0.1, 0.2]", false},
      {"33", "check = 'sum'\nterms = [12, 30, -8]", false},
      {"27", "check = 'expression'\nexpression = '3 * (4 + 5)'", true},
      {"3 * (4 + 5)", "check = 'expression'\nexpression = '3 * (4 + 5)'", false},
      {"2.5", "check = 'expression'\nexpression = '10 / 4'", true},
      {"1", "check = 'expression'\nexpression = '1 / 3 * 3'", true},
  };
  const auto exact = reward("exact", "");
  for (const Answer& c : cases)
    EXPECT_EQ(part(*exact, c.answer, c.sample), c.right ? 1 : 0) << c.answer << " to " << c.sample;
}

TEST_F(Rewards, ExactReadsTheWholeTextOrWhatFollowsAMarker) {
  const struct {
    const char* options;
    Answer answer;
  } cases[] = {
      {"read = 'whole'", {" 42\n", "answer = 42", true}},
      {"read = 'whole'", {"is 42", "answer = 42", false}},
      {"read = 'whole'", {"42.", "answer = 42", false}},
      {"read = 'whole'", {"4 2", "answer = 42", false}},
      {"read = 'whole'", {".5", "answer = 0.5", false}},
      {"read = 'whole'", {"1e1", "answer = 10", false}},
      {"read = 'whole'", {"--42", "answer = 42", false}},
      {"read = 'whole'", {"", "answer = 0", false}},
      {"marker = '####'", {"1 #### 2 #### 42", "answer = 42", true}},
      {"marker = '####'", {"1 #### 42 #### 2", "answer = 42", false}},
      {"marker = '####'", {"42", "answer = 42", false}},
      {"marker = '####'", {"42 ####", "answer = 42", false}},
      {"marker = '####'\nneeds_marker = false", {"42", "answer = 42", true}},
      {"marker = '</think>'\nread = 'whole'", {"<think>6 * 7</think>\n\n42", "answer = 42", true}},
      {"marker = '</think>'\nread = 'whole'", {"<think>42</think> so 42", "answer = 42", false}},
  };
  for (const auto& [options, c] : cases) {
    EXPECT_EQ(part(*reward("exact", options), c.answer, c.sample), c.right ? 1 : 0)
        << options << ": " << c.answer << " to " << c.sample;
  }
}

TEST_F(Rewards, ExactWantsASortedListInItsOrder) {
  const std::string sample = "check = 'sorted'\nlist = [3, '-1.5', 2, 2]";
  const struct {
    const char *read, *answer;
    bool right;
  } cases[] = {
      {"last", "-1.5, 2, 2, 3", true},
      {"last", "-1.5 2 2 3", true},
      {"last", "Sorted, 3 -1.5 2 2 is: [-1.5, 2, 2, 3].", true},
      {"last", "3, -1.5, 2, 2\n-1.5, 2, 2, 3", true},
      {"last", "3, -1.5, 2, 2", false},
      {"last", "3, 2, 2, -1.5", false},
      {"last", "-1.5, 2, 3", false},
      {"last", "-1.5, 2, 2, 2, 3", false},
      {"last", "-1.5, 2, 3, 3", false},
      {"last", "0, -1.5, 2, 2, 3", false},
      {"last", "-1.5, 2; 2, 3", false},
      {"last", "", false},
      {"whole", "-1.5, 2, 2, 3", true},
      {"whole", "[-1.5, 2,2 ,3]", true},
      {"whole", "is -1.5, 2, 2, 3", false},
      {"whole", "-1.5, 2, 2, 3]", false},
      {"whole", "-1.5, 2, 2, 3.", false},
      {"whole", "[]", false},
      {"whole", "[", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(part(*reward("exact", std::string("read = '") + c.read + "'"), c.answer, sample),
              c.right ? 1 : 0)
        << c.read << ": " << c.answer;
  }
  const auto last = reward("exact", "");
  EXPECT_EQ(part(*last, "7", "check = 'sorted'\nlist = [7]"), 1);
  EXPECT_EQ(part(*last, "1, 2, 3, 10", "check = 'sorted'\nlist = [10, 2, 3, 1]"), 1)
      << "by value, not by letter";
}

TEST_F(Rewards, ValuesAndNamesOfPartsAreOptions) {
  const auto exact = reward("exact", "right = 2\nwrong = -0.5\nname = 'sums'");
  EXPECT_EQ(parts(*exact, "42", "answer = 42"), (Parts{{"sums", 2}}));
  EXPECT_EQ(parts(*exact, "43", "answer = 42"), (Parts{{"sums", -0.5}}));
  EXPECT_EQ(parts(*reward("format", ""), "", "-"), (Parts{{"format", 0}}));
  EXPECT_EQ(parts(*reward("length", ""), "", "-"), (Parts{{"length", 0}}));
}

TEST_F(Rewards, ASampleWithoutWhatIsReadIsNamed) {
  const auto exact = reward("exact", "");
  const std::pair<const char*, const char*> cases[] = {
      {"-",
       "there is no sample to the prompt, and reward exact reads its field 'answer'; give prompts as lines "
       "of "
       "JSONL with this field"},
      {"words = 2",
       "prompts.jsonl:1:1: the sample lacks the field 'answer', which reward exact reads; add it to "
       "the line"},
      {"check = 'sum'", "lacks the field 'terms'"},
      {"check = 'sorted'", "lacks the field 'list'"},
      {"check = 'expression'", "lacks the field 'expression'"},
      {"check = 'product'",
       "prompts.jsonl:1:9: field 'check': expected one of 'number', 'expression', 'sum', 'sorted', found the "
       "string \"product\""},
      {"check = 1", "field 'check': expected a text, found the whole number 1"},
      {"answer = 'Paris'", "field 'answer': expected a number"},
      {"answer = '1e3'", "field 'answer': expected a number"},
      {"answer = 1e30", "field 'answer': expected a number"},
      {"answer = nan", "field 'answer': expected a number"},
      {"answer = [1]", "field 'answer': expected a number"},
      {"answer = true", "field 'answer': expected a number"},
      {"check = 'sum'\nterms = 3", "field 'terms': expected a list of one or more numbers"},
      {"check = 'sum'\nterms = [1, 'two']", "prompts.jsonl:2:13: field 'terms': expected a number"},
      {"check = 'sum'\nterms = [9223372036854775807, 1]", "numbers whose sum has at most 18 digits"},
      {"check = 'sorted'\nlist = []", "field 'list': expected a list of one or more numbers"},
      {"check = 'expression'\nexpression = '1 / 3'",
       "field 'expression': expected a value that digits after a point can write, not 1/3"},
      {"check = 'expression'\nexpression = '1 / 0'",
       "field 'expression': expected numbers, + - * / and parentheses"},
      {"check = 'expression'\nexpression = 3", "field 'expression': expected numbers"},
  };
  for (const auto& [sample, message] : cases)
    EXPECT_THAT(refusal(*exact, sample), HasSubstr(message)) << sample;
  EXPECT_EQ(refusal(*exact, "answer = 42"), "scored");
}

TEST_F(Rewards, FormatWantsTagsIfAndOnlyIfTheyAreAskedFor) {
  const struct {
    const char* answer;
    bool asked_right, plain_right;
  } cases[] = {
      {"<think>6 * 7</think>42", true, false},
      {"\n <think>\n6 * 7\n</think>\n\n42\n", true, false},
      {"<think></think>42", true, false},
      {"42", false, true},
      {"", false, true},
      {"<think>6 * 7", false, false},
      {"6 * 7</think>42", false, false},
      {"<think>6 * 7</think>", false, false},
      {"<think>6 * 7</think> \n", false, false},
      {"</think>6 * 7<think>42", false, false},
      {"So: <think>6 * 7</think>42", false, false},
      {"<think>6<think> * 7</think>42", false, false},
      {"<think>6 * 7</think>4</think>2", false, false},
      {"<think>6 * 7</think><think>42", false, false},
      {"<thinking>6 * 7</thinking>42", false, true},
  };
  const auto by_field = reward("format", "field = 'thinks'"),
             by_flag = reward("format", "flag = 'thinking on'"), always = reward("format", "");
  for (const auto& c : cases) {
    EXPECT_EQ(part(*by_field, c.answer, "thinks = true"), c.asked_right) << c.answer;
    EXPECT_EQ(part(*by_field, c.answer, "thinks = false"), c.plain_right) << c.answer;
    EXPECT_EQ(part(*by_flag, c.answer, "-", "detailed thinking on. 6 * 7?"), c.asked_right) << c.answer;
    EXPECT_EQ(part(*by_flag, c.answer, "-", "detailed thinking off. 6 * 7?"), c.plain_right) << c.answer;
    EXPECT_EQ(part(*always, c.answer, "-"), c.asked_right) << c.answer;
  }
  EXPECT_EQ(part(*reward("format", "open = '('\nclose = ')'"), "(so) 42", "-"), 1);
  EXPECT_THAT(refusal(*by_field, "words = 1"),
              HasSubstr("the sample lacks the field 'thinks', which reward format reads"));
  EXPECT_THAT(refusal(*by_field, "thinks = 'on'"),
              HasSubstr("field 'thinks': expected true or false, found the string \"on\""));
}

TEST_F(Rewards, LengthCountsCharactersBeyondItsLimits) {
  const struct {
    const char *options, *answer;
    double expected;
  } cases[] = {
      {"", "any text", 0},
      {"most = 4", "1234", 0},
      {"most = 4", "123456", -0.002},
      {"least = 3", "1", -0.002},
      {"least = 3\nmost = 3", "123", 0},
      {"least = 2\nmost = 3\nper_character = 0.25", "", 0.5},
      {"most = 0\nper_character = 0.25", "12345678", 1},
      {"most = 0\nper_character = -0.25\nlimit = 1.5", "12345678", -1.5},
      {"most = 0\nper_character = 1\nlimit = 10", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 3},
      {"most = 0\nper_character = 1\nlimit = 10", "\xff\xfe", 2},
  };
  for (const auto& c : cases)
    EXPECT_DOUBLE_EQ(part(*reward("length", c.options), c.answer, "-"), c.expected)
        << c.options << " " << c.answer;
}

TEST_F(Rewards, SumWeighsThePartsOfItsRewards) {
  const char* const list =
      "[[part]]\ntype = 'exact'\n[[part]]\ntype = 'format'\nfield = 'thinks'\n[[part]]\ntype = "
      "'length'\nmost = 20\n"
      "per_character = -0.5\n";
  const std::string sample = "answer = 42\nthinks = true";
  const auto plain = reward("sum", list);
  EXPECT_EQ(parts(*plain, "<think>6 * 7</think>42", sample),
            (Parts{{"exact", 1}, {"format", 1}, {"length", -1}}));
  const auto weighted = reward("sum", std::string("weights = [2, 0.5, 0.25]\n") + list);
  EXPECT_EQ(parts(*weighted, "<think>6 * 7</think>42", sample),
            (Parts{{"exact", 2}, {"format", 0.5}, {"length", -0.25}}));
  EXPECT_EQ(parts(*weighted, "42", sample), (Parts{{"exact", 2}, {"format", 0}, {"length", 0}}));
  const auto nested =
      reward("sum",
             "weights = [3]\n[[part]]\ntype = 'sum'\nweights = [0.5, 1]\npart = [{type = 'exact'}, "
             "{type = 'exact', name = 'other', read = 'whole'}]\n");
  EXPECT_EQ(parts(*nested, "is 42", "answer = 42"), (Parts{{"exact", 1.5}, {"other", 0}}));
  EXPECT_THAT(refusal(*weighted, "answer = 42"), HasSubstr("lacks the field 'thinks'"));
}

// docs/rewards.md
TEST_F(Rewards, SumGivesWhatThePageSays) {
  const auto sum =
      reward("sum",
             "weights = [1.0, 0.2, 0.1]\n[[part]]\ntype = 'exact'\nmarker = '</think>'\n[[part]]\n"
             "type = 'format'\nflag = 'detailed thinking on'\n[[part]]\ntype = 'length'\nmost = 400\n");
  EXPECT_EQ(parts(*sum, "<think>10 + 30 = 40, 2 + 40 = 42</think> 42", "answer = '42'",
                  "detailed thinking on\n12 + 30 ="),
            (Parts{{"exact", 1}, {"format", 0.2}, {"length", 0}}));
}

TEST_F(Rewards, SumRefusesTwoPartsOfOneName) {
  const auto sum = reward("sum", "part = [{type = 'exact'}, {type = 'exact', read = 'whole'}]");
  try {
    Rewards::parts(*sum, "42", "answer = 42");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                HasSubstr("'part.1' gives the part 'exact', which is there already; set another 'name'"));
  }
}

TEST_F(Rewards, OptionsThatContradictEachOtherAreRefused) {
  const struct {
    const char *type, *options, *message;
  } cases[] = {
      {"sum", "", "reward.sum needs option 'part': an array of tables, each with its own 'type'"},
      {"sum", "part = []", "'part' is an empty list; expected one reward or more"},
      {"sum", "weights = [1, 2]\npart = [{type = 'exact'}]",
       "'weights' has 2 entries for 1 rewards in 'part'; expected one for each"},
      {"sum", "weights = [nan]\npart = [{type = 'exact'}]", "option 'weights[0]' of reward.sum is nan"},
      {"sum", "weights = [inf]\npart = [{type = 'exact'}]", "option 'weights[0]' of reward.sum is inf"},
      {"sum", "part = [{type = 'exakt'}]", "did you mean 'exact'?"},
      {"sum", "part = [{type = 'exact', markr = 'x'}]",
       "reward.exact has no option 'markr'; did you mean 'marker'?"},
      {"length", "least = 4\nmost = 3", "'least' is 4 and 'most' is 3; expected at most that"},
      {"format", "open = ''", "'open' and 'close' are two different texts, none of them empty"},
      {"format", "open = '*'\nclose = '*'", "'open' and 'close' are two different texts, none of them empty"},
      {"format", "field = 'a'\nflag = 'b'",
       "'field' and 'flag' both say where the tags are asked for; keep one"},
      {"exact", "name = ''", "'name' is empty; a part of a reward needs a name, for records"},
      {"exact", "right = inf", "option 'right' of reward.exact is inf"},
  };
  for (const auto& c : cases) EXPECT_THAT(refusal(c.type, c.options), HasSubstr(c.message)) << c.options;
}

TEST(Expressions, HaveTheValuesOfTheUsualPrecedence) {
  const struct {
    const char* text;
    Fraction value;
  } cases[] = {
      {"7", {7, 1}},         {" 2 + 3 * 4 ", {14, 1}},  {"(2 + 3) * 4", {20, 1}}, {"8 - 3 - 2", {3, 1}},
      {"8 / 4 / 2", {1, 1}}, {"-3 * -4", {12, 1}},      {"2 - -3", {5, 1}},       {"-(1 + 2)", {-3, 1}},
      {"1 / 3", {1, 3}},     {"1 / 3 + 1 / 6", {1, 2}}, {"0.1 + 0.2", {3, 10}},   {"10 / 4 * 2", {5, 1}},
      {"((((5))))", {5, 1}}, {"0 / 5", {0, 1}},         {"1 / -2", {-1, 2}},      {"+5", {5, 1}},
  };
  for (const auto& c : cases) EXPECT_EQ(evaluate(c.text), c.value) << c.text;
  for (const char* text : {"",
                           " ",
                           "+",
                           "1 +",
                           "* 2",
                           "(1",
                           "1)",
                           "()",
                           "1 2",
                           "1..2",
                           ".5",
                           "5.",
                           "1 / 0",
                           "1 / (2 - 2)",
                           "2 ** 3",
                           "2x",
                           "x",
                           "1,000",
                           "9223372036854775807 + 1",
                           "3037000500 * 3037000500",
                           "1e3"})
    EXPECT_FALSE(evaluate(text).has_value()) << text;
  EXPECT_FALSE(evaluate(std::string(100000, '(')).has_value());
  EXPECT_FALSE(evaluate(std::string(100000, '-') + "1").has_value());
  EXPECT_TRUE(evaluate(std::string(60, '(') + "1" + std::string(60, ')')).has_value());
  EXPECT_FALSE(evaluate(std::string("1\0", 2)).has_value());
}

/// A random expression with its value, known because it is built from it; in whole numbers.
std::pair<std::string, std::int64_t> built(std::mt19937_64& random, int depth) {
  if (depth == 0 || random() % 4 == 0) {
    const auto number = static_cast<std::int64_t>(random() % 100);
    return {std::to_string(number), number};
  }
  const auto [left, a] = built(random, depth - 1);
  const auto [right, b] = built(random, depth - 1);
  switch (random() % 3) {
    case 0:
      return {"(" + left + " + " + right + ")", a + b};
    case 1:
      return {"(" + left + "-" + right + ")", a - b};
    default:
      return {"(" + left + " * " + right + ")", a * b};
  }
}

TEST(Expressions, HaveTheValuesThatTheyAreBuiltFrom) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 5000; ++round) {
    const auto [text, value] = built(random, 3);  // at most 100^8
    ASSERT_EQ(evaluate(text), (Fraction{value, 1})) << text;
    const std::optional<Fraction> seventh = evaluate(text + " / 7");
    ASSERT_TRUE(seventh.has_value()) << text;
    EXPECT_EQ(seventh->numerator * 7, value * seventh->denominator) << text;
  }
}

TEST(Numbers, AreReadAsTheyAreWritten) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 5000; ++round) {
    const auto number = static_cast<std::int64_t>(random()) >> (random() % 63);
    ASSERT_EQ(read_number(std::to_string(number)), (Fraction{number, 1}));
  }
  EXPECT_EQ(read_number("-0.125"), (Fraction{-1, 8}));
  EXPECT_EQ(read_number("2.50"), (Fraction{5, 2}));
  EXPECT_EQ(read_number("-9223372036854775807"), (Fraction{-9223372036854775807, 1}));
  EXPECT_FALSE(read_number("-9223372036854775808").has_value());
  EXPECT_TRUE((Fraction{1, 3}) < (Fraction{1, 2}));
  EXPECT_TRUE((Fraction{std::numeric_limits<std::int64_t>::min(), 1}) < (Fraction{-1, 9223372036854775807}));
}

}  // namespace
}  // namespace tenon::reward_basic
