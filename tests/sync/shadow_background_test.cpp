// shadow_easgd, shadow_ma and shadow_bmuf in the background, under the simulated clock: their invariants,
// costs and ends.
#include "world.hpp"

namespace tenon::sync_test::shadow_background_test {
namespace {

// State of every trainer where all of them stand still: a wrapper of the strategy under test that observes in
// quiesce. It can also set replicas apart at the start, so that exchanges move something without any
// training.

struct Boundary {
  std::int64_t slot = 0;
  Weights live, evaluated, live_buffers, evaluated_buffers;
};
struct Boundaries {
  std::map<int, std::vector<Boundary>> replicas;
  /// Sum of an element over all replicas' weights, and the centre's if there is one.
  Weights total(std::size_t at, bool center) const {
    const Boundary& first = replicas.at(0)[at];
    Weights sum(first.live.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (center) sum[i] = first.evaluated[i];
      for (const auto& [replica, seen] : replicas) sum[i] += seen[at].live[i];
    }
    return sum;
  }
};
std::mutex boundaries_mutex;
Boundaries boundaries;

class AtBoundaries final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory(),
                                            option::boolean("apart", "false")};
  static constexpr ComponentInfo kInfo{.id = "at_boundaries",
                                       .summary = "records weights where trainers stand still",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};
  explicit AtBoundaries(const Options& options)
      : SyncDecorator(options.component<Sync>("inner")), apart_(options.boolean("apart")) {}
  void start(Replica& replica) override {
    if (apart_) {
      for (const ParameterInfo& info : replica.live().parameters()) {
        const TensorView view = replica.live().tensor(info.index);
        for (std::int64_t i = 0; i < view.elements() && view.dtype == DType::kF64; ++i)
          view.as<double>()[i] += 0.1 * (replica.replica() + 1) * static_cast<double>(i % 7);
      }
      replica.live().touch(-1);
    }
    SyncDecorator::start(replica);
    look();
  }
  void quiesce() override {
    SyncDecorator::quiesce();
    look();
  }

 private:
  void look() {
    Boundary seen;
    seen.slot = replica().slot();
    seen.live = trained(replica().live());
    seen.evaluated = trained(evaluation_parameters());
    seen.live_buffers = elements_of(replica().live(), Role::kBuffer);
    seen.evaluated_buffers = elements_of(evaluation_parameters(), Role::kBuffer);
    const std::lock_guard lock(boundaries_mutex);
    boundaries.replicas[replica().replica()].push_back(std::move(seen));
  }
  bool apart_;
};

TENON_STATIC_PLUGIN(looking, PluginInfo{.id = "test.boundaries", .version = "1.0.0", .summary = "looks on"},
                    AtBoundaries)

/// Trains `strategy` within at_boundaries.
Outcome train_looking(const std::string& strategy, World world, bool apart = false,
                      const std::string& folder = {}, bool resume = false) {
  boundaries.replicas.clear();
  world.watched = false;
  return train("{type = 'at_boundaries', apart = " + std::string(apart ? "true" : "false") +
                   ", inner = " + strategy + "}",
               world, folder, resume, &looking);
}

const std::vector<std::string> kSimulated = {"transport.clock.type=simulated",
                                             "transport.clock.compute_seconds=0.01",
                                             "transport.link.latency=1e-4", "run.eval_every=10"};
std::vector<std::string> simulated(std::vector<std::string> more = {}) {
  more.insert(more.begin(), kSimulated.begin(), kSimulated.end());
  return more;
}

constexpr const char* kNoTraining = "type = \"sgd\"\nlr = 0.0\n";
constexpr std::uint64_t kBytes = 4 * (4704 + 16 + 64 + 16);  // of the perceptron's weights in f32, padded

struct Background {
  const char* options;
  bool served;
};
constexpr Background kBackgrounds[] = {
    {"type = 'shadow_easgd'", true},
    {"type = 'shadow_easgd', exchange = 'delta', elastic = 0.3", true},
    {"type = 'shadow_easgd', merge_lock = 'per_shard', elastic = 0.3", true},
    {"type = 'shadow_ma', weight = 0.3", false},
    {"type = 'shadow_ma', merge = 'delta', merge_lock = 'per_shard'", false},
    {"type = 'shadow_bmuf', momentum = 0.2, weight = 0.3", false},
    {"type = 'shadow_easgd', piece = 1024", true},
    {"type = 'shadow_bmuf', piece = 1024", false},
};
std::string strategy_of(const Background& background) {
  return std::string("{") + background.options + "}";
}
World world_of(const Background& background, std::vector<std::string> more = {}) {
  World world{.slots = 30, .precision = "fp32"};
  if (background.served) more.push_back("parallel.servers=2");
  world.sets = simulated(more);
  return world;
}

std::uint64_t bytes(const Outcome& run, const char* purpose) {
  const auto found = run.result.bytes_by_purpose.find(purpose);
  return found == run.result.bytes_by_purpose.end() ? 0 : found->second;
}

TEST(ShadowBackground, IsOneHistoryUnderTheSimulatedClock) {
  for (const Background& background : kBackgrounds) {
    for (const char* workers : {"parallel.workers=1", "parallel.workers=2"}) {
      const World world = world_of(background, {workers});
      const Outcome first = train_looking(strategy_of(background), world);
      ASSERT_EQ(first.result.error, "") << background.options;
      const Outcome second = train_looking(strategy_of(background), world);
      EXPECT_EQ(first.result.state_hash, second.result.state_hash) << background.options << workers;
      EXPECT_EQ(first.result.weights_hash, second.result.weights_hash);
      const Distribution gaps = first.result.distributions.at("sync_gap");
      EXPECT_GT(gaps.count, 15) << background.options;
      // Every update of every trainer is in one gap, except those after its last exchange.
      EXPECT_NEAR(gaps.mean * static_cast<double>(gaps.count), 3 * 30, 12) << background.options;
      EXPECT_TRUE(std::isfinite(first.result.metrics.at("val/loss")));
    }
  }
}

// Without training, only exchanges move weights, and the sum is complete where all trainers stand still.
TEST(ShadowBackground, T10_ExchangesKeepTheSumWhateverIsInFlight) {
  for (const Background& background : kBackgrounds) {
    if (std::string_view(background.options).find("bmuf") != std::string_view::npos) continue;
    World world = world_of(background, {"transport.link.bandwidth=4e6", "run.eval_every=3"});
    world.precision = "fp64";
    world.optimizer = kNoTraining;
    // Trainers reach a boundary one after the other: some have merged a round there that others have not.
    world.sets.emplace_back("transport.clock.speed=[1.0, 1.7, 0.6]");
    const Outcome run = train_looking(strategy_of(background), world, true);
    ASSERT_EQ(run.result.error, "") << background.options;
    const std::size_t seen = boundaries.replicas.at(0).size();
    ASSERT_GT(seen, 8u);
    for (std::size_t at = 1; at < seen; ++at) {
      EXPECT_LE(difference(boundaries.total(at, background.served), boundaries.total(0, background.served)),
                1e-12)
          << background.options << " at " << at;
      EXPECT_EQ(boundaries.replicas.at(1)[at].evaluated, boundaries.replicas.at(0)[at].evaluated);
    }
    EXPECT_GT(difference(boundaries.replicas.at(2)[seen - 1].live, boundaries.replicas.at(2)[0].live), 1e-3);
  }
}

// Waiting for a link is not training: gaps follow the slower of a trainer's link and the servers'.
TEST(ShadowBackground, GapsGrowWithTheTrainersOfOneServerAndShrinkWithServers) {
  const auto gap = [](int replicas, int servers) {
    World world{.replicas = replicas, .slots = 60, .precision = "fp32"};
    world.sets = simulated(
        {"parallel.servers=" + std::to_string(servers), "transport.link.bandwidth=1e6", "run.eval_every=0"});
    const Outcome run = train_looking("{type = 'shadow_easgd'}", world);
    EXPECT_EQ(run.result.error, "");
    return run.result.distributions.at("sync_gap").mean;
  };
  // r T: 100 slots/s times 2 S / B = 38.4 ms while a trainer's link is the limit, K S / B once the server's
  // is.
  const double two = gap(2, 1), six = gap(6, 1), relieved = gap(6, 3);
  EXPECT_NEAR(two, 100 * 2 * kBytes / 1e6, 1.0);
  EXPECT_NEAR(six / two, 3, 0.6);
  EXPECT_LT(relieved, 0.7 * six);
}

// The same arithmetic on the same weights, in other portions: trainers take turns, so no other one
// interleaves.
TEST(ShadowBackground, PiecesChangeNoBitOfAnExchange) {
  for (const char* exchange : {"symmetric", "sequential", "delta"}) {
    World world{.slots = 20, .precision = "fp32"};
    world.sets = {"parallel.servers=2"};
    const std::string strategy = std::string(
                                     "{type = 'shadow_easgd', mode = 'foreground', interval = 4, order = "
                                     "[2, 0, 1], exchange = '") +
                                 exchange + "', piece = ";
    const Outcome whole = train(strategy + "0}", world), pieces = train(strategy + "1000}", world);
    ASSERT_EQ(pieces.result.error, "") << exchange;
    EXPECT_EQ(pieces.result.state_hash, whole.result.state_hash) << exchange;
    EXPECT_EQ(bytes(pieces, "parameter"), bytes(whole, "parameter"));
    EXPECT_GT(bytes(pieces, "control"), bytes(whole, "control")) << "a request for each piece";
  }
}

// Lookups in tables are a part of every slot, and wait for earlier transfers on the same link.
TEST(ShadowBackground, WhatElseUsesTheLinkPassesBetweenPieces) {
  for (const Background& background : {kBackgrounds[0], kBackgrounds[3]}) {
    const auto seconds = [&](const char* piece) {
      World world = world_of(background, {"transport.link.bandwidth=1e6", "run.eval_every=0"});
      world.replicas = 2;
      world.model =
          "[data]\ntype = \"synthetic_ctr\"\nbatch = 8\ntables = 2\nrows = [50]\npairs = 1\nsamples = 4000\n"
          "val_samples = 8\n[model]\ntype = \"dlrm\"\nplacement = \"rows\"\nbottom = [64, 4]\ntop = [64, "
          "1]\n";
      const Outcome run = train_looking(
          "{" + std::string(background.options) + ", rest = 1e-5, piece = " + piece + "}", world);
      EXPECT_EQ(run.result.error, "") << background.options;
      return run.result.wall_s;
    };
    const double whole = seconds("0"), pieces = seconds("256");
    EXPECT_LT(pieces, 0.8 * whole) << background.options;
  }
}

TEST(ShadowBackground, T20_StatisticsOfBatchNormAreEvaluatedAsTheirMeans) {
  for (const Background& background : kBackgrounds) {
    World world = world_of(background);
    world.replicas = 2;
    world.slots = 10;
    world.model =
        "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"resnet\"\nwidth = 4\n";
    const Outcome run = train_looking(strategy_of(background), world);
    ASSERT_EQ(run.result.error, "");
    const Boundary &first = boundaries.replicas.at(0).back(), &second = boundaries.replicas.at(1).back();
    EXPECT_EQ(first.evaluated_buffers, second.evaluated_buffers);
    ASSERT_FALSE(first.live_buffers.empty());
    EXPECT_NE(first.live_buffers, second.live_buffers) << "each trainer has met other samples";
    for (std::size_t i = 0; i < first.live_buffers.size(); ++i) {
      const double mean = (first.live_buffers[i] + second.live_buffers[i]) / 2;
      ASSERT_NEAR(first.evaluated_buffers[i], mean, 1e-6 * std::abs(mean) + 1e-9) << background.options;
    }
  }
}

TEST(ShadowBackground, T21_BytesAreThoseOfTheFormulas) {
  for (const std::uint64_t replicas : {2, 3}) {
    for (const char* servers : {"1", "3"}) {
      for (const char* exchange : {"symmetric", "sequential", "delta"}) {
        World world{.replicas = static_cast<int>(replicas), .slots = 20, .precision = "fp32"};
        const Outcome plain = train("{type = 'none'}", world);
        world.sets = {std::string("parallel.servers=") + servers};
        const Outcome run = train(std::string("{type = 'shadow_easgd', mode = 'foreground', interval = 6, "
                                              "exchange = '") +
                                      exchange + "'}",
                                  world);
        ASSERT_EQ(run.result.error, "");
        EXPECT_EQ(bytes(run, "parameter"), 3 * kBytes) << "S up per exchange";
        EXPECT_EQ(bytes(run, "servers.parameter"), 3 * kBytes * replicas) << "S down, to each trainer";
        // Set once; fetched and shared for the evaluation and at the end.
        EXPECT_EQ(bytes(run, "state") - bytes(plain, "state"), kBytes + 2 * kBytes);
        EXPECT_EQ(bytes(run, "servers.state"), 2 * kBytes);
      }
    }
    const World world{.replicas = static_cast<int>(replicas), .slots = 20, .precision = "fp32"};
    const std::uint64_t round = 2 * (replicas - 1) * kBytes / replicas;
    for (const char* type : {"shadow_ma", "shadow_bmuf"}) {
      const Outcome run =
          train(std::string("{type = '") + type + "', mode = 'foreground', interval = 6}", world);
      EXPECT_EQ(bytes(run, "parameter"), 3 * round) << type;
    }
  }
  // In the background as well: as many as there were exchanges.
  for (const Background& background : kBackgrounds) {
    World world = world_of(background);
    world.replicas = 2;
    const Outcome run = train_looking(strategy_of(background), world);
    // Exchanges after the last slot, until all have ended, are sent and not recorded.
    const auto syncs = static_cast<std::uint64_t>(run.result.distributions.at("sync_gap").count);
    const std::uint64_t sent = background.served ? bytes(run, "servers.parameter")
                                                 : 2 * bytes(run, "parameter");  // 2 (K-1)/K S from each
    EXPECT_GE(sent, syncs * kBytes) << background.options;
    EXPECT_LE(sent, (syncs + 4) * kBytes) << background.options;
    EXPECT_EQ(sent % (kBytes / 2), 0u) << "whole shards of two servers";
  }
}

// The saved state is restored whole: nothing is in flight, and the servers have it before any trainer
// exchanges with them.
TEST(ShadowBackground, T17_AResumedRunGoesOnFromWhatWasSaved) {
  for (const Background& background : kBackgrounds) {
    const integration::Scratch scratch;
    const std::string folder = (scratch / "run").string();
    World world = world_of(background, {"transport.link.bandwidth=4e6", "run.max_samples=240"});
    world.precision = "fp64";
    world.optimizer = kNoTraining;
    world.more = "[recovery]\ntype = \"full\"\nevery = 100\n";
    const Outcome begun = train_looking(strategy_of(background), world, true, folder);
    ASSERT_EQ(begun.result.error, "") << background.options;
    EXPECT_EQ(begun.result.steps, 20);
    const Boundaries saved = boundaries;
    const Outcome again = train_looking(strategy_of(background), world, true, folder, true);
    EXPECT_EQ(again.result.steps, 20);
    EXPECT_EQ(again.result.weights_hash, begun.result.weights_hash) << background.options;
    EXPECT_EQ(again.result.state_hash, begun.result.state_hash) << background.options;
    world.sets.emplace_back("run.max_samples=1000000");
    const Outcome rest = train_looking(strategy_of(background), world, true, folder, true);
    ASSERT_EQ(rest.result.error, "") << background.options;
    EXPECT_EQ(rest.result.steps, 30);
    const bool served = background.served;
    const std::size_t last = boundaries.replicas.at(0).size() - 1;
    if (std::string_view(background.options).find("bmuf") == std::string_view::npos) {
      EXPECT_LE(
          difference(boundaries.total(last, served), saved.total(saved.replicas.at(0).size() - 1, served)),
          1e-12)
          << background.options;
    }
    EXPECT_GT(rest.result.distributions.at("sync_gap").count, 3u) << "exchanges went on";
  }
}

}  // namespace
}  // namespace tenon::sync_test::shadow_background_test
