// Ends of answers: the first stop text, wherever tokens split it, and what may be printed before it is known.
#include <tenon/sdk/answer_text.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenon {
namespace {

/// Adds text in pieces of `length` bytes, as tokens would, and joins what may be printed.
struct Fed {
  std::string text, printed;
  bool stopped = false;
};

Fed feed(const std::vector<std::string>& stops, const std::string& text, std::size_t length) {
  AnswerText answer(stops);
  Fed fed;
  for (std::size_t i = 0; i < text.size() && !fed.stopped; i += length) {
    fed.stopped = !answer.add(text.substr(i, length));
    fed.printed += answer.take(false);
  }
  fed.printed += answer.take(true);
  fed.text = answer.text();
  return fed;
}

TEST(AnswerText, EndsBeforeTheStopThatBeginsFirstHoweverItIsSplit) {
  const struct {
    std::vector<std::string> stops;
    std::string text, answer;
    bool stopped;
  } cases[] = {
      {{}, "all of it", "all of it", false},
      {{"\n\n"}, "one\ntwo\n\nthree", "one\ntwo", true},
      {{"END"}, "an E and an EN", "an E and an EN", false},
      {{"aab"}, "aaaab", "aa", true},
      {{"Q:", "\nQ"}, "4\nQ: 5", "4", true},
      {{"stop"}, "stop", "", true},
  };
  for (const auto& c : cases) {
    for (std::size_t length : {1, 2, 3}) {
      const Fed fed = feed(c.stops, c.text, length);
      EXPECT_EQ(fed.text, c.answer) << c.text << " by " << length;
      EXPECT_EQ(fed.printed, c.answer) << c.text << " by " << length;
      EXPECT_EQ(fed.stopped, c.stopped) << c.text << " by " << length;
    }
  }
  // A piece of several bytes may complete two of them.
  EXPECT_EQ(feed({"cd", "bcde"}, "abcdef", 1).text, "ab");
  EXPECT_EQ(feed({"cd", "bcde"}, "abcdef", 6).text, "a");
}

TEST(AnswerText, PrintsWhatNoStopCanBeginIn) {
  AnswerText answer({"\nQ:", "END"});
  answer.add("four\n");
  EXPECT_EQ(answer.take(false), "four");
  answer.add("Q");
  EXPECT_EQ(answer.take(false), "");
  answer.add("uestion E");
  EXPECT_EQ(answer.take(false), "\nQuestion ");
  EXPECT_EQ(answer.take(true), "E");
}

}  // namespace
}  // namespace tenon
