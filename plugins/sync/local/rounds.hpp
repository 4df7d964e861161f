// Base of the strategies of this plugin: a warm-up in which every update uses the mean gradient of all
// replicas, then local updates of each replica, and a synchronisation round after every `interval` slots. A
// round is at slot t when t + 1 is a multiple of the interval, independent of earlier slots.
#pragma once

#include <tenon/identities.hpp>
#include <tenon/options.hpp>
#include <tenon/sdk/gradient_mean.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>

#include <memory>
#include <vector>

namespace tenon::sync_local {

inline constexpr OptionSpec kDrift = option::boolean("drift", "false")
                                         .doc_text(
                                             "record the distance between replicas before each sync round; "
                                             "sends three times the bytes of a local_sgd round");

/// Drift of the replicas just before a synchronisation round, if requested (option `drift`). Records
/// "replica_drift", |x_k - mean(x)| / |mean(x)| of each replica, and "replica_spread", the largest difference
/// between two replicas in one weight. Costs three all-reduces of the weights, counted as statistics.
class Drift {
 public:
  /// Allocates two copies of the largest of these arenas.
  Drift(Replica& replica, std::vector<int> arenas);
  ~Drift();
  Drift(const Drift&) = delete;
  Drift& operator=(const Drift&) = delete;
  /// Collective.
  void measure();

 private:
  TensorView scratch(int index, const TensorView& like) const;

  Replica& replica_;
  std::vector<int> arenas_;
  std::size_t bytes_ = 0;
  void* room_[2] = {nullptr, nullptr};
};

inline constexpr OptionSpec kWarmup =
    option::integer("warmup", "0")
        .at_least(0)
        .in_unit("slots")
        .doc_text("slots of data-parallel training first, with the mean gradient in every update");

constexpr OptionSpec interval_option(const char* fallback, const char* doc) {
  return option::integer("interval", fallback).at_least(1).in_unit("slots").doc_text(doc);
}

enum class LocalState { kKeep, kReset, kAverage };
inline constexpr auto kLocalStates = option::choice<LocalState>(
    {{"keep", LocalState::kKeep}, {"reset", LocalState::kReset}, {"average", LocalState::kAverage}});
/// Declared by the strategies that offer it; the others keep the state.
inline constexpr OptionSpec kLocalState =
    option::text("local_state", "\"keep\"")
        .one_of(kLocalStates)
        .doc_text(
            "what a sync round does to the optimizer state of each replica: keep it, set it to zero, or "
            "replace it by the mean over replicas, which is sent as well");

class Rounds : public SyncBase, protected ComponentIdentities {
 public:
  Rounds(const char* name, const Options& options)
      : name_(name),
        interval_(options.integer("interval")),
        warmup_(options.integer("warmup")),
        measures_drift_(options.boolean("drift")) {}

  void start(Replica& replica) override;
  std::int64_t first_round() const override { return (warmup_ / interval_ + 1) * interval_; }
  /// In the warm-up all replicas have the same gradients, so each decides alike by itself.
  GradientGroup gradient_group() const override { return GradientGroup::kReplica; }
  void on_gradients_ready(const Bucket& bucket) override;
  void finish_gradients() override { mean_.finish(); }
  void after_step(const Slot& slot, const StepOutcome& outcome) final;
  void state(StateVisitor& visitor) override { visitor.integer("parted", parted_); }
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : SyncBase::query(id);
  }

 protected:
  const char* name() const { return name_; }
  /// Reads the option of a strategy that declares kLocalState.
  void read_local_state(const Options& options);
  /// Replicas are equal and continue alone: at the start, or when the warm-up ends.
  virtual void begin() {}
  /// Called in every slot after the warm-up, before a synchronisation round.
  virtual void between(const Slot&, const StepOutcome&) {}
  /// Ends a round.
  virtual void sync_round() = 0;
  /// Called once buffers have followed their policy too.
  virtual void settled() {}

  std::int64_t warmup() const { return warmup_; }
  /// Returns whether replicas train alone. Part of the state: a run restored at its end has no slot to derive
  /// it from.
  bool parted() const { return parted_ != 0; }
  Elementwise& elementwise() const { return *elementwise_; }
  /// Arenas of trained parameters; [sync] buffers handles buffers, and frozen parameters are equal anyway.
  const std::vector<int>& arenas() const { return arenas_; }
  /// data = the sum, or the mean, of all replicas' data: each sends 2 (K-1)/K of its bytes.
  void sum(TensorView data);
  void average(TensorView data);
  void average_weights();

 private:
  void part();
  void apply_local_state();

  const char* name_;
  std::int64_t interval_, warmup_, parted_ = 0;
  bool measures_drift_;
  std::unique_ptr<Drift> drift_;  ///< null unless requested
  LocalState local_state_ = LocalState::kKeep;
  GradientMean mean_;
  Communicator* group_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::vector<int> arenas_;
};

/// Rounds around a second set of weights, from which replicas start a round or to which they are pulled, and
/// which is evaluated.
class Centered : public Rounds {
 public:
  /// center: the set's name in checkpoints.
  Centered(const char* name, const char* center, const Options& options)
      : Rounds(name, options), center_name_(center) {}

  void start(Replica& replica) override;
  /// Returns the centre once replicas train alone: none of them is the model.
  ParameterSet& evaluation_parameters() override;

 protected:
  /// Sets the centre to the replicas' common weights. After a warm-up they are equal; the published average
  /// there is kept, and counted.
  void begin() final;
  /// The centre is evaluated with the statistics of the synchronisation round, not with the initial ones.
  void settled() final;
  ParameterSet& center() const { return *center_; }

 private:
  const char* center_name_;
  ParameterSet* center_ = nullptr;
};

}  // namespace tenon::sync_local
