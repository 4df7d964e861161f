// Contract `recovery/1`: what is saved, when, and what happens on failure. It decides; the core writes,
// checksums, commits and restores.
#pragma once

#include <tenon/control.hpp>
#include <tenon/parameter.hpp>
#include <tenon/state.hpp>

#include <string>
#include <vector>

TENON_ABI_BEGIN

/// The moment at a slot boundary: `slot` slots are done.
struct SaveMoment {
  std::int64_t slot = 0;
  std::int64_t steps = 0;  ///< planned end
  std::int64_t samples = 0;
  double seconds = 0;            ///< on the run's clock
  double last_save_seconds = 0;  ///< what the last save cost the training thread; 0 before the first
  bool requested = false;        ///< all ranks agreed to save here: a timer of the policy asked for it
};

/// Rows of one table, or all of it.
struct RowSelection {
  int parameter = 0;
  bool all = true;
  std::vector<std::int64_t> ids;  ///< ascending, this rank's
};

/// What to write. An increment names its base; `tables` is read only when !everything.
struct SavePlan {
  bool save = false;
  bool everything = true;
  std::vector<RowSelection> tables;
  std::string encoding = "plain";  ///< of the rows; "plain" or one that the policy's plugin offers
  std::int64_t base_slot = -1;     ///< of an increment
  bool background = true;  ///< copy, then write while training goes on; false = training waits for the medium
};

enum class FailureAction : std::uint8_t { kContinuePartial, kRollBack, kShrink, kAbort };

struct FailureDecision {
  FailureAction action = FailureAction::kAbort;
  std::int64_t from_slot = -1;  ///< checkpoint to read from; -1 = the newest valid one
};

/// A restored shard, for accounts of lost work.
struct RestoredShard {
  int rank = 0;
  std::int64_t checkpoint_slot = 0;
  std::int64_t checkpoint_samples = 0;
  std::int64_t samples_now = 0;
};

struct SaveResult;  // <tenon/checkpoint.hpp>

class Recovery {
 public:
  using Interface = Recovery;
  static constexpr const char* kKind = "recovery/1";
  virtual ~Recovery();
  /// Row accesses of applied slots only: unique rows and how often each was read. Rows on request ([parallel]
  /// rows): one call per update, a batch of any replica, of those since the last slot.
  virtual void on_accesses(int table, std::span<const std::int64_t> ids,
                           std::span<const std::uint32_t> counts) = 0;
  virtual SavePlan plan_save(const SaveMoment& moment) = 0;
  virtual FailureDecision on_failure(const FailureEvent& failure) = 0;
  virtual void on_restored(const RestoredShard& shard) = 0;
  /// Complete generations to keep, at least 2; 0 = nothing is ever saved.
  virtual int keep() const = 0;
  /// True if every live rank must apply slot t or none does.
  virtual bool needs_commit() const = 0;
  virtual void state(StateVisitor& visitor) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Base of most policies: saves nothing, ends the run on failure, keeps no state.
class RecoveryBase : public Recovery {
 public:
  ~RecoveryBase() override;
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override;
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent& failure) override;
  void on_restored(const RestoredShard& shard) override;
  int keep() const override;
  bool needs_commit() const override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;
};

/// A policy that saves by the clock ("tenon.recovery.timer/1"). Clocks of ranks differ, so rank 0 alone is
/// asked, at each of its slot boundaries. A yes is handed to the control plane, and at the slot that it
/// chooses, the same for all ranks, plan_save is called everywhere with `requested` set.
class SaveTimer {
 public:
  static constexpr const char* kId = "tenon.recovery.timer/1";
  virtual ~SaveTimer();
  virtual bool due(const SaveMoment& moment) = 0;
};

/// A policy that hears how its saves ended ("tenon.recovery.outcomes/1"): committed, skipped because the one
/// before was still being written, or aborted. Called on the training thread, once per save. Ranks hear of
/// the same save at different slots, so plan_save must not depend on it; a timer's answer may.
class SaveOutcomes {
 public:
  static constexpr const char* kId = "tenon.recovery.outcomes/1";
  virtual ~SaveOutcomes();
  virtual void on_save(const SaveResult& result) = 0;
};

TENON_ABI_END
