// Short runs of a small perceptron with several replicas, and a record of every replica's weights in every
// slot: a wrapper of the strategy under test observes them.
#pragma once

#include "run_program.hpp"
#include "test_paths.hpp"

#include <tenon/config.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/random.hpp>
#include <tenon/runtime.hpp>
#include <tenon/site.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>
#include <tenon/tensor_values.hpp>

#include <cmath>
#include <mutex>

namespace tenon::sync_test {

using Weights = std::vector<double>;

/// Record of one replica.
struct Trace {
  std::vector<SlotKind> kinds;
  std::vector<Weights> before;           ///< after the slot's update, before the strategy changes it
  std::vector<Weights> live, evaluated;  ///< after each slot
  std::vector<Weights> buffers, evaluated_buffers;  ///< after each slot
  std::vector<Weights> state_before, state;         ///< of the optimizer, as `before` and `live`
  /// In GRAD slots, bucket by bucket: this replica's own gradients, and those that the optimizer sees.
  std::vector<Weights> own, mean;
  std::vector<int> buckets;
};

struct Watch {
  std::mutex mutex;
  std::map<int, Trace> replicas;
  double mixed_share = 0;  ///< of a million planned slots
  std::vector<std::size_t> tensor_sizes;
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

inline Weights state_of(Replica& replica) {
  Weights values;
  for (ParameterSet* set : replica.optimizer_state()) {
    const Weights some = elements_of(*set, Role::kParameter);
    values.insert(values.end(), some.begin(), some.end());
  }
  return values;
}

/// Records the weights of each slot.
class Watched final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory(),
                                            option::boolean("count", "false")};
  static constexpr ComponentInfo kInfo{.id = "watched", .summary = "records weights", .options = kOptions};
  explicit Watched(const Options& options)
      : SyncDecorator(options.component<Sync>("inner")), count_(options.boolean("count")) {}
  void start(Replica& replica) override {
    SyncDecorator::start(replica);
    if (replica.replica() == 0) {
      watch.tensor_sizes.clear();
      for (const ParameterInfo& info : replica.live().parameters()) {
        if (info.spec.role == Role::kParameter && info.spec.trainable)
          watch.tensor_sizes.push_back(static_cast<std::size_t>(info.local.elements()));
      }
    }
    if (!count_ || replica.replica() != 0) return;
    constexpr std::int64_t kDraws = 1000000;
    std::int64_t mixed = 0;
    for (std::int64_t t = 0; t < kDraws; ++t) mixed += plan({1000 + t, 0, 0}).kind == SlotKind::kMix ? 1 : 0;
    watch.mixed_share = static_cast<double>(mixed) / kDraws;
  }
  void on_gradients_ready(const Bucket& bucket) override {
    if (bucket.index == 0) own_.clear();
    collect(bucket, own_);
    SyncDecorator::on_gradients_ready(bucket);
  }
  void finish_gradients() override {
    SyncDecorator::finish_gradients();
    Weights mean;
    for (const Bucket& bucket : replica().buckets()) collect(bucket, mean);
    const std::lock_guard lock(watch.mutex);
    Trace& trace = watch.replicas[replica().replica()];
    trace.own.push_back(own_);
    trace.mean.push_back(std::move(mean));
    trace.buckets.push_back(static_cast<int>(replica().buckets().size()));
  }
  void after_step(const Slot& slot, const StepOutcome& outcome) override {
    Weights before = trained(replica().live()), state_before = state_of(replica());
    SyncDecorator::after_step(slot, outcome);
    Weights live = trained(replica().live()), evaluated = trained(evaluation_parameters());
    Weights buffers = elements_of(replica().live(), Role::kBuffer);
    Weights evaluated_buffers = elements_of(evaluation_parameters(), Role::kBuffer);
    const std::lock_guard lock(watch.mutex);
    Trace& trace = watch.replicas[slot.replica];
    trace.kinds.push_back(outcome.kind);
    trace.before.push_back(std::move(before));
    trace.live.push_back(std::move(live));
    trace.evaluated.push_back(std::move(evaluated));
    trace.buffers.push_back(std::move(buffers));
    trace.evaluated_buffers.push_back(std::move(evaluated_buffers));
    trace.state_before.push_back(std::move(state_before));
    trace.state.push_back(state_of(replica()));
  }

 private:
  static void collect(const Bucket& bucket, Weights& values) {
    for_each_real(bucket.gradients, [&](double value) { values.push_back(value); });
  }
  bool count_;
  Weights own_;
};

/// Replaces the slots that `palsgd` would mix by slots in which nothing happens.
class Skipping final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{
      .id = "skipping", .summary = "slots in which nothing happens", .options = kOptions};
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

constexpr std::size_t kRefused = 3;

/// Scales the loss by 8, refuses slot kRefused, and continues with half the scale.
class RefusesOnce final : public Precision {
 public:
  static constexpr ComponentInfo kInfo{.id = "refuses_once", .summary = "a loss scale that changes"};
  explicit RefusesOnce(const Options&) {}
  DType activations() const override { return DType::kF64; }
  DType parameters() const override { return DType::kF64; }
  std::unique_ptr<LinearSite> bind(const SiteInfo&, SiteHost&) override { return nullptr; }
  void* query(std::string_view) override { return nullptr; }
  double loss_scale() const override { return scale_; }
  bool after_backward(const BackwardStats& stats) override {
    const bool refused = stats.slot == static_cast<std::int64_t>(kRefused);
    if (refused) scale_ /= 2;
    return !refused;
  }
  void state(StateVisitor& visitor) override { visitor.real("scale", scale_); }

 private:
  double scale_ = 8;
};

TENON_STATIC_PLUGIN(watching, PluginInfo{.id = "test.watch", .version = "1.0.0", .summary = "looks on"},
                    Watched, Skipping, RefusesOnce)

struct World {
  int replicas = 3;
  std::int64_t slots = 24;
  std::string optimizer = "type = \"sgd\"\nlr = 0.05\n";
  std::string precision = "fp64";
  std::int64_t seed = 1;
  std::string more = {};               ///< after [sync]
  std::vector<std::string> sets = {};  ///< over all of it, "table.key=value"
  bool watched = true;                 ///< by Watched, which does not support lock-free workers
  std::string model =
      "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"mlp\"\nhidden = [6]\n";
};

struct Outcome {
  RunResult result;
  std::map<int, Trace> replicas;
  std::vector<std::size_t> tensor_sizes;  ///< of the trained tensors, in the order of backward
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
  Outcome outcome{runtime.train(config_of(strategy, world), request), {}, {}};
  outcome.replicas = watch.replicas;
  outcome.tensor_sizes = watch.tensor_sizes;
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
