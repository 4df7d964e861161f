// T19: a rank dies, hangs, is slow or loses its link, between two synchronisation rounds or in one. Within
// the deadline every other rank ends with one error that names it; no replica's weights ever hold a part of
// an average; and the attempt, continued, has the bits of an undisturbed run.
#include "links.hpp"

#include <regex>

namespace tenon::links_test {
namespace {

struct Strategy {
  const char* name;
  const char* table;
};
constexpr Strategy kStrategies[] = {
    {"ddp", "{type = 'ddp'}"},
    {"local_sgd", "{type = 'local_sgd', interval = 4}"},
    {"diloco", "{type = 'diloco', interval = 4}"},
    {"palsgd", "{type = 'palsgd', interval = 4, warmup = 2, p = 0.3}"},
};

struct Fault {
  const char* name;
  const char* table;
  const char* error;  ///< the run's message; "" if it goes on
};
// Local strategies synchronise at the ends of slots 3, 7 and 11: slot 9 is in the middle of an interval.
constexpr Fault kFaults[] = {
    {"dies between sync rounds", "kind = 'crash'", "rank 1 died in slot 9, before a slot"},
    {"dies in a backward", "kind = 'crash'\nphase = 'backward'", "rank 1 died in slot"},
    {"dies in a collective", "kind = 'crash'\nphase = 'collective'",
     "in a collective (injected by [[fault]])"},
    {"hangs", "kind = 'hang'", "rank 1 did not join"},
    {"hangs in a collective", "kind = 'hang'\nphase = 'collective'", "rank 1 did not join"},
    {"loses its link", "kind = 'link'", "rank 1: its link is down since slot 9, found at all-reduce"},
    {"F8 is slow", "kind = 'slow'\nseconds = 0.3", ""},
};

class Faults : public testing::TestWithParam<std::tuple<Strategy, Fault>> {};

Trial run_of(const Strategy& strategy, const Scratch& scratch, const char* folder) {
  return {.ranks = 3,
          .slots = 14,
          .strategy = strategy.table,
          .more = "[recovery]\ntype = 'full'\nevery = 4\n",
          .sets = {"run.deadline=1.5"},
          .folder = (scratch / folder).string()};
}

TEST_P(Faults, T19_EndInOneErrorAndGoOnWithTheSameBits) {
  const auto& [strategy, fault] = GetParam();
  const Scratch scratch;
  const RunResult whole = train(run_of(strategy, scratch, "whole"));
  ASSERT_EQ(whole.error, "");
  const std::map<int, Trace> undisturbed = sync_test::watch.replicas;

  Trial run = run_of(strategy, scratch, "faulty");
  run.more += std::string("[[fault]]\nrank = 1\nstep = 9\n") + fault.table + "\n";
  const auto begin = std::chrono::steady_clock::now();
  const RunResult faulty = train(run);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::map<int, Trace> disturbed = sync_test::watch.replicas;
  ASSERT_EQ(disturbed.size(), 3u);
  for (const auto& [replica, trace] : disturbed) {
    const Trace& expected = undisturbed.at(replica);
    // Strategies that synchronise every four slots may be interrupted anywhere after their last round.
    ASSERT_GE(trace.live.size(), 8u);
    ASSERT_LE(trace.live.size(), expected.live.size());
    for (std::size_t t = 0; t < trace.live.size(); ++t)
      ASSERT_EQ(trace.live[t], expected.live[t]) << "replica " << replica << " after slot " << t;
  }
  if (std::string_view(fault.error).ends_with("in slot 9, before a slot")) {
    EXPECT_EQ(disturbed.at(1).live.size(), 9u) << "slots 0 to 8 and none after";
  }
  if (fault.error[0] == '\0') {
    EXPECT_EQ(faulty.error, "");
    EXPECT_EQ(faulty.weights_hash, whole.weights_hash);
    EXPECT_GT(faulty.communication.at(0).late_s, 0.2) << "the others wait for it";
    EXPECT_GT(faulty.communication.at(2).late_s, 0.2);
    EXPECT_LT(faulty.communication.at(1).late_s, faulty.communication.at(0).late_s) << "and it for nobody";
    return;
  }
  EXPECT_EQ(faulty.status, "failed");
  EXPECT_EQ(faulty.exit_status, 1);
  EXPECT_THAT(faulty.error, testing::HasSubstr(fault.error));
  EXPECT_THAT(faulty.error, testing::HasSubstr("rank 1"));
  if (std::string_view(fault.table).starts_with("kind = 'hang'")) {
    EXPECT_THAT(faulty.error, testing::ContainsRegex("rank [02] in slot [0-9]+, during the "))
        << "who missed it, and where";
    EXPECT_LT(took, 15) << "a deadline of 1.5 s passed once";
    for (const char* log : {"/log.rank0.txt", "/log.rank1.txt", "/log.rank2.txt"})
      EXPECT_THAT(integration::read_file(faulty.folder + log),
                  testing::ContainsRegex("the run failed, after [0-9.]+ s in phase '[a-z]+': rank "))
          << log << ": where each rank was";
    EXPECT_THAT(integration::read_file(faulty.folder + "/log.rank0.txt"),
                testing::HasSubstr("in phase 'communication'"));
  } else {
    EXPECT_LT(took, 10) << "nobody waited for a deadline";
  }
  run.resume = true;
  const RunResult resumed = train(run);
  ASSERT_EQ(resumed.error, "") << "an attempt that is continued injects nothing";
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Combine(testing::ValuesIn(kStrategies), testing::ValuesIn(kFaults)),
                         [](const auto& info) {
                           std::string name =
                               std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(FaultsInVirtualTime, AHangingRankIsMissedAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const RunResult result =
      train({.ranks = 3,
             .slots = 8,
             .more = std::string(kSimulated) +
                     "[[fault]]\nrank = 2\nstep = 5\nkind = 'hang'\nphase = 'forward'\n"});
  EXPECT_THAT(result.error, testing::HasSubstr("rank 2 did not join all_reduce"));
  EXPECT_THAT(result.error, testing::HasSubstr("in slot 5"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "of a deadline of 300";
}

TEST(FaultsInVirtualTime, F8_ASlowRankAndALinkThatComesBackCostTheirSeconds) {
  for (const char* kind : {"slow", "hang", "link"}) {
    const RunResult result =
        train({.more = std::string(kSimulated) + "[[fault]]\nrank = 1\nstep = 2\nseconds = 7\nkind = '" +
                       kind + "'\n"});
    ASSERT_EQ(result.error, "") << kind;
    EXPECT_DOUBLE_EQ(result.communication.at(0).late_s, 7) << kind;
    EXPECT_DOUBLE_EQ(result.wall_s, 4 + 7) << kind;
  }
}

TEST(FaultsInVirtualTime, F8_ASlowRankIsReportedAndNotEnded) {
  const Scratch scratch;
  const RunResult result =
      train({.ranks = 3,
             .more = std::string(kSimulated) +
                     "[[transport.straggler]]\nranks = [1]\nkind = 'pause'\nstep = 2\nseconds = 30\n",
             .folder = (scratch / "run").string()});
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.status, "completed");
  // The rank that the others waited for is the one that did not wait.
  const std::string summary = integration::read_file(result.folder + "/summary.json");
  std::vector<double> late_s;
  const std::regex pattern("\"late_s\": ([-0-9.e+]+)");
  const std::string ranks = summary.substr(summary.find("\"communication\": ["));
  for (std::sregex_iterator found(ranks.begin(), ranks.end(), pattern), end; found != end; ++found)
    late_s.push_back(std::stod((*found)[1]));
  EXPECT_THAT(late_s, testing::Contains(30.0)) << summary;
  EXPECT_DOUBLE_EQ(result.communication.at(0).late_s, 30);
  EXPECT_DOUBLE_EQ(result.communication.at(1).late_s, 0);
  EXPECT_DOUBLE_EQ(result.communication.at(2).late_s, 30);
  EXPECT_THAT(integration::read_file(result.folder + "/log.rank0.txt"),
              testing::HasSubstr("rank 1 is slow: the others waited 30.0 s for it"));
}

TEST(FaultsInVirtualTime, NobodyIsCalledSlowWhereRanksAreAlike) {
  const Scratch scratch;
  const RunResult result = train({.ranks = 3, .more = kSimulated, .folder = (scratch / "run").string()});
  ASSERT_EQ(result.error, "");
  EXPECT_THAT(integration::read_file(result.folder + "/log.rank0.txt"),
              testing::Not(testing::HasSubstr("is slow")));
}

TEST(FaultsInVirtualTime, ALinkToOnePeerLeavesOtherGroupsAlone) {
  // Every group of this run has all three ranks, so the peer is always a member; a rank outside the world is
  // refused.
  const RunResult result =
      train({.ranks = 3,
             .more = std::string(kSimulated) + "[[fault]]\nrank = 1\nstep = 2\nkind = 'link'\npeer = 2\n"});
  EXPECT_THAT(result.error, testing::HasSubstr("rank 1: its link to rank 2 is down since slot 2"));
  try {
    train({.more = "[[fault]]\nrank = 1\nstep = 2\nkind = 'link'\npeer = 2\n"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("[[fault]] names rank 2, but the world has 2 ranks"));
  }
}

TEST(FaultsInVirtualTime, AServerHasNone) {
  try {
    train({.more = "[[fault]]\nrank = 2\nstep = 2\nkind = 'crash'\n", .sets = {"parallel.servers=1"}});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("rank 2 is a server; faults happen to ranks that train, 0 to 1"));
  }
}

}  // namespace
}  // namespace tenon::links_test
