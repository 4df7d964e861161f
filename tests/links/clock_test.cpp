// The simulated clock's costs, stragglers and slow links, against closed forms.
#include "links.hpp"

namespace tenon::links_test {
namespace {

/// Compute seconds of a whole run, for one rank.
double compute_of(const RunResult& result, std::size_t rank) {
  return result.communication.at(rank).compute_s;
}

TEST(SimulatedCompute, CostsAddUp) {
  const RunResult result = train({.slots = 5,
                                  .more = std::string(kSimulated) + "optimizer_seconds = 0.25\n",
                                  .sets = {"run.accumulate=2"}});
  ASSERT_EQ(result.error, "");
  for (const RankTime& rank : result.communication) {
    EXPECT_DOUBLE_EQ(rank.compute_s, 5 * (2 * 1.0 + 0.25));
    EXPECT_DOUBLE_EQ(rank.total_s, rank.compute_s) << "an unlimited link takes no time";
    EXPECT_EQ(rank.late_s, 0);
  }
  EXPECT_DOUBLE_EQ(result.wall_s, 5 * 2.25);
}

TEST(SimulatedCompute, AMixingSlotHasItsOwnCost) {
  const RunResult result = train({.slots = 40,
                                  .strategy = "{type = 'palsgd', interval = 50, warmup = 0, p = 0.3}",
                                  .more = std::string(kSimulated) + "mix_seconds = 0.125\n"});
  ASSERT_EQ(result.error, "");
  for (int replica = 0; replica < 2; ++replica) {
    const auto& kinds = sync_test::watch.replicas.at(replica).kinds;
    const auto mixes = static_cast<double>(std::count(kinds.begin(), kinds.end(), SlotKind::kMix));
    EXPECT_GT(mixes, 3);
    EXPECT_NEAR(compute_of(result, static_cast<std::size_t>(replica)), (40 - mixes) + 0.125 * mixes, 1e-9);
  }
}

// T_step = forward + max(backward, max over buckets of (ready + all transfers from there on)).
TEST(SimulatedCompute, BucketsComeSpreadOverTheBackwardAndOverlapIt) {
  const Trial run{.slots = 2,
                  .strategy = "{type = 'timed', inner = {type = 'ddp'}}",
                  .more = std::string(kSimulated) + "[transport.link]\nbandwidth = 1.0e7\nlatency = 0.01\n",
                  .hidden = "[512, 512, 512]"};
  const RunResult result = train(run);
  ASSERT_EQ(result.error, "");
  for (int replica = 0; replica < 2; ++replica) {
    const std::vector<Ready>& ready = times.ready.at(replica);
    ASSERT_EQ(ready.size(), 4u) << "two buckets in each of two slots";
    // Buckets have padding between parameters, a few elements of hundreds of thousands.
    constexpr double kPadding = 1e-4;
    const double all = static_cast<double>(ready[0].elements + ready[1].elements);
    const double first_share = static_cast<double>(ready[0].elements) / all;
    EXPECT_GT(first_share, 0.2);
    EXPECT_LT(first_share, 0.5);
    const double begin = ready[1].at_s - 1;  // the last bucket comes with the end of the backward
    EXPECT_NEAR(ready[0].at_s, begin + 0.5 + 0.5 * first_share, kPadding);
    const double latency = 2 * 0.01;
    const auto transfer = [](const Ready& bucket) {
      return 4.0 * static_cast<double>(bucket.elements) / 1e7;
    };
    const double first_end = 0.5 + 0.5 * first_share + transfer(ready[0]) + latency;
    const double last_end = std::max(1.0, first_end) + transfer(ready[1]) + latency;
    EXPECT_NEAR(times.after_step.at(replica)[0], begin + last_end, kPadding);
    const RankTime& time = result.communication.at(replica);
    EXPECT_NEAR(time.total_s, 2 * last_end, 0.2) << "and the loss of the logs";
    const double sent = 2 * (transfer(ready[0]) + transfer(ready[1]) + 2 * latency);
    const LinkCounts& gradient = time.purposes.at("gradient");
    EXPECT_NEAR(gradient.transfer_seconds, sent, kPadding);
    EXPECT_NEAR(gradient.blocked_seconds, 2 * (last_end - 1), kPadding);
    EXPECT_EQ(gradient.late_seconds, 0);
  }
  EXPECT_GT(result.hidden_comm_share, 0.2);
  EXPECT_LT(result.hidden_comm_share, 0.9);
}

TEST(SimulatedCompute, SpeedsAreRelativeAndTheSlowestSetsThePace) {
  const RunResult result =
      train({.ranks = 3, .slots = 4, .more = std::string(kSimulated) + "speed = [1, 0.5, 2.0]\n"});
  ASSERT_EQ(result.error, "");
  EXPECT_DOUBLE_EQ(result.wall_s, 8);
  const double compute[] = {4, 8, 2};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const RankTime& time = result.communication[rank];
    EXPECT_DOUBLE_EQ(time.compute_s, compute[rank]);
    EXPECT_DOUBLE_EQ(time.late_s, 8 - compute[rank]) << "the wait for the slow one, and no transfer";
    EXPECT_EQ(time.exposed_s, 0);
    EXPECT_DOUBLE_EQ(parts(time), time.total_s);
  }
}

TEST(Straggler, AConstantFactorAndAPause) {
  const RunResult factor =
      train({.more = std::string(kSimulated) +
                     "[[transport.straggler]]\nranks = [1]\nkind = 'factor'\nfactor = 1.5\n"});
  ASSERT_EQ(factor.error, "");
  EXPECT_DOUBLE_EQ(factor.wall_s, 4 * 1.5);
  EXPECT_DOUBLE_EQ(factor.communication[0].late_s, 4 * 0.5);
  const RunResult pause =
      train({.strategy = "{type = 'timed', inner = {type = 'ddp'}}",
             .more = std::string(kSimulated) +
                     "[[transport.straggler]]\nranks = [0, 1]\nkind = 'pause'\nstep = 2\nseconds = 30\n"});
  ASSERT_EQ(pause.error, "");
  EXPECT_DOUBLE_EQ(pause.wall_s, 4 + 30);
  const std::vector<double>& ends = times.after_step.at(1);
  EXPECT_DOUBLE_EQ(ends[1] - ends[0], 1);
  EXPECT_DOUBLE_EQ(ends[2] - ends[1], 31) << "before slot 2 and no other";
  EXPECT_DOUBLE_EQ(ends[3] - ends[2], 1);
}

TEST(Straggler, ExponentialDelaysAreDrawnBySeedRankAndSlotAlone) {
  const auto run = [](const char* seed) {
    return train({.slots = 400,
                  .strategy = "{type = 'local_sgd', interval = 400}",
                  .more = std::string(kSimulated) +
                          "[[transport.straggler]]\nranks = [0, 1]\nkind = 'exponential'\nmean = 0.3\n",
                  .sets = {std::string("run.seed=") + seed}});
  };
  const RunResult one = run("1"), again = run("1"), other = run("2");
  ASSERT_EQ(one.error, "");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    // The mean of 400 exponential draws is off by 5 % of itself (one sigma).
    EXPECT_NEAR(compute_of(one, rank) / 400 - 1, 0.3, 4 * 0.05 * 0.3);
    EXPECT_EQ(compute_of(one, rank), compute_of(again, rank));
    EXPECT_NE(compute_of(one, rank), compute_of(other, rank));
  }
  EXPECT_NE(compute_of(one, 0), compute_of(one, 1));
}

TEST(Straggler, ASlowLinkSlowsItsCollectivesAlone) {
  const auto exposed = [](const std::string& more) {
    const RunResult result =
        train({.ranks = 3, .more = std::string(kSimulated) + "[transport.link]\nbandwidth = 1.0e6\n" + more});
    EXPECT_EQ(result.error, "");
    return result.communication.at(0).purposes.at("gradient").transfer_seconds;
  };
  const double whole = exposed("");
  EXPECT_GT(whole, 0);
  EXPECT_NEAR(exposed("[[transport.straggler]]\nranks = [2]\nkind = 'link'\nfactor = 0.25\n"), 4 * whole,
              1e-9);
}

TEST(SimulatedCompute, ThirtyTwoRanksOnFewCores) {
  const RunResult result = train({.ranks = 32,
                                  .slots = 3,
                                  .more = std::string(kSimulated) + "[transport.link]\nlatency = 0.001\n",
                                  .sets = {"run.log_every=1000", "data.batch=1"}});
  ASSERT_EQ(result.error, "");
  ASSERT_EQ(result.communication.size(), 32u);
  // Each slot: a second of compute, one all-reduce of 2 * 31 hops; the last one also joins the losses.
  for (const RankTime& rank : result.communication) {
    EXPECT_NEAR(rank.compute_s, 3, 1e-9);
    EXPECT_NEAR(rank.purposes.at("gradient").transfer_seconds, 3 * 0.062, 1e-9);
    EXPECT_NEAR(parts(rank), rank.total_s, 1e-9);
  }
}

TEST(SimulatedCompute, AnActorsTransferRunsBesideTheTraining) {
  const RunResult result = train({.slots = 3,
                                  .strategy = "{type = 'shadow'}",
                                  .more = std::string(kSimulated) + "[transport.link]\nlatency = 0.5\n"});
  ASSERT_EQ(result.error, "");
  for (const RankTime& rank : result.communication) {
    EXPECT_NEAR(rank.purposes.at("actor").transfer_seconds, 1.0, 1e-9) << "2 (K-1) latencies";
    EXPECT_DOUBLE_EQ(rank.compute_s, 3);
    EXPECT_GE(rank.overlapped_s, 1 - 1e-9);
    EXPECT_LT(rank.total_s, 3 + rank.evaluate_s + rank.exposed_s + rank.late_s + 1e-9)
        << "three seconds of compute, none of it after the transfer";
  }
}

TEST(SimulatedCompute, WhatTheClockCannotBelieve) {
  const auto refusal = [](const std::string& more) {
    try {
      train({.more = more});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("[transport.clock]\ntype = 'simulated'\n"),
              testing::HasSubstr("needs compute_seconds"));
  EXPECT_THAT(refusal(std::string(kSimulated) + "speed = [1.0]\n"),
              testing::HasSubstr("speed has 1 numbers, but 2 ranks train"));
  EXPECT_THAT(refusal(std::string(kSimulated) + "calibrate = true\n"), testing::HasSubstr("keep one"));
  EXPECT_THAT(refusal("[[transport.straggler]]\nranks = [5]\nkind = 'factor'\n"),
              testing::HasSubstr("names rank 5, but the world has 2 ranks"));
  EXPECT_THAT(refusal("[[transport.straggler]]\nranks = [1]\nkind = 'link'\nfactor = 0.5\n"),
              testing::HasSubstr("needs transport.link"));
  EXPECT_THAT(refusal("[[transport.straggler]]\nranks = [1]\nkind = 'link'\nfactor = 2.0\n"),
              testing::HasSubstr("at most 1"));
}

TEST(Calibration, IsMeasuredOnceWrittenDownAndUsedAgain) {
  const Scratch scratch;
  const Trial run{
      .slots = 12,
      .more =
          "[transport.clock]\ntype = 'simulated'\ncalibrate = true\n[recovery]\ntype = 'full'\nevery = 8\n",
      .hidden = "[64]",
      .folder = (scratch / "run").string()};
  const RunResult result = train(run);
  ASSERT_EQ(result.error, "");
  EXPECT_THAT(result.nondeterminism, testing::HasSubstr("calibrate"));
  EXPECT_GT(result.communication[0].compute_s, 0);
  const auto calibration = [&] {
    const std::string manifest = integration::read_file(result.folder + "/manifest.json");
    const auto begin = manifest.find("\"calibration\"");
    EXPECT_NE(begin, std::string::npos);
    return manifest.substr(begin, manifest.find('}', begin) - begin);
  };
  const std::string before = calibration();
  EXPECT_THAT(before, testing::HasSubstr("backward_seconds"));
  Trial more = run;
  more.resume = true;
  more.slots = 20;
  const RunResult resumed = train(more);
  ASSERT_EQ(resumed.error, "");
  EXPECT_EQ(calibration(), before) << "the resumed run counts with the numbers of the first";
}

}  // namespace
}  // namespace tenon::links_test
