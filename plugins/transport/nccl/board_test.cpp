// Questions between processes: accepted and rejected clients, and the errors for ranks that are gone.
#include "board.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace tenon::nccl_transport {
namespace {

TEST(NcclBoard, AnswersThoseWhoKnowItsWord) {
  Board board("word", "lo", [](std::string_view question) { return "you asked " + std::string(question); });
  BoardPlace place = BoardPlace::read(board.place().text(), 1);
  EXPECT_EQ(place.port, board.place().port);
  const Answer answer = ask(place, "word", "at 7", 5);
  EXPECT_TRUE(answer.reached);
  EXPECT_EQ(answer.text, "you asked at 7");
  EXPECT_FALSE(ask(place, "wrong", "at 7", 5).reached);
  EXPECT_FALSE(ask(place, "word2", "at 7", 5).reached);
  EXPECT_FALSE(ask(place, "word", std::string(10000, 'x'), 5).reached) << "nobody asks that much";
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(ask(place, "word", "again", 5).reached);
}

TEST(NcclBoard, ThatHasEndedRefuses) {
  auto board = std::make_unique<Board>("word", "", [](std::string_view) { return std::string("yes"); });
  BoardPlace place = BoardPlace::read(board->place().text(), 1);
  board.reset();
  const Answer answer = ask(place, "word", "at 7", 5);
  EXPECT_FALSE(answer.reached);
  EXPECT_EQ(answer.text, "Connection refused");
}

TEST(NcclBoard, TriesTheNextAddressAndRemembersIt) {
  Board board("word", "lo", [](std::string_view) { return std::string("yes"); });
  BoardPlace place{"elsewhere", board.place().port, {"::ffff:0:0", "127.0.0.1"}};
  place.addresses[0] = "127.0.0.2";
  place.addresses.insert(place.addresses.begin(), "255.255.255.255");
  EXPECT_TRUE(ask(place, "word", "x", 5).reached);
  EXPECT_THAT(place.addresses[0], ::testing::StartsWith("127.0.0."));
  BoardPlace nowhere{"elsewhere", 1, {}};
  EXPECT_EQ(ask(nowhere, "word", "x", 1).text, "it told no address");
}

TEST(NcclBoard, AnnouncementsOfOthersAreRefusedWithTheirRank) {
  for (const char* text :
       {"", "place", "place 70000 127.0.0.1", "place 0 127.0.0.1", "place 5 host.name", "place x 1.2.3.4"}) {
    try {
      BoardPlace::read(text, 3);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 3 announced '"));
    }
  }
}

}  // namespace
}  // namespace tenon::nccl_transport
