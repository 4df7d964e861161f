// Strategies that break one promise each, around a correct data-parallel one.
#include <tenon/ops/elementwise.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sync.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace {

using namespace tenon;

/// Correct: the mean over replicas, bucket by bucket.
class Mean : public SyncBase {
 public:
  explicit Mean(const Options&) {}
  void start(Replica& replica) override {
    SyncBase::start(replica);
    maps_ = &replica.device().family<Elementwise>();
    group_ = replica.group(Purpose::kGradient);
    transfers_.reserve(replica.buckets().size());
  }
  GradientGroup gradient_group() const override { return GradientGroup::kAllReplicas; }
  void on_gradients_ready(const Bucket& bucket) override {
    if (group_ == nullptr) return;
    transfers_.push_back({group_->start_all_reduce(bucket.gradients, ReduceOp::kSum), bucket.gradients});
  }
  void finish_gradients() override { finish(group_ == nullptr ? 1.0 : 1.0 / group_->size()); }

 protected:
  struct Transfer {
    Request request;
    TensorView gradients;
  };
  void finish(double factor) {
    for (const Transfer& transfer : transfers_) {
      group_->wait(transfer.request);
      maps_->scale(transfer.gradients, factor);
    }
    transfers_.clear();
  }
  /// Adds to one weight of the replica.
  void nudge(double by, bool touch) {
    const TensorView w = replica().live().tensor(0);
    w.as<float>()[0] += static_cast<float>(by);
    if (touch) replica().live().touch(0);
  }

  Elementwise* maps_ = nullptr;
  Communicator* group_ = nullptr;
  std::vector<Transfer> transfers_;
};

/// Base of strategies whose replicas update alone.
class Alone : public SyncBase {
 public:
  explicit Alone(const Options&) {}
  void start(Replica& replica) override {
    SyncBase::start(replica);
    maps_ = &replica.device().family<Elementwise>();
    group_ = replica.group(Purpose::kParameter);
  }

 protected:
  /// The mean over replicas of each arena.
  void average() {
    if (group_ == nullptr) return;
    for (int i = 0; i < replica().live().arenas(); ++i) {
      group_->all_reduce(replica().live().arena(i), ReduceOp::kSum);
      maps_->scale(replica().live().arena(i), 1.0 / group_->size());
    }
    replica().live().touch(-1);
  }

  Elementwise* maps_ = nullptr;
  Communicator* group_ = nullptr;
};

class CountsItsPlans final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_its_plans", .summary = "each second answer is another"};
  using Mean::Mean;
  SlotPlan plan(const Slot&) const override { return {.lr_scale = ++asked_ % 2 == 0 ? 1.0 : 0.5}; }

 private:
  mutable int asked_ = 0;
};

class PlansForItself final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "plans_for_itself", .summary = "ignores Slot::replica"};
  using Mean::Mean;
  SlotPlan plan(const Slot&) const override { return {.lr_scale = replica().replica() == 0 ? 1.0 : 0.5}; }
};

class ReturnsTooEarly final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "returns_too_early", .summary = "waits after the update"};
  using Mean::Mean;
  void finish_gradients() override {}
  void after_step(const Slot&, const StepOutcome&) override { finish(1.0); }
};

class ForgetsToDivide final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_to_divide", .summary = "a sum, no mean"};
  using Mean::Mean;
  void finish_gradients() override { finish(1.0); }
};

class HearsReplicaZero final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "hears_replica_zero", .summary = "the others are ignored"};
  using Mean::Mean;
  void on_gradients_ready(const Bucket& bucket) override {
    if (group_ != nullptr) group_->broadcast(bucket.gradients, 0);
  }
};

class DriftsApart final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "drifts_apart", .summary = "replicas differ after the update"};
  using Mean::Mean;
  void after_step(const Slot&, const StepOutcome&) override { nudge(1e-3 * replica().replica(), true); }
};

class WeighsByAddress final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "weighs_by_address", .summary = "a hash of a pointer"};
  using Mean::Mean;
  void finish_gradients() override {
    const auto address = reinterpret_cast<std::uintptr_t>(this) / alignof(std::max_align_t);
    finish((1 + 1e-3 * static_cast<double>(address % 1021)) / (group_ == nullptr ? 1 : group_->size()));
  }
};

/// Divides by 1 + |g|; blocks add to the norm in the order in which their threads end.
class SumsAsThreadsEnd final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "sums_as_threads_end", .summary = "a norm under a mutex"};
  using Mean::Mean;
  void finish_gradients() override {
    Mean::finish_gradients();
    for (const Bucket& bucket : replica().buckets()) {
      const TensorView g = bucket.gradients;
      const double squares = g.dtype == DType::kF64 ? squares_of(g.as<double>(), g.elements())
                                                    : squares_of(g.as<float>(), g.elements());
      maps_->scale(g, 1 / (1 + std::sqrt(squares)));
    }
  }

 private:
  template <typename T>
  static double squares_of(const T* gradients, std::int64_t count) {
    double sum = 0;
    std::mutex mutex;
    parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
      double part = 0;
      for (std::int64_t i = begin; i < end; ++i) part += static_cast<double>(gradients[i]) * gradients[i];
      const std::lock_guard lock(mutex);
      sum += part;
    });
    return sum;
  }
};

/// An elastic pull to an anchor that was never copied from the weights, and so is zero.
class PullsToZero final : public Alone {
 public:
  static constexpr ComponentInfo kInfo{.id = "pulls_to_zero", .summary = "an anchor without a beginning"};
  using Alone::Alone;
  void start(Replica& replica) override {
    Alone::start(replica);
    anchor_ = &replica.create_set("anchor");
  }
  void after_step(const Slot&, const StepOutcome&) override {
    ParameterSet& live = replica().live();
    for (int i = 0; i < live.arenas(); ++i) maps_->lerp(live.arena(i), anchor_->arena(i), 0.1);
    live.touch(-1);
  }

 private:
  ParameterSet* anchor_ = nullptr;
};

class WritesUnseen final : public Alone {
 public:
  static constexpr ComponentInfo kInfo{.id = "writes_unseen", .summary = "no touch() after a write"};
  using Alone::Alone;
  void after_step(const Slot&, const StepOutcome&) override {
    for (int i = 0; i < replica().live().arenas(); ++i) maps_->scale(replica().live().arena(i), 0.999999);
  }
};

/// Averages weights every second slot; quiesce() averages too.
class QuiesceAverages final : public Alone {
 public:
  static constexpr ComponentInfo kInfo{.id = "quiesce_averages", .summary = "evaluation changes training"};
  using Alone::Alone;
  void after_step(const Slot& slot, const StepOutcome&) override {
    if (slot.t % 4 == 3) average();
  }
  void quiesce() override { average(); }
};

/// Evaluates a running average of its own weights, which no exchange ever made the same.
class EvaluatesItsOwn final : public Alone {
 public:
  static constexpr ComponentInfo kInfo{.id = "evaluates_its_own", .summary = "as many models as replicas"};
  using Alone::Alone;
  void start(Replica& replica) override {
    Alone::start(replica);
    average_ = &replica.create_set("average");
    replica.copy(replica.live(), *average_);
  }
  void after_step(const Slot& slot, const StepOutcome&) override {
    ParameterSet& live = replica().live();
    for (int i = 0; i < live.arenas(); ++i) maps_->lerp(average_->arena(i), live.arena(i), 0.5);
    average_->touch(-1);
    if (slot.t % 4 == 3) average();
  }
  ParameterSet& evaluation_parameters() override { return *average_; }

 private:
  ParameterSet* average_ = nullptr;
};

class MeetsOnlyIfApplied final : public Alone {
 public:
  static constexpr ComponentInfo kInfo{.id = "meets_only_if_applied",
                                       .summary = "a refused update leaves the others waiting"};
  using Alone::Alone;
  void after_step(const Slot&, const StepOutcome& outcome) override {
    if (outcome.applied) average();
  }
};

class WaitsInALoop final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "waits_in_a_loop", .summary = "done() for ever"};
  using Mean::Mean;
  void finish_gradients() override {
    for (const Transfer& transfer : transfers_) {
      while (!group_->done(transfer.request)) {
      }
    }
    Mean::finish_gradients();
  }
};

class HidesWhoIsLate final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "hides_who_is_late", .summary = "an error without its cause"};
  using Mean::Mean;
  void finish_gradients() override {
    try {
      Mean::finish_gradients();
    } catch (const Error&) {
      transfers_.clear();
      fail_run("the sum failed");
    }
  }
};

int started = 0;

class SaysMoreEachTime final : public Mean {
 public:
  static constexpr ComponentInfo kInfo{.id = "says_more_each_time", .summary = "traffic by chance"};
  using Mean::Mean;
  void start(Replica& replica) override {
    Mean::start(replica);
    if (replica.replica() == 0) ++started;
  }
  void after_step(const Slot& slot, const StepOutcome&) override {
    if (group_ == nullptr || slot.t != 4) return;
    std::vector<float> words(16);
    const TensorView view{words.data(), Shape{16}, DType::kF32, MemorySpace::kHost};
    int rounds = started;
    const TensorView count{&rounds, Shape{1}, DType::kI32, MemorySpace::kHost};
    group_->broadcast(count, 0);
    for (int i = 0; i < rounds; ++i) group_->all_reduce(view, ReduceOp::kSum);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.sync", .version = "1.0.0", .summary = "wrong strategies"},
             CountsItsPlans, PlansForItself, ReturnsTooEarly, ForgetsToDivide, HearsReplicaZero, DriftsApart,
             PullsToZero, WritesUnseen, QuiesceAverages, MeetsOnlyIfApplied, WaitsInALoop, HidesWhoIsLate,
             EvaluatesItsOwn, SumsAsThreadsEnd, WeighsByAddress, SaysMoreEachTime)
