// One worker of a replica: an executor, a gradient set, and the slot as the design writes it. A replica has
// one worker, or several that update the same weights without locks (Hogwild).
#pragma once

#include "loop/batch_reader.hpp"
#include "loop/bit_flips.hpp"
#include "loop/compute_cost.hpp"
#include "loop/instruments.hpp"
#include "loop/observers.hpp"
#include "loop/parts.hpp"
#include "loop/repeat_check.hpp"
#include "loop/replica.hpp"
#include "loop/row_client.hpp"
#include "loop/row_exchange.hpp"
#include "loop/update.hpp"
#include "loop/witness.hpp"

#include <tenon/clock.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

/// Result of a slot, for logs and budgets.
struct SlotResult {
  SlotKind kind = SlotKind::kGrad;
  bool applied = false;
  double loss_sum = 0, loss_count = 0;              ///< of the trained loss, this replica
  double first_loss_sum = 0, first_loss_count = 0;  ///< of its first micro-batch
  double gradient_norm = 0;
  double lr = 0;
  std::optional<double> loss_scale;  ///< of policies that scale the loss
  std::int64_t micros = 0;           ///< micro-batches by which the position moves
  double seconds = 0;
  std::span<const RowGradient> rows;  ///< rows that the update changed; valid until this worker's next slot
};

/// A slot whose first gradients were computed twice.
struct RepeatedSlot {
  std::int64_t slot = 0;
  std::string differs;  ///< the first parameter whose gradient had other bits, "" if none
};

/// Objects that the workers of a rank share. All of them outlive the workers.
struct WorkerShared {
  const config::CoreSettings& settings;
  Clock& clock;
  ControlPlane& control;
  Instruments& with;
  Parts& parts;
  Observers& observers;
  RankReplica& replica;
  Updater& updater;
  RowExchange& rows;
  MeshSpec mesh;
  int workers = 1;
  bool votes = false;     ///< all ranks apply a slot, or none does
  bool answered = false;  ///< the recovery policy answers what is not finite
};

class Worker {
 public:
  /// index 0 uses the replica's own gradient set; further ones bring theirs.
  /// `requests`: how its rows travel on request; null: as shared.rows does it.
  Worker(const WorkerShared& shared, std::unique_ptr<Executor> executor, int index, RowClient* requests);

  /// Runs slot t with `accumulate` micro-batches of the replica, the first of which begins at `position`
  /// (Counters), at `rate_scale` times the schedule's learning rate. `next_update` hands out the number of an
  /// applied update.
  SlotResult run(std::int64_t t, std::int64_t position, double rate_scale,
                 const std::function<std::int64_t()>& next_update);
  Executor& executor() { return *executor_; }
  /// Micro-batch `micro` of a slot that begins at `position` (Counters).
  BatchRequest request(std::int64_t position, std::int64_t micro) const;
  /// Between slots: runs the forward of a micro-batch of a slot to come as that slot will, but on `weights`.
  /// Returns the output `value` (ExecutorSpec::keep) in host memory, valid until the next call. The state of
  /// sites stays what it is.
  TensorView foresee(ParameterSet& weights, std::int64_t slot, std::int64_t micro, std::int64_t position,
                     std::string_view value);
  /// Between slots: sum and count of the trained loss of the first micro-batch of a slot to come, as that
  /// slot will compute it. The state of sites and the counts of operands stay what they are.
  std::pair<double, double> foresee_loss(ParameterSet& weights, std::int64_t slot, std::int64_t position);
  /// Computes the first gradients of the next slot twice and compares them: bits stay what they are, and the
  /// slot takes up to twice as long.
  void repeat_next() { repeat_.emplace(*executor_, *gradients_, *shared_.parts.device); }
  /// Result of that; nothing before.
  const std::optional<RepeatedSlot>& repeated() const { return repeated_; }
  /// Tells `sink` the digests of the slots that it wants.
  void attach(WitnessSink& sink) { witness_.attach(&sink); }
  /// Operands that each number format got, without those of passes that are not the run's.
  std::vector<std::pair<std::string, std::int64_t>> operands() const;
  /// After the strategy has started: throws where rows travel in step and, within the first thousand slots,
  /// the strategy lets some replicas compute gradients and others not. run() looks at all slots.
  void require_equal_plans() const;
  ComputeCost& cost() { return cost_; }
  /// Current phase of the slot, for messages: "backward".
  std::string_view phase() const { return phase_; }

 private:
  void read_batch(std::int64_t position, std::int64_t micro);
  void forward_ahead(ParameterSet& weights, std::int64_t slot, std::int64_t micro, std::int64_t position);
  /// Samples from one micro-batch of this replica to its next.
  std::int64_t micro_stride() const;
  /// Shows the outputs of the forward that comes next to those that want them.
  void probe_outputs(bool observed);
  void compute_ahead(double loss_scale);
  void compare_with_ahead(bool last);
  void accumulate(std::int64_t t, std::int64_t position, double loss_scale, SlotResult& result);
  bool update(const Slot& slot, const SlotPlan& plan, double loss_scale, SlotResult& result,
              const std::function<std::int64_t()>& next_update);
  bool answers_overflow(double loss_scale) const;
  void require_equal_plans(const Slot& slot, const SlotPlan& plan) const;
  [[noreturn]] void fail_non_finite(std::int64_t t, const char* what, double value);
  /// Returns where the data of this slot is not finite; "" where all of it is.
  std::string non_finite_data();
  /// Gives the replica whose batch it was time to report first, since its message says more.
  void let_others_report() const;

  WorkerShared shared_;
  std::unique_ptr<Executor> executor_;
  RowClient* requests_;
  BatchReader reader_;
  LossScaler* scaler_;  ///< the precision policy's, null where it has none
  std::unique_ptr<ParameterSet> own_gradients_;
  ParameterSet* gradients_;
  ComputeCost cost_;
  std::string_view phase_ = "the start of a slot";
  const std::string optimizer_;                    ///< "optimizer.NAME"
  graph::KnownPlace place_;                        ///< of its update; the executor has one of its own
  std::int64_t elements_ = 0, elements_done_ = 0;  ///< of gradients, and those that backward has passed
  std::vector<int> open_;                          ///< parameters missing per bucket
  std::size_t next_bucket_ = 0;
  RunSpec last_run_;
  std::int64_t slot_position_ = 0;  ///< sample of the global order that the slot began with
  std::optional<RepeatCheck> repeat_;
  std::optional<RepeatedSlot> repeated_;
  std::vector<std::pair<std::string, std::int64_t>> repeated_operands_, foreseen_operands_;
  HostStage foreseen_;
  TensorWatch watch_;
  SlotWitness witness_;
  std::optional<BitFlips> flips_;  ///< the first worker's
  bool probed_ = false;            ///< the executor shows its outputs
  ParameterReady ready_;
};

}  // namespace tenon::train
