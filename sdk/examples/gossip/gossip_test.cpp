// K replicas as threads over the package's own transport: the mixing matrix, the mean, the weights of an
// evaluation, and every byte sent.
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <tenon/clock.hpp>
#include <tenon/sync.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>

namespace {

using tenon::Communicator;
using tenon::ParameterInfo;
using tenon::Purpose;
using tenon::testing::Bench;

constexpr std::int64_t kWeights = 768;  // 3 KiB of f32: 48 lines, which 2, 3 and 4 replicas share evenly
constexpr std::uint64_t kBytes = kWeights * 4;

/// A weight matrix in the trained arena, a running mean among the buffers.
std::vector<ParameterInfo> parameters() {
  ParameterInfo weight;
  weight.spec.name = "weight";
  weight.spec.shape = weight.local = {24, kWeights / 24};
  weight.arena = 0;
  ParameterInfo running;
  running.spec.name = "running_mean";
  running.spec.shape = running.local = {16};
  running.spec.role = tenon::Role::kBuffer;
  running.spec.trainable = false;
  running.index = running.arena = 1;
  return {weight, running};
}

/// The replica that a strategy sees, without a run.
class TestReplica final : public tenon::Replica {
 public:
  TestReplica(tenon::Transport& transport, int replica, int replicas)
      : bench_("cpu", "reference", 1),
        transport_(transport),
        replica_(replica),
        ranks_(replicas),
        parameters_(parameters()),
        live_(make_parameter_set("live", parameters_, *bench_.device, tenon::SetContents::kEverything)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  int replica() const override { return replica_; }
  int replicas() const override { return static_cast<int>(ranks_.size()); }
  std::uint64_t seed() const override { return 1; }
  tenon::Device& device() override { return *bench_.device; }
  tenon::Host& host() override { return bench_.host; }
  Communicator* group(Purpose purpose) override {
    auto& group = groups_[static_cast<std::size_t>(purpose)];
    if (group == nullptr) group = open(tenon::purpose_name(purpose), purpose);
    return group.get();
  }
  std::unique_ptr<Communicator> open(std::string_view name, Purpose purpose) override {
    return transport_.open(replica_, {.ranks = ranks_, .name = name, .purpose = purpose});
  }
  int servers() const override { return 0; }
  std::unique_ptr<Communicator> open_to_server(int, std::string_view, Purpose) override { return nullptr; }
  tenon::ParameterSet& live() override { return *live_; }
  tenon::ParameterSet& gradients() override { return *live_; }
  double gradient_scale() const override { return 1; }
  double gradient_count() const override { return 1; }
  double peak_rate() const override { return 0; }
  std::span<tenon::ParameterSet* const> optimizer_state() override { return {}; }
  tenon::ParameterSet& create_set(std::string_view name) override {
    sets_.push_back(tenon::make_parameter_set_beside(std::string(name), *live_, *bench_.device));
    return *sets_.back();
  }
  void copy(const tenon::ParameterSet& from, tenon::ParameterSet& to) override {
    for (int arena = 0; arena < from.arenas(); ++arena)
      bench_.device->copy(from.arena(arena), to.arena(arena));
    to.touch(-1);
  }
  void sync_buffers() override { ++buffers_synced; }
  std::span<const tenon::Bucket> buckets() const override { return {}; }
  void pause() override {}
  void resume() override {}
  std::int64_t slot() const override { return 0; }
  void record(std::string_view, double) override {}

  std::vector<double> weights() { return tenon::testing::read(*bench_.device, live_->tensor(0)); }
  std::vector<double> evaluated(tenon::Sync& sync, int parameter) {
    return tenon::testing::read(*bench_.device, sync.evaluation_parameters().tensor(parameter));
  }
  Bench& bench() { return bench_; }

  int buffers_synced = 0;

 private:
  Bench bench_;
  tenon::Transport& transport_;
  int replica_;
  std::vector<int> ranks_;
  std::vector<ParameterInfo> parameters_;
  std::unique_ptr<tenon::ParameterSet> live_;
  std::vector<std::unique_ptr<tenon::ParameterSet>> sets_;
  std::array<std::unique_ptr<Communicator>, tenon::kPurposes> groups_;
};

std::vector<double> start_of(int replica) {
  std::vector<double> values = tenon::testing::normals(kWeights, "replica " + std::to_string(replica));
  for (double& value : values) value = static_cast<float>(value);
  return values;
}

/// Runs `body(replica, its strategy)` on a thread per replica, from different weights. Returns the bytes that
/// replica 0 sent.
std::map<Purpose, std::uint64_t> run(int replicas, const std::string& options,
                                     const std::function<void(TestReplica&, tenon::Sync&)>& body) {
  Bench bench("cpu", "reference", 1);
  const auto clock = tenon::make_wall_clock();
  const auto transport = bench.make_component<tenon::Transport>("thread", "");
  transport->connect({.ranks = replicas, .deadline_s = 20, .link = {}, .clock = clock.get()});
  std::vector<std::string> errors(replicas);
  std::vector<std::thread> threads;
  for (int r = 0; r < replicas; ++r) {
    const int id = clock->announce(r, 0, "replica " + std::to_string(r));
    threads.emplace_back([&, r, id] {
      clock->enter(id);
      try {
        TestReplica replica(*transport, r, replicas);
        tenon::testing::write(replica.device(), replica.live().tensor(0), start_of(r));
        tenon::testing::write(replica.device(), replica.live().tensor(1), std::vector<double>(16, r));
        const auto sync = replica.bench().make_component<tenon::Sync>("gossip", options);
        sync->start(replica);
        body(replica, *sync);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
      clock->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, std::vector<std::string>(replicas));
  std::map<Purpose, std::uint64_t> bytes;
  for (const Purpose purpose : {Purpose::kParameter, Purpose::kStatistics, Purpose::kGradient})
    bytes[purpose] = transport->counts(0, purpose).bytes_sent;
  return bytes;
}

/// Weights of all replicas after slots 0 ... slots - 1.
std::vector<std::vector<double>> after(int replicas, int slots, const std::string& options) {
  std::vector<std::vector<double>> weights(replicas);
  run(replicas, options, [&](TestReplica& replica, tenon::Sync& sync) {
    // Replica 0 refuses its updates; the others must not wait for it.
    for (int t = 0; t < slots; ++t)
      sync.after_step({.t = t, .replica = replica.replica()}, {.applied = replica.replica() != 0});
    weights[replica.replica()] = replica.weights();
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
    const auto sent =
        run(replicas, "period = " + std::to_string(kPeriod), [&](TestReplica& replica, tenon::Sync& sync) {
          for (int t = 0; t < kSlots; ++t) sync.after_step({.t = t}, {.applied = true});
          for (int i = 0; i < kEvaluations; ++i) sync.quiesce();
          EXPECT_EQ(replica.buffers_synced, replicas == 1 ? 0 : kSlots / kPeriod);
        });
    const std::uint64_t neighbours = replicas == 1 ? 0 : replicas == 2 ? 1 : 2;
    EXPECT_EQ(sent.at(Purpose::kParameter), kSlots / kPeriod * neighbours * kBytes) << replicas;
    EXPECT_EQ(sent.at(Purpose::kGradient), 0u);
    if (replicas == 2 ||
        replicas == 4) {  // a ring all-reduce of weights, and one line of statistics that member 0 sums
      const auto k = static_cast<std::uint64_t>(replicas);
      EXPECT_NEAR(static_cast<double>(sent.at(Purpose::kStatistics)),
                  kEvaluations * 2.0 * (k - 1) / k * kBytes, kEvaluations * 2 * 64.0);
    }
  }
}

TEST(Gossip, EvaluatesTheMeanOnEveryReplica) {
  for (const int replicas : {1, 2, 4}) {
    std::vector<std::vector<double>> evaluated(replicas), live = evaluated, statistics = evaluated;
    run(replicas, "period = 100", [&](TestReplica& replica, tenon::Sync& sync) {
      const std::size_t r = replica.replica();
      sync.after_step({.t = 0}, {.applied = true});
      sync.quiesce();
      sync.quiesce();
      evaluated[r] = replica.evaluated(sync, 0);
      statistics[r] = replica.evaluated(sync, 1);
      live[r] = replica.weights();
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
  Bench bench("cpu", "reference", 1);
  EXPECT_THROW(bench.make_component<tenon::Sync>("gossip", "period = 0"), tenon::Error);
}

}  // namespace
