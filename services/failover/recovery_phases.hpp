// The recovery policy in the phases of a run, and what the core does for it there (RecoveryHost): the policy
// is told of slots, acts at boundaries, and takes all ranks back to a checkpoint where it plans that.
#pragma once

#include "failover/recovery_actions.hpp"
#include "loop/service.hpp"
#include "loop/slot_queue.hpp"
#include "loop/spans.hpp"
#include "loop/time_account.hpp"
#include "loop/traced_communicator.hpp"
#include "run/rank_context.hpp"

#include <tenon/recovery.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

class RecoveryPhases final : public Service, private RecoveryHost {
 public:
  /// Objects that it uses beside the context.
  struct Sources {
    RecoveryActions& actions;
    TimeAccount& account;
    SpanRecorder& spans;
    const Progress& progress;
    CommunicatorWatch watch;
    Communicator* mesh = nullptr;  ///< null when the mesh has one rank
  };
  /// Tells the policy which run it is in.
  RecoveryPhases(const RankContext& rank, const Sources& sources);

  void after_slot(std::int64_t slot, const SlotResult& result) override;
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;
  /// After every restoration. The changes of the policy's newest roll-back are no part of its checkpoint.
  /// Collective.
  void begin(bool from_memory = false);

 private:
  // RecoveryHost
  const RecoveryContext& run() const override { return context_; }
  void sum(std::span<double> values) override;
  std::vector<std::string> gather(const std::string& text) override;
  std::unique_ptr<Communicator> open(std::string_view name) override;
  std::string capture() override;
  void restore(const std::string& captured) override;
  std::shared_ptr<void>& kept(std::string_view name) override;
  void reset_optimizer() override;
  void skip_batches(std::int64_t batches) override;
  void report(std::string_view name, double value) override;

  void act(const SaveMoment& moment);
  void roll_back(std::int64_t slot);

  RankContext rank_;
  Sources from_;
  RecoveryContext context_;
  BoundaryPlan plan_;  ///< of this boundary
};

}  // namespace tenon::train
