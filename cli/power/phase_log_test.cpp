// Timelines of runs as phases, cut-off files, and CSV files that a meter must refuse, each with its line.
#include "power/phase_log.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

namespace tenon::power {
namespace phase_log_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string span(const char* track, const char* name, double begin_us, double length_us, int slot = 0) {
  return fmt::format(
      R"({{"ph":"X","name":"{}","cat":"{}","pid":0,"tid":0,"ts":{:.3f},"dur":{:.3f},"args":{{"slot":{}}}}})",
      name, track, begin_us, length_us, slot);
}

std::string file(const std::vector<std::string>& events, bool closed = true) {
  std::string text =
      "[\n" + std::string(R"({"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0"}})");
  for (const std::string& event : events) text += ",\n" + event;
  return closed ? text + "\n]\n" : text;
}

std::vector<std::string> shown(const PhaseLog& log) {
  std::vector<std::string> out;
  for (const Phase& phase : log.phases)
    out.push_back(fmt::format("{} {:g}-{:g}", phase.name, phase.begin_s, phase.end_s));
  return out;
}

template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(PhaseLog, SpansBecomePhasesByPreference) {
  const PhaseLog log =
      parse_timeline(file({span("data", "batch", 0, 1e6), span("compute", "forward", 1e6, 2e6),
                           span("compute", "backward", 3e6, 3e6), span("overlap", "all", 3e6, 4e6),
                           span("communication", "wait", 5e6, 2e6), span("save", "write", 6e6, 3e6),
                           span("compute", "optimizer", 7e6, 1e6), span("layer", "x", 0, 9e6),
                           span("compute", "forward", 10e6, 1e6)}),
                     "trace.rank0.json");
  EXPECT_THAT(shown(log), ElementsAre("data 0-1", "forward 1-3", "backward 3-5", "communication 5-7",
                                      "optimizer 7-8", "save 8-9", "idle 9-10", "forward 10-11"));
  EXPECT_THAT(log.notes, IsEmpty());
}

TEST(PhaseLog, DeclaredCostsAreComputeWhereverTheyLie) {
  // As the simulated clock leaves them: inside of forward and backward, and alone for an update.
  const PhaseLog log =
      parse_timeline(file({span("compute", "forward", 0, 1e6), span("declared", "declared", 0, 1e6),
                           span("compute", "backward", 1e6, 2e6), span("declared", "declared", 1e6, 2e6),
                           span("communication", "all-reduce", 3e6, 1e6),
                           span("compute", "optimizer", 4e6, 0), span("declared", "declared", 4e6, 1e6),
                           span("declared", "straggler", 5e6, 1e6), span("compute", "forward", 6e6, 1e6)}),
                     "t.json");
  EXPECT_THAT(shown(log), ElementsAre("forward 0-1", "backward 1-3", "communication 3-4", "optimizer 4-5",
                                      "idle 5-6", "forward 6-7"));
}

TEST(PhaseLog, NamesOfTimelines) {
  TimelineFile found;
  EXPECT_TRUE(is_timeline("trace.rank12.json", found));
  EXPECT_EQ(found.rank, 12);
  EXPECT_EQ(found.first_slot, 0);
  EXPECT_TRUE(is_timeline("trace.rank3.slot400.json", found));
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.first_slot, 400);
  for (const char* other : {"trace.json", "trace.rank.json", "trace.rank-1.json", "trace.rank1.slot.json",
                            "trace.rank1.slot4.json.part", "trace.rank1", "metrics.jsonl", ""})
    EXPECT_FALSE(is_timeline(other, found)) << other;
}

TEST(PhaseLog, ASegmentEndsWhereTheResumedOneBegins) {
  // Killed in slot 3, resumed from the save before slot 2, whose clock begins again.
  const std::string before =
      file({span("compute", "forward", 0, 1e6, 0), span("compute", "forward", 2e6, 1e6, 1),
            span("compute", "forward", 4e6, 1e6, 2), span("compute", "forward", 6e6, 1e6, 3)},
           false);
  const std::string after = file({span("compute", "backward", 0.5e6, 1e6, 2)});
  Segments segments;
  segments[0][0] = parse_timeline(before, "a.json", 2);
  EXPECT_THAT(shown(segments[0][0]), ElementsAre("forward 0-1", "idle 1-2", "forward 2-3"));
  segments[0][1] = parse_timeline(file({span("communication", "wait", 1e6, 4e6, 1)}), "b.json", 2);
  segments[2][0] = parse_timeline(after, "a.slot2.json");
  segments[2][1] = parse_timeline(file({span("compute", "forward", 0.7e6, 1e6, 2)}), "b.slot2.json");
  const std::vector<PhaseLog> logs = joined(segments);
  ASSERT_EQ(logs.size(), 2u);
  // Rank 1 came to 5 s; there the clock of both goes on from its 0.5 s.
  EXPECT_THAT(shown(logs[0]),
              ElementsAre("forward 0-1", "idle 1-2", "forward 2-3", "idle 3-5", "backward 5-6"));
  EXPECT_THAT(shown(logs[1]), ElementsAre("communication 1-5", "idle 5-5.2", "forward 5.2-6.2"));
  EXPECT_THAT(logs[0].notes, ElementsAre("a.json: the file has no end; it is read as far as it goes"));
  // Nothing before the resumed segment is no damage, unlike a file without spans.
  EXPECT_THAT(parse_timeline(before, "a.json", 0).phases, IsEmpty());
}

TEST(PhaseLog, ATruncatedFileIsReadAsFarAsItGoes) {
  const std::string whole =
      file({span("compute", "forward", 0, 1e6), span("communication", "wait", 1e6, 1e6)}, false);
  const PhaseLog open = parse_timeline(whole, "t.json");
  EXPECT_THAT(shown(open), ElementsAre("forward 0-1", "communication 1-2"));
  EXPECT_THAT(open.notes, ElementsAre("t.json: the file has no end; it is read as far as it goes"));
  const PhaseLog cut = parse_timeline(whole.substr(0, whole.size() - 20), "t.json");
  EXPECT_THAT(shown(cut), ElementsAre("forward 0-1"));
  EXPECT_THAT(cut.notes,
              ElementsAre("t.json:4: the file ends inside of an event; it is read as far as it goes"));
}

TEST(PhaseLog, DamageNamesFileAndLine) {
  const std::string good = span("compute", "forward", 0, 1e6);
  EXPECT_THAT(refusal([&] { parse_timeline("[\n{broken\n" + good + "\n]\n", "t.json"); }),
              HasSubstr("t.json:2: "));
  EXPECT_THAT(refusal([&] {
                parse_timeline(
                    "[\n" + good + ",\n" + R"({"ph":"X","cat":"compute","name":"forward","ts":1})" + "\n]\n",
                    "t.json");
              }),
              HasSubstr("t.json:3: a span has no number 'dur'"));
  EXPECT_THAT(refusal([&] { parse_timeline(file({span("compute", "forward", -5, 1e6)}), "t.json"); }),
              HasSubstr("t.json:3: 'ts' is"));
  EXPECT_THAT(refusal([&] { parse_timeline(file({span("compute", "forward", 0, 1e300)}), "t.json"); }),
              HasSubstr("t.json:3: 'dur' is"));
  EXPECT_THAT(refusal([] { parse_timeline("", "t.json"); }), HasSubstr("t.json: found no span"));
  EXPECT_THAT(refusal([&] { parse_timeline(file({}), "t.json"); }), HasSubstr("t.json: found no span"));
}

TEST(PhaseLog, RanksThatDoNotOverlap) {
  const std::vector<PhaseLog> logs{{"a.json", {{0, 2, "forward"}}, {}}, {"b.json", {{3, 4, "forward"}}, {}}};
  EXPECT_THAT(refusal([&] { require_overlap(logs); }),
              HasSubstr("b.json begins at 3 s, after a.json ends at 2 s"));
  EXPECT_EQ(refusal([&] { require_overlap({logs[0], logs[0]}); }), "accepted");
}

TEST(PowerCsv, ReadsHeadingsCommentsAndEqualSteps) {
  const Trace trace =
      parse_power_csv("# rack 7\nseconds,watts\n0,10\n0.5, 20\r\n1.0,30\n\n1.5,40\n", "a.csv");
  EXPECT_THAT(trace.watts, ElementsAre(10, 20, 30, 40));
  EXPECT_NEAR(trace.rate_hz, 2, 1e-12);
}

TEST(PowerCsv, BadLinesNameFileAndLine) {
  struct Case {
    const char* text;
    const char* said;
  };
  for (const Case& c : {
           Case{"0,1\n1,2\n2,x\n3,4\n", "a.csv:3: expected 'seconds,watts', found '2,x'"},
           Case{"0,1\n1,nan\n2,3\n3,4\n", "a.csv:2: '1,nan' is not finite"},
           Case{"0,1\n1,inf\n2,3\n3,4\n", "a.csv:2: '1,inf' is not finite"},
           Case{"0,1\n1,-2\n2,3\n3,4\n", "a.csv:2: -2 W; power is not negative"},
           Case{"t,w\n0,1\n1,2\n1,3\n2,4\n", "a.csv:4: 1 s repeats 1 s on line 3; times ascend"},
           Case{"0,1\n2,2\n1,3\n3,4\n", "a.csv:3: 1 s comes after 2 s on line 2; times ascend"},
           Case{"0,1\n1,2\n2,3\n5,4\n6,5\n",
                "a.csv:4: 3 s after the line before, where steps are 1 s: samples are missing"},
           Case{"0,1\n1,2\n2,3\n3.2,4\n4.2,5\n",
                "a.csv:4: 1.2 s after the line before, where steps are 1 s: samples are unequally spaced"},
           Case{"0,1\n1,2\n2,3\n", "a.csv: 3 samples, expected at least 4"},
           Case{"0;1\n", "a.csv:1: expected 'seconds,watts'"},
           Case{"t,w\nt,w\n", "a.csv: 0 samples"},
       })
    EXPECT_THAT(refusal([&] { parse_power_csv(c.text, "a.csv"); }), HasSubstr(c.said)) << c.text;
}

}  // namespace phase_log_test
}  // namespace tenon::power
