// The services of a rank: made together, called in one order, which is the same on all ranks because they
// communicate.
#pragma once

#include "failover/emulated_outages.hpp"
#include "failover/recovery_actions.hpp"
#include "failover/recovery_phases.hpp"
#include "failover/survivor.hpp"
#include "loop/slot_queue.hpp"
#include "record/saves.hpp"
#include "run/repetition.hpp"
#include "run/trainer.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

class RankServices {
 public:
  RankServices(World& world, int rank, Trainer& trainer, Progress& progress);

  /// In the order in which they are called.
  std::span<Service* const> all() const { return all_; }
  RecoveryActions& actions() const { return *actions_; }
  RecoveryPhases& phases() const { return *phases_; }
  Saves& saves() const { return *saves_; }
  Survivor& survivor() const { return *survivor_; }
  Repetition& repetition() const { return *repetition_; }
  /// Null without [emulate].
  EmulatedFailures* emulated() const { return emulated_.get(); }

 private:
  std::unique_ptr<EmulatedFailures> emulated_;
  std::unique_ptr<RecoveryActions> actions_;
  std::unique_ptr<RecoveryPhases> phases_;
  std::unique_ptr<Saves> saves_;
  std::unique_ptr<Survivor> survivor_;
  std::unique_ptr<Repetition> repetition_;
  std::unique_ptr<EmulatedOutages> outages_;  ///< null without [emulate]
  std::vector<Service*> all_;
};

}  // namespace tenon::train
