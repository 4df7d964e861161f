// Short runs of a small perceptron with several replicas, and what became of every replica's weights in every
// slot: a strategy around the one under test looks on.
#pragma once

#include "run_program.hpp"
#include "test_paths.hpp"

#include <tenon/config.hpp>
#include <tenon/plugin.hpp>
#include <tenon/runtime.hpp>
#include <tenon/sync.hpp>
#include <tenon/tensor_values.hpp>

#include <cmath>
#include <mutex>

namespace tenon::sync_test {

using Weights = std::vector<double>;

/// What one replica did.
struct Trace {
  std::vector<SlotKind> kinds;
  std::vector<Weights> before;           ///< the slot's update, not yet what the strategy makes of it
  std::vector<Weights> live, evaluated;  ///< after each slot
  std::vector<Weights> buffers;          ///< after each slot
};

struct Watch {
  std::mutex mutex;
  std::map<int, Trace> replicas;
  double mixed_share = 0;  ///< of a million planned slots
};
inline Watch watch;

/// All elements of one role, in the order of parameters.
inline Weights elements_of(ParameterSet& set, Role role) {
  Weights values;
  for (const ParameterInfo& info : set.parameters()) {
    if (info.spec.role != role || info.arena < 0) continue;
    const TensorView view = set.tensor(info.index);
    if (dtype_is_real(view.dtype)) for_each_real(view, [&](double value) { values.push_back(value); });
  }
  return values;
}
inline Weights trained(ParameterSet& set) {
  return elements_of(set, Role::kParameter);
}

/// Looks on.
class Watched final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory(),
                                            option::boolean("count", "false")};
  static constexpr ComponentInfo kInfo{.id = "watched",
                                       .summary = "records weights",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Watched(const Options& options)
      : SyncDecorator(options.component<Sync>("inner")), count_(options.boolean("count")) {}
  void start(Replica& replica) override {
    SyncDecorator::start(replica);
    if (!count_ || replica.replica() != 0) return;
    constexpr std::int64_t kDraws = 1000000;
    std::int64_t mixed = 0;
    for (std::int64_t t = 0; t < kDraws; ++t) mixed += plan({1000 + t, 0, 0}).kind == SlotKind::kMix ? 1 : 0;
    watch.mixed_share = static_cast<double>(mixed) / kDraws;
  }
  void after_step(const Slot& slot, const StepOutcome& outcome) override {
    Weights before = trained(replica().live());
    SyncDecorator::after_step(slot, outcome);
    Weights live = trained(replica().live()), evaluated = trained(evaluation_parameters());
    Weights buffers = elements_of(replica().live(), Role::kBuffer);
    const std::lock_guard lock(watch.mutex);
    Trace& trace = watch.replicas[slot.replica];
    trace.kinds.push_back(outcome.kind);
    trace.before.push_back(std::move(before));
    trace.live.push_back(std::move(live));
    trace.evaluated.push_back(std::move(evaluated));
    trace.buffers.push_back(std::move(buffers));
  }

 private:
  bool count_;
};

/// Takes the slots that `palsgd` would mix for slots in which nothing happens.
class Skipping final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "skipping",
                                       .summary = "slots in which nothing happens",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Skipping(const Options& options) : SyncDecorator(options.component<Sync>("inner")), p_(0.3) {}
  void start(Replica& replica) override {
    key_ = random_key(replica.seed(), "sync.palsgd");
    SyncDecorator::start(replica);
  }
  SlotPlan plan(const Slot& slot) const override {
    const bool skips = random_uniform(key_, static_cast<std::uint64_t>(slot.t),
                                      static_cast<std::uint64_t>(slot.replica)) < p_;
    return skips ? SlotPlan{SlotKind::kSkip, 1, true} : SlotPlan{SlotKind::kGrad, 1.0 / (1.0 - p_), true};
  }

 private:
  double p_;
  RandomKey key_;
};

TENON_STATIC_PLUGIN(watching, PluginInfo{.id = "test.watch", .version = "1.0.0", .summary = "looks on"},
                    Watched, Skipping)

struct World {
  int replicas = 3;
  std::int64_t slots = 24;
  std::string optimizer = "type = \"sgd\"\nlr = 0.05\n";
  std::string precision = "fp64";
  std::int64_t seed = 1;
  std::string more = {};               ///< behind [sync]
  std::vector<std::string> sets = {};  ///< over all of it, "table.key=value"
  bool watched = true;                 ///< by Watched, which does not stand lock-free workers
  std::string model =
      "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"mlp\"\nhidden = [6]\n";
};

struct Outcome {
  RunResult result;
  std::map<int, Trace> replicas;
  const Weights& last(int replica = 0) const { return replicas.at(replica).live.back(); }
};

/// strategy: an inline table, e.g. "{type = 'diloco', interval = 4}".
inline Config config_of(const std::string& strategy, const World& world) {
  std::string toml =
      "[run]\nname = \"world\"\neval_batches = 1\nlog_every = 1000\nsteps = " + std::to_string(world.slots) +
      "\nseed = " + std::to_string(world.seed) + "\n[device]\ntype = \"cpu\"\nthreads = 1\n" + world.model +
      "[precision]\ntype = \"" + world.precision + "\"\n[optimizer]\n" + world.optimizer;
  toml += "[parallel]\nranks = " + std::to_string(world.replicas) + "\n[transport]\ntype = \"thread\"\n";
  std::vector<std::string> sets = world.sets;
  if (world.watched) {
    toml += "[sync]\ntype = \"watched\"\ninner = " + strategy + "\n";
  } else {
    sets.insert(sets.begin(), "sync=" + strategy);
  }
  return Config::parse(toml + world.more, "world.toml", sets);
}

inline Outcome train(const std::string& strategy, const World& world, const std::string& folder = {},
                     bool resume = false, const tenon_plugin_v1_t* more = nullptr) {
  const integration::Scratch scratch;
  Runtime runtime;
  runtime.add_plugin(watching);
  if (more != nullptr) runtime.add_plugin(*more);
  runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  watch.replicas.clear();
  TrainRequest request;
  request.run_dir = folder.empty() ? (scratch / "run").string() : folder;
  request.quiet = true;
  request.resume = resume;
  Outcome outcome{runtime.train(config_of(strategy, world), request), {}};
  outcome.replicas = watch.replicas;
  return outcome;
}

inline double largest(const Weights& a) {
  double most = 0;
  for (const double value : a) most = std::max(most, std::abs(value));
  return most;
}
/// Relative to the largest weight.
inline double difference(const Weights& a, const Weights& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most / largest(b);
}
inline Weights mean(const std::map<int, Trace>& replicas, std::size_t slot) {
  Weights sum(replicas.at(0).live[slot].size());
  for (const auto& [replica, trace] : replicas)
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += trace.live[slot][i] / static_cast<double>(replicas.size());
  return sum;
}

}  // namespace tenon::sync_test
