// One rank of a run: it restores what it begins with, runs slots, and acts at slot boundaries (evaluate,
// save, stop).
#pragma once

#include "loop/slot_queue.hpp"
#include "loop/worker.hpp"
#include "run/rank_services.hpp"
#include "run/trainer.hpp"
#include "run/world.hpp"

#include <memory>
#include <string>
#include <vector>

namespace tenon::train {

class Rank final : private SlotQueue::Owner {
 public:
  /// Builds everything up to the first slot. Collective over all ranks; leaves nothing on disk.
  Rank(World& world, int rank);

  /// Once the world has a folder: restores what it found, then runs to the end, or to a failure after which
  /// all ranks go back to an earlier checkpoint. Returns whether that is so: the caller builds the rank
  /// again.
  bool run();
  const Trainer& trainer() const { return trainer_; }
  Survivor& survivor() { return services_->survivor(); }
  int keep() const { return parts_.recovery->keep(); }
  /// Whether the policy, had everything failed, would go on from rows of several moments.
  bool continues_mixed() const { return services_->actions().continues_mixed(); }

 private:
  // SlotQueue::Owner
  Boundary due(std::int64_t slot) override;
  void act(Boundary& due) override;
  bool ends(const Boundary& due) const override { return due.stop || services_->actions().rolls_back(); }
  SlotQueue::Ticket take(std::int64_t slot) override;

  void open_folder();
  Manifest describe() const;
  void restore();
  void loop(Worker& worker);
  void run_workers();
  SlotResult run_slot(Worker& worker, const SlotQueue::Ticket& ticket);
  bool calibration_due(std::int64_t slot);
  /// Collective: all ranks count with the medians of what they measured.
  void calibrate();
  void report_accesses();
  void report(const RowGradient& rows);
  void finish_slot(const SlotQueue::Ticket& ticket, const SlotResult& result);
  bool budget_spent() const;
  void evaluate(Boundary& due);
  void record_progress();
  void leave();
  void finish();
  OverheadLedger* ledger() const { return world_.ledger(rank_); }

  World& world_;
  int rank_;
  std::uint32_t epoch_;
  Trainer trainer_;
  Instruments& with_;
  Parts& parts_;
  Counters& counters_;
  MetricLines& lines_;
  SlotQueue slots_;
  std::unique_ptr<RankServices> services_;
  bool stands_still_ = false;  ///< paused at the last boundary, until the hashes are taken
};

}  // namespace tenon::train
