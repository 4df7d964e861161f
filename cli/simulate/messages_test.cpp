// The lines between the program and its workers.
#include "simulate/messages.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::simulate {
namespace {

using ::testing::HasSubstr;

std::string without_end(std::string line) {
  EXPECT_EQ(line.back(), '\n');
  line.pop_back();
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return line;
}

TEST(Messages, OrdersSurviveARoundTrip) {
  for (const Order& order : {Order{0, Fate::kRun}, Order{12345678901, Fate::kRun}, Order{7, Fate::kCrash},
                             Order{8, Fate::kHang}}) {
    const Order again = parse_order(without_end(order_line(order)));
    EXPECT_EQ(again.index, order.index);
    EXPECT_EQ(again.fate, order.fate);
  }
}

TEST(Messages, AnswersSurviveARoundTrip) {
  using Kind = Answer::Kind;
  const std::string digest(32, 'a');
  for (const Answer& answer : {Answer{}, Answer{.kind = Kind::kStep, .done = 3, .total = 100},
                               Answer{.kind = Kind::kDone, .digest = digest},
                               Answer{.kind = Kind::kFailed, .failure = "error", .text = "a\nb \\n \\ c"},
                               Answer{.kind = Kind::kFailed, .failure = "files"}}) {
    const Answer again = parse_answer(without_end(answer_line(answer)));
    EXPECT_EQ(again.kind, answer.kind);
    EXPECT_EQ(again.done, answer.done);
    EXPECT_EQ(again.total, answer.total);
    EXPECT_EQ(again.digest, answer.digest);
    EXPECT_EQ(again.failure, answer.failure);
    EXPECT_EQ(again.text, answer.text);
  }
}

TEST(Messages, OthersAreRefusedWithTheirWords) {
  for (const char* line : {"", "hello", "ready now", "step", "step 3", "step -1 3", "step 1 2 3", "done",
                           "done abc", "done 0123456789ABCDEF0123456789ABCDEF", "failed", "failed badly x"}) {
    try {
      parse_answer(line);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRun);
      EXPECT_THAT(error.what(), HasSubstr(std::string("found '") + line + "'"));
    }
  }
  for (const char* line : {"", "run", "run x", "run -1", "walk 3", "run 3 4", "run 99999999999999999999"})
    EXPECT_THROW(parse_order(line), Error) << line;
}

TEST(Messages, ArriveInAnyPieces) {
  const std::string text = "ready\nstep 1 2\nfailed error x\n";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    Lines lines;
    std::vector<std::string> found;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      lines.add(std::string_view(text).substr(at, piece));
      for (std::string line; lines.next(line);) found.push_back(line);
    }
    EXPECT_EQ(found, (std::vector<std::string>{"ready", "step 1 2", "failed error x"})) << piece;
  }
}

TEST(Messages, ALineWithoutEndIsRefused) {
  Lines lines;
  EXPECT_THROW(lines.add(std::string((std::size_t{1} << 20) + 1, 'x')), Error);
}

}  // namespace
}  // namespace tenon::simulate
