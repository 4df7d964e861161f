// Lanes by the viewers' nesting rule, the text of events, the window of slots, and files without an end.
#include "trace.hpp"

#include "base/testing/allocation_count.hpp"
#include "store/testing/memory_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace tenon::trace {
namespace {

using ::testing::HasSubstr;

TEST(Lanes, OverlappingSpansGetLanesOfTheirOwn) {
  Lanes lanes;
  EXPECT_EQ(lanes.place("compute", 0, 10).lane, 0);
  EXPECT_EQ(lanes.place("overlap", 2, 9).lane, 1);
  const Lanes::Place second = lanes.place("overlap", 3, 12);
  EXPECT_EQ(second.lane, 2);
  EXPECT_TRUE(second.opened);
  EXPECT_EQ(lanes.name(2), "overlap 2");
  EXPECT_EQ(lanes.place("compute", 10, 20).lane, 0) << "it may begin where the last one ended";
  EXPECT_FALSE(lanes.place("overlap", 9, 11).opened);
  EXPECT_EQ(lanes.place("overlap", 10, 13).lane, 3);
}

TEST(Lanes, AnySpansInAnyOrderNeverOverlapInALane) {
  std::mt19937 random(5);
  Lanes lanes;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> placed(200);
  for (int i = 0; i < 2000; ++i) {
    const auto begin = static_cast<std::int64_t>(random() % 1000 + static_cast<unsigned>(i) * 100);
    const auto end = begin + static_cast<std::int64_t>(random() % 800);
    const int lane = lanes.place(random() % 2 == 0 ? "a" : "b", begin, end).lane;
    auto& line = placed.at(lane);
    if (!line.empty()) {
      EXPECT_GE(begin, line.back().second);
    }
    line.emplace_back(begin, end);
  }
}

class TraceTest : public ::testing::Test {
 protected:
  TraceTest()
      : folder_(std::filesystem::temp_directory_path() / ("tenon-trace-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    info_.folder = folder_.string();
    info_.rank = 1;
  }
  ~TraceTest() override { std::filesystem::remove_all(folder_); }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static SlotRecord slot(std::int64_t number) {
    SlotRecord record;
    record.slot = number;
    return record;
  }

  std::filesystem::path folder_;
  RunInfo info_;
};

TEST_F(TraceTest, EventsOfARank) {
  Trace trace(0, 0, make_posix_files());
  EXPECT_EQ(trace.query(kSpanObserverId), &trace);
  EXPECT_TRUE(trace.every_rank());
  trace.on_start(info_);
  trace.on_span({"compute", "for\"ward\n", 0.0000015, 0.25});
  trace.on_slot(slot(0));
  trace.on_finish("completed", "");
  EXPECT_EQ(
      content("trace.rank1.json"),
      "[\n"
      R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"rank 1"}},)"
      "\n"
      R"({"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"compute"}},)"
      "\n"
      R"({"ph":"X","name":"for\"ward\u000a","cat":"compute","pid":1,"tid":0,"ts":1.500,"dur":249998.500,)"
      R"("args":{"slot":0}})"
      "\n]\n");
  EXPECT_EQ(nlohmann::json::parse(content("trace.rank1.json")).size(), 3u);
}

TEST_F(TraceTest, AnEndIsNotNeeded) {
  Trace trace(0, 0, make_posix_files());
  trace.on_start(info_);
  for (int i = 0; i < 2000; ++i) trace.on_span({"compute", "forward", 0.001 * i, 0.001 * i + 0.0005});
  // A killed process leaves whole blocks. Viewers close the array; so does this test.
  const std::string text = content("trace.rank1.json");
  ASSERT_GT(text.size(), 60000u);
  EXPECT_EQ(text.back(), '}');
  EXPECT_GT(nlohmann::json::parse(text + "]").size(), 400u);
}

TEST_F(TraceTest, OnlyTheWindowOfSlots) {
  Trace trace(2, 3, make_posix_files());
  trace.on_start(info_);
  for (int i = 0; i < 10; ++i) {
    trace.on_span({"compute", "forward", 1.0 * i, i + 0.5});
    trace.on_slot(slot(i));
  }
  trace.on_finish("completed", "");
  const auto events = nlohmann::json::parse(content("trace.rank1.json"));
  std::vector<int> slots;
  for (const auto& event : events) {
    if (event["ph"] == "X") slots.push_back(event["args"]["slot"]);
  }
  EXPECT_THAT(slots, ::testing::ElementsAre(2, 3, 4));
}

TEST_F(TraceTest, AResumedRunKeepsTheEarlierTimeline) {
  std::ofstream(folder_ / "trace.rank1.json") << "[]";
  info_.first_slot = 40;
  Trace trace(0, 0, make_posix_files());
  trace.on_start(info_);
  trace.on_finish("completed", "");
  EXPECT_EQ(content("trace.rank1.json"), "[]");
  EXPECT_THAT(content("trace.rank1.slot40.json"), HasSubstr("rank 1"));
}

TEST_F(TraceTest, ASteadySpanAllocatesNothing) {
  Trace trace(0, 0, make_posix_files());
  trace.on_start(info_);
  trace.on_span({"compute", "forward", 0, 1});
  const auto before = testing::allocation_count();
  for (int i = 1; i < 1000; ++i) trace.on_span({"compute", "forward", 1.0 * i, i + 0.5});
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::trace
