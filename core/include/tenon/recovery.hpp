// Contract `recovery/1`: what is saved, when, and what happens on failure. It decides; the core writes,
// checksums, commits and restores.
#pragma once

#include <tenon/control.hpp>
#include <tenon/emulation.hpp>
#include <tenon/parameter.hpp>
#include <tenon/state.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// The moment at a slot boundary: `slot` slots are done.
struct SaveMoment {
  std::int64_t slot = 0;
  std::int64_t steps = 0;  ///< planned end
  std::int64_t samples = 0;
  double seconds = 0;            ///< on the run's clock, or that of the emulated job
  double last_save_seconds = 0;  ///< what the last save cost the training thread; 0 before the first
  bool requested = false;        ///< all ranks agreed to save here: a timer of the policy asked for it
  bool forced = false;           ///< the core saves everything here, whatever the policy plans
  bool same_clock = false;       ///< `seconds` is the same number on all ranks, so a policy may decide by it
};

/// SavePlan::base_slot of an increment on the newest checkpoint that is committed. Where there is none the
/// core saves everything instead.
inline constexpr std::int64_t kNewestBase = -2;

/// Rows of one table, or all of it.
struct RowSelection {
  int parameter = 0;
  bool all = true;
  std::vector<std::int64_t> ids;  ///< ascending, this rank's
};

/// What to write. An increment names its base; `tables` and `dense` are read only when !everything. Rows go
/// with their optimizer state.
struct SavePlan {
  bool save = false;
  bool everything = true;
  bool dense = true;       ///< arenas, and what components keep in tensors
  bool consistent = true;  ///< everything that reading it gives back is of one moment
  std::vector<RowSelection> tables;
  std::string encoding = "plain";  ///< of the rows; "plain" or one of the policy's RowCodec
  std::int64_t base_slot = -1;     ///< of an increment: a slot, or kNewestBase
  bool background = true;  ///< copy, then write while training goes on; false = training waits for the medium
};

enum class FailureAction : std::uint8_t { kContinuePartial, kRollBack, kAbort };

/// A roll-back reads a consistent checkpoint, or goes back to the start where there is none.
struct FailureDecision {
  FailureAction action = FailureAction::kAbort;
  std::int64_t from_slot = -1;  ///< checkpoint to read from; -1 = the newest valid one
};

/// A restored shard, for accounts of lost work.
struct RestoredShard {
  int shard = 0;                     ///< failure domain
  std::int64_t checkpoint_slot = 0;  ///< 0 where rows went back to their initial values
  std::int64_t checkpoint_samples = 0;
  std::int64_t samples_now = 0;
};

/// What a policy may know of the run before its first slot.
struct RecoveryContext {
  int rank = 0;
  int ranks = 1;             ///< that train
  std::int64_t steps = 0;    ///< planned slots
  std::int64_t samples = 0;  ///< of the planned slots, over all replicas
  std::uint64_t seed = 1;
  std::int64_t failures = 0;           ///< of this run so far, those before a roll-back among them
  std::int64_t divergences = 0;        ///< likewise: roll-backs because training diverged
  const ParameterSet* live = nullptr;  ///< outlives the policy
  FailureDomains domains;
  bool emulated = false;  ///< [emulate]: `costs` are those of the emulated cluster
  ClusterCosts costs;
};

struct SaveResult;  // <tenon/checkpoint.hpp>

class Recovery {
 public:
  using Interface = Recovery;
  static constexpr const char* kKind = "recovery/1";
  virtual ~Recovery();
  /// Called once, before the first slot and before any state is restored.
  virtual void bind(const RecoveryContext& context) = 0;
  /// Row accesses of applied slots only: unique rows and how often each was read. Rows on request ([parallel]
  /// rows): one call per update, a batch of any replica, of those since the last slot.
  virtual void on_accesses(int table, std::span<const std::int64_t> ids,
                           std::span<const std::uint32_t> counts) = 0;
  /// Whether the clock asks for a save. Clocks of ranks differ, so rank 0 alone is asked, at each of its slot
  /// boundaries. A yes goes to the control plane, and at the slot that it chooses, the same for all ranks,
  /// plan_save is called everywhere with `requested` set.
  virtual bool save_due(const SaveMoment& moment) = 0;
  virtual SavePlan plan_save(const SaveMoment& moment) = 0;
  /// How a save ended: committed, skipped because the one before was still being written, or aborted. Called
  /// on the training thread, once per save. Ranks hear of the same save at different slots, so plan_save must
  /// not depend on it; save_due may.
  virtual void on_save(const SaveResult& result) = 0;
  virtual FailureDecision on_failure(const FailureEvent& failure) = 0;
  virtual void on_restored(const RestoredShard& shard) = 0;
  /// What the policy counts, such as its share of lost samples: written beside each failure and at the end of
  /// the run. Calls `sink` with each name, valid during that call, and value.
  virtual void account(const std::function<void(std::string_view, double)>& sink) = 0;
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
  void bind(const RecoveryContext& context) override;
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override;
  bool save_due(const SaveMoment& moment) override;
  SavePlan plan_save(const SaveMoment& moment) override;
  void on_save(const SaveResult& result) override;
  FailureDecision on_failure(const FailureEvent& failure) override;
  void on_restored(const RestoredShard& shard) override;
  void account(const std::function<void(std::string_view, double)>& sink) override;
  int keep() const override;
  bool needs_commit() const override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;
};

/// What a slot came to, the same on all ranks.
struct SlotOutcome {
  std::int64_t slot = 0;
  double loss = 0;           ///< mean over all replicas; may be NaN or infinite
  double gradient_norm = 0;  ///< global, before clipping; likewise
  bool applied = false;      ///< a slot without a gradient is none
};

/// A policy that watches training diverge ("tenon.recovery.divergence/1"). With one, a loss or norm that is
/// not finite refuses the update and does not end the run. After a yes, which is pure in what was seen, all
/// ranks ask on_failure with kDivergence at the next slot boundary. For replicas that share their updates,
/// whose norms are equal; one worker each.
class DivergenceWatch {
 public:
  static constexpr const char* kId = "tenon.recovery.divergence/1";
  virtual ~DivergenceWatch();
  virtual bool diverged(const SlotOutcome& outcome) = 0;
  /// After a roll-back for divergence: whether optimizer state begins at zero, as at the first slot.
  virtual bool resets_optimizer() const = 0;
  /// Micro-batches of each replica that are passed over after it.
  virtual std::int64_t skipped_batches() const = 0;
  /// Of the learning rate, from the slot that the newest roll-back for divergence went back to; pure.
  virtual double rate_scale(std::int64_t slots_since) const = 0;
};

/// A policy that chooses rows ("tenon.recovery.selector/1"). plan_save says that a save is due; select says
/// what is in it, on every rank, once all saves before it have ended everywhere and on_save told of them:
/// rows that were chosen are then saved or aborted, never skipped. Also called for saves that the core
/// forces, whose plan it leaves as it is.
class SaveSelector {
 public:
  static constexpr const char* kId = "tenon.recovery.selector/1";
  virtual ~SaveSelector();
  virtual void select(const SaveMoment& moment, SavePlan& plan) = 0;
};

/// A policy with encodings of its own for rows ("tenon.recovery.codec/1"). The core encodes tables of f32
/// weights of a plan whose `encoding` is one of these; optimizer rows stay plain. Any thread, one at a time.
class RowCodec {
 public:
  static constexpr const char* kId = "tenon.recovery.codec/1";
  virtual ~RowCodec();
  /// Names, valid as long as the codec.
  virtual std::span<const std::string_view> encodings() const = 0;
  /// rows: [n, width] f32 in host memory. Appends to `out`.
  virtual void encode(std::string_view encoding, TensorView rows, std::vector<std::byte>& out) = 0;
  /// Fills `rows` ([n, width] f32) from what encode made of as many; throws Error(kRun) if it is not that.
  virtual void decode(std::string_view encoding, std::span<const std::byte> stored, TensorView rows) = 0;
};

/// A policy that keeps copies of ranks' state in the memory of other ranks ("tenon.recovery.copies/1"). After
/// deaths that the others outlive, all ranks go back to the newest slot of which a copy of every rank is
/// left, instead of to a checkpoint.
class MemoryCopies {
 public:
  static constexpr const char* kId = "tenon.recovery.copies/1";
  virtual ~MemoryCopies();
  /// Asked at slot boundaries, after bind; pure in moment.slot and moment.steps.
  virtual bool copies_due(const SaveMoment& moment) = 0;
  /// World ranks whose memory holds the state of `rank`, itself among them.
  virtual std::vector<int> holders(int rank) = 0;
};

TENON_ABI_END
