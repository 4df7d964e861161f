// A rank that outlives the death of others: it keeps its state in memory, joins the ranks that replace them,
// and goes on from the slot that was interrupted, or from where the recovery policy can bring all back from
// what it keeps in memory.
#pragma once

#include "failover/recovery_actions.hpp"
#include "failover/recovery_phases.hpp"
#include "failover/snapshot.hpp"
#include "loop/faults.hpp"
#include "loop/service.hpp"
#include "loop/slot_queue.hpp"
#include "record/recovery_log.hpp"
#include "record/saves.hpp"
#include "run/rank_context.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace tenon::train {

class Survivor final : public Service {
 public:
  /// Objects that it uses beside the context.
  struct Sources {
    Updater& updater;
    Faults& faults;
    Saves& saves;
    RecoveryActions& recovery;
    RecoveryPhases& phases;
    Progress& progress;
    std::string unrecoverable;  ///< why the run cannot go on from what ranks hold, by its shape; "" if it can
  };
  Survivor(const RankContext& rank, const Sources& sources);

  /// After an interruption that the run outlives: puts a copy of the state into the process's Survival.
  void hold();
  /// Before the folder is opened again: finds out whether the run goes on from the state that ranks hold.
  /// Collective.
  void find_survivors();
  /// Restores the state in place of reading a checkpoint. Collective.
  void rejoin();

  /// From here on the rank has the state of its first slot.
  void begin();

  void before_slot(std::int64_t slot) override;

  /// A row table that is sharded over the replicas, each of which holds rows that no other has.
  static bool loses_rows(const ParameterSet& live);

 private:
  void share_state(const Survivors& survivors);
  void share_components(const Survivors& survivors, Communicator& group);
  bool is_lost_with_its_rank(int parameter) const;
  bool loses_rows() const { return loses_rows(rank_.weights.live()); }
  std::int64_t handle_deaths(const Survivors& survivors, FailedEvent& record);
  void restore_dead(const FailureDecision& decision, const Survivors& survivors, FailedEvent& record);
  void restore_kept(double began_s);
  void log_state();
  void log_deaths(FailedEvent& record, double began_s, std::int64_t repeated);

  RankContext rank_;
  Sources from_;
  bool has_state_ = false;    ///< that of the first slot or later
  bool marks_slots_ = false;  ///< deaths of other ranks may interrupt them
  SlotMark mark_;
};

}  // namespace tenon::train
