// The closing tag at exact positions of scripted sequences, and against a rule that reads the whole sequence
// again for every token.
#include "generate/thinking_limit.hpp"

#include "generate/test_thinking_rule.hpp"

#include <tenon/random.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::generate::thinking_limit_test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kLine = 10;  ///< a token that ends a line

/// `most` tokens: those of the script in order, where the limit inserts none, and 1 after its end.
Ids written(const ThinkingBudget& budget, std::int32_t last_of_prompt, const Ids& script, std::size_t most) {
  ThinkingLimit limit(budget, last_of_prompt);
  Ids ids;
  for (std::size_t read = 0; ids.size() < most;) {
    const auto inserted = limit.inserted();
    ids.push_back(inserted ? *inserted : read < script.size() ? script[read++] : 1);
    limit.add(ids.back());
  }
  return ids;
}

TEST(ThinkingLimit, InsertsTheTagAtTheNextNewlineOrWhenTheGraceIsSpent) {
  const Ids seven = {1, 2, kLine, 3, kLine, 4, 5};
  const struct {
    const char* what;
    std::int64_t tokens, grace;
    Ids close;
    std::int32_t last_of_prompt;
    Ids script, expected;
  } cases[] = {
      {"no bound", -1, 0, {90}, kLine, seven, {1, 2, kLine, 3, kLine, 4, 5, 1, 1}},
      {"after the newline", 2, 9, {90}, 7, seven, {1, 2, kLine, 90, 3, kLine, 4, 5, 1}},
      {"the last token of the budget is a newline", 3, 9, {90}, 7, seven, {1, 2, kLine, 90, 3, kLine, 4}},
      {"a newline before that counts not", 4, 9, {90}, 7, seven, {1, 2, kLine, 3, kLine, 90, 4}},
      {"no newline until the grace", 5, 2, {90}, 7, seven, {1, 2, kLine, 3, kLine, 90, 4}},
      {"grace 1", 3, 1, {90}, 7, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 90, 5}},
      {"grace 0", 3, 0, {90}, 7, {1, 2, 3, 4, 5}, {1, 2, 3, 90, 4, 5}},
      {"grace ends at the newline", 3, 2, {90}, 7, {1, 2, 3, 4, kLine, 5}, {1, 2, 3, 4, kLine, 90, 5}},
      {"never a newline", 2, 3, {90}, 7, {}, {1, 1, 1, 1, 1, 90, 1}},
      {"budget 0 and a prompt that ends a line", 0, 9, {90}, kLine, seven, {90, 1, 2, kLine, 3}},
      {"budget 0 and another prompt", 0, 9, {90}, 7, seven, {1, 2, kLine, 90, 3}},
      {"budget 0 and grace 0", 0, 0, {90}, 7, seven, {90, 1, 2, kLine, 3}},
      {"several ids", 1, 0, {90, 91, 92}, 7, seven, {1, 90, 91, 92, 2, kLine, 3}},
      {"once alone", 1, 0, {90}, 7, {2, kLine, 3, kLine}, {2, 90, kLine, 3, kLine, 1}},
      {"closed before the budget",
       4,
       0,
       {90, 91},
       7,
       {1, 90, 91, kLine, 2, kLine},
       {1, 90, 91, kLine, 2, kLine, 1}},
      {"closed within the grace", 2, 4, {90, 91}, 7, {1, 2, 90, 91, kLine}, {1, 2, 90, 91, kLine, 1, 1, 1}},
      {"half a tag is no tag", 4, 0, {90, 91}, 7, {90, 2, 91, 3}, {90, 2, 91, 3, 90, 91, 1}},
      {"begun before the grace ends", 2, 1, {90, 91, 92}, 7, {1, 2, 90, 5}, {1, 2, 90, 91, 92, 5, 1}},
      {"a tag that repeats itself", 1, 3, {8, 8, 9}, 7, {1, 8, 8, 8, 2}, {1, 8, 8, 8, 9, 2, 1}},
      {"a tag that begins with a newline", 1, 9, {kLine, 90}, 7, {1, 2, kLine, 3}, {1, 2, kLine, 90, 3, 1}},
      {"within a tag there is no tag", 1, 0, {kLine, kLine, 90}, 7, {1, 2}, {1, kLine, kLine, 90, 2, 1}},
      {"across the end", 2, 0, {90, 91, 92}, 7, {1, 2, 3}, {1, 2, 90, 91}},
  };
  for (const auto& c : cases) {
    const ThinkingBudget budget{c.tokens, c.grace, c.close, {11, kLine}};
    EXPECT_EQ(written(budget, c.last_of_prompt, c.script, c.expected.size()), c.expected) << c.what;
  }
}

TEST(ThinkingLimit, WaitsForTheGraceWhereNoTokenEndsALine) {
  const ThinkingBudget budget{2, 3, {90}, {}};
  EXPECT_EQ(written(budget, kLine, {kLine, kLine, kLine}, 7), (Ids{kLine, kLine, kLine, 1, 1, 90, 1}));
}

TEST(ThinkingLimit, EqualsARuleThatReadsAllTokensAgain) {
  const RandomKey key = random_key(3, "thinking");
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t end) {
    return static_cast<std::int32_t>(random_below(key, 0, draw++, end));
  };
  int inserted = 0, free = 0;
  for (int round = 0; round < 4000; ++round) {
    ThinkingBudget budget{below(8), below(6), {}, {3}};
    for (std::int32_t left = 1 + below(4); left > 0; --left) budget.close.push_back(below(4));
    const std::int32_t before = below(4);
    ThinkingLimit limit(budget, before);
    Ids ids;
    for (int i = 0; i < 24; ++i) {
      const std::int32_t expected = inserted_after(budget, before, ids);
      ASSERT_EQ(limit.inserted().value_or(-1), expected) << fmt::format(
          "budget {} grace {} close {} after {} {}", budget.tokens, budget.grace, budget.close, before, ids);
      ++(expected < 0 ? free : inserted);
      ids.push_back(expected < 0 ? below(4) : expected);
      limit.add(ids.back());
    }
  }
  EXPECT_GT(inserted, 4000);
  EXPECT_GT(free, 40000);
}

}  // namespace
}  // namespace tenon::generate::thinking_limit_test
