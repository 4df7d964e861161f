// K replicas as threads over the package's own transport: the mixing matrix, the mean, the weights of an
// evaluation, and every byte sent.
#include <tenon/testing/sync_harness.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace {

using tenon::Purpose;
using tenon::testing::HarnessReplica;
using tenon::testing::SyncHarness;

constexpr std::int64_t kWeights = 768;  // 3 KiB of f32: 48 lines, which 2, 3 and 4 replicas share evenly
constexpr std::uint64_t kBytes = kWeights * 4;

std::vector<double> start_of(int replica) {
  std::vector<double> values = tenon::testing::normals(kWeights, "replica " + std::to_string(replica));
  for (double& value : values) value = static_cast<float>(value);
  return values;
}

/// Runs `body` on every replica, from different weights.
SyncHarness run(int replicas, const std::string& options,
                const std::function<void(HarnessReplica&, tenon::Sync&)>& body) {
  SyncHarness harness(replicas,
                      {{"weight", {24, kWeights / 24}}, {"running_mean", {16}, tenon::Role::kBuffer}});
  harness.run("gossip", options, [&](HarnessReplica& replica, tenon::Sync& sync) {
    replica.set_values(0, start_of(replica.replica()));
    replica.set_values(1, std::vector<double>(16, replica.replica()));
    body(replica, sync);
  });
  return harness;
}

/// Weights of all replicas after slots 0 ... slots - 1.
std::vector<std::vector<double>> after(int replicas, int slots, const std::string& options) {
  std::vector<std::vector<double>> weights(replicas);
  run(replicas, options, [&](HarnessReplica& replica, tenon::Sync& sync) {
    // Replica 0 refuses its updates; the others must not wait for it.
    for (int t = 0; t < slots; ++t)
      sync.after_step({.t = t, .replica = replica.replica()}, {.applied = replica.replica() != 0});
    weights[replica.replica()] = replica.values(0);
  });
  return weights;
}

std::vector<double> mean_of(const std::vector<std::vector<double>>& all) {
  std::vector<double> mean(all[0].size(), 0.0);
  for (const auto& one : all) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / static_cast<double>(all.size());
  }
  return mean;
}

/// Consensus distance: mean over replicas of |x_r - mean|^2.
double distance(const std::vector<std::vector<double>>& all) {
  const std::vector<double> mean = mean_of(all);
  double sum = 0;
  for (const auto& one : all) {
    for (std::size_t i = 0; i < mean.size(); ++i) sum += (one[i] - mean[i]) * (one[i] - mean[i]);
  }
  return sum / static_cast<double>(all.size());
}

// Three roundings of f32 (two sums, one factor) of numbers below 4.5 in absolute value.
constexpr double kRounding = 3 * 4.5 * 6e-8;

TEST(Gossip, MixesByTheMatrixOfItsRing) {
  for (const int replicas : {1, 2, 3, 4, 5}) {
    std::vector<std::vector<double>> start;
    for (int r = 0; r < replicas; ++r) start.push_back(start_of(r));
    const auto found = after(replicas, 1, "");
    for (int r = 0; r < replicas; ++r) {
      std::vector<int> sources = {r};
      if (replicas > 1) sources.push_back((r + 1) % replicas);
      if (replicas > 2) sources.push_back((r + replicas - 1) % replicas);
      for (std::size_t i = 0; i < kWeights; ++i) {
        double expected = 0;
        for (const int source : sources) expected += start[source][i] / static_cast<double>(sources.size());
        ASSERT_NEAR(found[r][i], expected, kRounding) << "replica " << r << " of " << replicas;
      }
    }
  }
}

// The second largest eigenvalue of a ring's matrix in absolute value is (1 + 2 cos(2 pi / K)) / 3: 0 for K =
// 3, 1/3 for K = 4, 0.539 for K = 5; it is 0 for K = 2.
TEST(Gossip, KeepsTheMeanWhileReplicasComeTogether) {
  const double eigenvalues[] = {0, 0, 0, 0, 1.0 / 3, (1 + 2 * 0.30901699437494745) / 3};
  for (const int replicas : {2, 3, 4, 5}) {
    std::vector<std::vector<double>> start;
    for (int r = 0; r < replicas; ++r) start.push_back(start_of(r));
    const std::vector<double> mean = mean_of(start);
    double before = distance(start);
    for (int exchanges = 1; exchanges <= 3; ++exchanges) {
      const auto found = after(replicas, exchanges, "");
      const std::vector<double> now = mean_of(found);
      for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(now[i], mean[i], exchanges * kRounding);
      const double eigenvalue = eigenvalues[replicas];
      EXPECT_LE(distance(found),
                eigenvalue * eigenvalue * before * (1 + 1e-5) + kWeights * kRounding * kRounding)
          << replicas << " replicas, exchange " << exchanges;
      before = distance(found);
    }
  }
}

TEST(Gossip, ExchangesInEveryPeriodthSlot) {
  std::vector<std::vector<double>> start = {start_of(0), start_of(1)};
  EXPECT_EQ(after(2, 2, "period = 3"), start);
  const auto once = after(2, 3, "period = 3");
  EXPECT_EQ(once[0], once[1]) << "x + y = y + x, so two replicas agree bit for bit";
  EXPECT_EQ(after(2, 5, "period = 3"), once);
}

TEST(Gossip, SendsTheBytesOfItsClosedForm) {
  for (const int replicas : {1, 2, 3, 4}) {
    constexpr int kSlots = 7, kPeriod = 2, kEvaluations = 2;
    const SyncHarness sent =
        run(replicas, "period = " + std::to_string(kPeriod), [&](HarnessReplica& replica, tenon::Sync& sync) {
          for (int t = 0; t < kSlots; ++t) sync.after_step({.t = t}, {.applied = true});
          for (int i = 0; i < kEvaluations; ++i) sync.quiesce();
          EXPECT_EQ(replica.buffers_synced, replicas == 1 ? 0 : kSlots / kPeriod);
        });
    const std::uint64_t neighbours = replicas == 1 ? 0 : replicas == 2 ? 1 : 2;
    EXPECT_EQ(sent.bytes_sent(Purpose::kParameter), kSlots / kPeriod * neighbours * kBytes) << replicas;
    EXPECT_EQ(sent.bytes_sent(Purpose::kGradient), 0u);
    if (replicas == 2 ||
        replicas == 4) {  // a ring all-reduce of weights, and one line of statistics that member 0 sums
      const auto k = static_cast<std::uint64_t>(replicas);
      EXPECT_NEAR(static_cast<double>(sent.bytes_sent(Purpose::kStatistics)),
                  kEvaluations * 2.0 * (k - 1) / k * kBytes, kEvaluations * 2 * 64.0);
    }
  }
}

TEST(Gossip, EvaluatesTheMeanOnEveryReplica) {
  for (const int replicas : {1, 2, 4}) {
    std::vector<std::vector<double>> evaluated(replicas), live = evaluated, statistics = evaluated;
    run(replicas, "period = 100", [&](HarnessReplica& replica, tenon::Sync& sync) {
      const std::size_t r = replica.replica();
      sync.after_step({.t = 0}, {.applied = true});
      sync.quiesce();
      sync.quiesce();
      evaluated[r] = replica.evaluated(sync, 0);
      statistics[r] = replica.evaluated(sync, 1);
      live[r] = replica.values(0);
    });
    std::vector<std::vector<double>> start;
    for (int r = 0; r < replicas; ++r) start.push_back(start_of(r));
    EXPECT_EQ(live, start) << "an evaluation changes nothing";
    const std::vector<double> mean = mean_of(start);
    for (int r = 0; r < replicas; ++r) {
      const auto& found = evaluated[r];
      for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(found[i], mean[i], replicas * kRounding);
      EXPECT_EQ(found, evaluated[0]) << "bit for bit";
      EXPECT_EQ(statistics[r], std::vector<double>(16, (replicas - 1) / 2.0));
    }
  }
}

TEST(Gossip, RepeatsItsBits) {
  EXPECT_EQ(after(4, 5, ""), after(4, 5, ""));
}

TEST(Gossip, RefusesAPeriodOfNothing) {
  tenon::testing::Bench bench("cpu", "reference", 1);
  EXPECT_THROW(bench.make_component<tenon::Sync>("gossip", "period = 0"), tenon::Error);
}

}  // namespace
