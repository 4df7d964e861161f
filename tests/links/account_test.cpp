// Time and records of ranks, under both clocks, and their account in summary.json.
#include "links.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::links_test {
namespace {

TEST(TimeAccount, PartsAddUpUnderBothClocks) {
  struct Case {
    const char* name;
    std::string more;
  };
  const std::string pause = "[[transport.straggler]]\nranks = [1]\nkind = 'pause'\nstep = 3\nseconds = 0.4\n";
  const Case cases[] = {
      {"wall", "[transport.link]\nlatency = 0.005\n" + pause},
      {"simulated", std::string(kSimulated) + "[transport.link]\nlatency = 0.005\n" + pause},
  };
  for (const Case& c : cases) {
    const auto begin = std::chrono::steady_clock::now();
    const RunResult result = train({.slots = 20,
                                    .more = c.more + "[recovery]\ntype = 'full'\nevery = 8\n",
                                    .sets = {"run.eval_every=10"},
                                    .hidden = "[64]"});
    const double outside = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_EQ(result.error, "") << c.name;
    ASSERT_EQ(result.communication.size(), 2u);
    for (const RankTime& rank : result.communication) {
      EXPECT_NEAR(parts(rank), rank.total_s, 1e-9) << c.name;
      EXPECT_NEAR(rank.total_s, result.wall_s, 0.02 * result.wall_s + 0.02) << c.name;
      // The rest without a name is small.
      EXPECT_LT(rank.other_s, 0.2 * rank.total_s) << c.name;
      EXPECT_GT(rank.compute_s, 0) << c.name;
      // 20 all-reduces of gradients, 2 latencies each; none of it can hide, for there is one bucket.
      EXPECT_GT(rank.exposed_s, 20 * 0.01 * 0.9) << c.name;
    }
    const RankTime &zero = result.communication[0], &one = result.communication[1];
    EXPECT_NEAR(zero.late_s, 0.4, c.name == std::string("wall") ? 0.2 : 1e-6)
        << c.name << ": waits for rank 1";
    EXPECT_LT(one.late_s, 0.3) << c.name;
    EXPECT_GT(one.compute_s, zero.compute_s + 0.2) << c.name << ": the pause is rank 1's own time";
    EXPECT_GT(zero.evaluate_s + zero.save_s, c.name == std::string("wall") ? 1e-5 : -1e-9) << c.name;
    if (c.name == std::string("wall")) {
      EXPECT_LT(zero.total_s, outside);
    }
    const LinkCounts& gradient = zero.purposes.at("gradient");
    EXPECT_EQ(gradient.operations, 20u);
    EXPECT_EQ(gradient.bytes_sent, result.bytes_by_purpose.at("gradient"));
    EXPECT_GE(gradient.blocked_seconds, gradient.late_seconds);
    EXPECT_GE(gradient.transfer_seconds + 1e-9, gradient.blocked_seconds - gradient.late_seconds);
  }
}

TEST(TimeAccount, WaitingForALateRankIsNoTransfer) {
  const RunResult result =
      train({.slots = 6,
             .more = std::string(kSimulated) + "speed = [1, 0.25]\n[transport.link]\nlatency = 0.125\n"});
  ASSERT_EQ(result.error, "");
  const RankTime &fast = result.communication[0], &slow = result.communication[1];
  EXPECT_DOUBLE_EQ(fast.late_s, 6 * 3.0);
  EXPECT_EQ(slow.late_s, 0);
  EXPECT_DOUBLE_EQ(fast.exposed_s, slow.exposed_s);
  EXPECT_DOUBLE_EQ(fast.purposes.at("gradient").late_seconds, 18);
  EXPECT_DOUBLE_EQ(fast.purposes.at("gradient").transfer_seconds, 6 * 0.25);
  EXPECT_EQ(result.hidden_comm_share, 0);
}

TEST(TimeAccount, IsWrittenDownForEveryRank) {
  const Scratch scratch;
  const RunResult result = train({.slots = 6,
                                  .more = std::string(kSimulated) + "[transport.link]\nlatency = 0.125\n",
                                  .sets = {"run.log_every=2"},
                                  .folder = (scratch / "run").string()});
  ASSERT_EQ(result.error, "");
  const std::string summary = integration::read_file(result.folder + "/summary.json");
  for (const char* text : {"\"communication\": [", "\"late_s\": ", "\"gradient\": {", "\"transfer_s\": 1.5"})
    EXPECT_THAT(summary, testing::HasSubstr(text));
  const std::string metrics = integration::read_file(result.folder + "/metrics.jsonl");
  for (const char* name : {"compute_s", "exposed_comm_s", "late_s"})
    EXPECT_NE(metrics.find(std::string("\"name\": \"") + name + '"'), std::string::npos) << name;
}

TEST(Records, AreDistributionsOverAllRanks) {
  const Scratch scratch;
  const RunResult result = train({.ranks = 3,
                                  .slots = 9,
                                  .strategy = "{type = 'shadow'}",
                                  .sets = {"run.log_every=3"},
                                  .folder = (scratch / "run").string()});
  ASSERT_EQ(result.error, "");
  const Distribution& slots = result.distributions.at("slot_number");
  EXPECT_EQ(slots.count, 27u);
  EXPECT_DOUBLE_EQ(slots.mean, 4);
  EXPECT_EQ(slots.least, 0);
  EXPECT_EQ(slots.most, 8);
  EXPECT_EQ(slots.not_positive, 3u);
  const std::map<int, std::uint64_t> octaves = {{0, 3}, {1, 6}, {2, 12}, {3, 3}};
  EXPECT_EQ(slots.octaves, octaves);
  EXPECT_EQ(result.metrics.at("train/slot_number"), 7) << "the mean of slots 6, 7 and 8 on rank 0";
  const std::string summary = integration::read_file(result.folder + "/summary.json");
  EXPECT_THAT(summary, testing::HasSubstr("\"distributions\": {"));
  EXPECT_THAT(summary, testing::HasSubstr("\"4\": 12"));
}

TEST(Records, ReplicaDriftIsMeasuredWhereAsked) {
  const auto run = [](const char* drift) {
    return train({.ranks = 3,
                  .slots = 8,
                  .strategy = std::string("{type = 'local_sgd', interval = 4, drift = ") + drift + "}"});
  };
  const RunResult quiet = run("false");
  ASSERT_EQ(quiet.error, "");
  EXPECT_EQ(quiet.distributions.count("replica_drift"), 0u);
  const RunResult asked = run("true");
  ASSERT_EQ(asked.error, "");
  EXPECT_EQ(asked.weights_hash, quiet.weights_hash);
  // Against the weights that the test saw before the two synchronisation rounds.
  double sum = 0, most = 0, spread = 0;
  for (const std::size_t t : {3u, 7u}) {
    std::vector<Weights> before;
    for (const auto& [replica, trace] : sync_test::watch.replicas) before.push_back(trace.before.at(t));
    Weights mean(before[0].size());
    double length = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      const auto [low, high] = std::minmax({before[0][i], before[1][i], before[2][i]});
      spread = std::max(spread, high - low);
      mean[i] = (before[0][i] + before[1][i] + before[2][i]) / 3;
      length += mean[i] * mean[i];
    }
    for (const Weights& weights : before) {
      double distance = 0;
      for (std::size_t i = 0; i < mean.size(); ++i) distance += std::pow(weights[i] - mean[i], 2);
      sum += std::sqrt(distance / length);
      most = std::max(most, std::sqrt(distance / length));
    }
  }
  const Distribution& drift = asked.distributions.at("replica_drift");
  EXPECT_EQ(drift.count, 6u);
  EXPECT_NEAR(drift.mean, sum / 6, 1e-5 * sum);
  EXPECT_NEAR(drift.most, most, 1e-5 * most);
  EXPECT_NEAR(asked.distributions.at("replica_spread").most, spread, 1e-6 * spread);
  // Three all-reduces beside the one of each synchronisation round, whose traffic is unchanged.
  EXPECT_EQ(asked.bytes_by_purpose.at("parameter"), quiet.bytes_by_purpose.at("parameter"));
  const auto statistics = [](const RunResult& result) {
    const auto found = result.bytes_by_purpose.find("statistics");
    return found == result.bytes_by_purpose.end() ? 0 : found->second;
  };
  EXPECT_EQ(statistics(asked) - statistics(quiet), 3 * quiet.bytes_by_purpose.at("parameter"));
}

}  // namespace
}  // namespace tenon::links_test
