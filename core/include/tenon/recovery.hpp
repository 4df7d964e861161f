// Contract `recovery/1`: what is saved, when, and what happens on failure. The policy decides; the core
// copies, writes, checks, commits and restores.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/state.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

class Communicator;  // <tenon/transport.hpp>

/// Parts of the row tables that are lost together. Hashed: row r of table p belongs to a domain by a fixed
/// hash, so that all domains see about as many accesses. Otherwise domain s is the rows of rank s.
struct FailureDomains {
  int shards = 1;
  bool hashed = false;
};

/// The domain of a row where the division is hashed. `table` is the parameter's index.
int shard_of_row(const FailureDomains& domains, int table, std::int64_t row) noexcept;

/// Costs of saves and failures of a job, and the time between failures, in seconds of the job.
struct ClusterCosts {
  double save_s = 0;     ///< a complete save; others by their bytes
  double load_s = 0;     ///< reading back after a failure
  double restart_s = 0;  ///< finding and starting a replacement
  double mtbf_s = 0;     ///< mean time between failures of the whole job; 0 = unknown
};

struct FailureEvent {
  std::int64_t slot = 0;
  std::int64_t samples = 0;
  std::vector<int> dead = {};    ///< world ranks
  std::vector<int> shards = {};  ///< failure domains of row tables that lost their rows, ascending
};

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

/// Content of a save. An increment names its base; `tables` and `dense` are read only when !everything. Rows
/// include their optimizer state.
struct SavePlan {
  bool save = false;
  bool everything = true;
  bool dense = true;       ///< arenas, and what components keep in tensors
  bool consistent = true;  ///< everything that is read back is of one moment
  std::vector<RowSelection> tables;
  std::string encoding = "plain";  ///< of the rows; "plain" or one of the policy's RowCodec
  std::int64_t base_slot = -1;     ///< of an increment: a slot, or kNewestBase
  bool background = true;  ///< copy, then write while training goes on; false = training waits for the medium
};

/// Outcome of a save.
enum class SaveStatus : std::uint8_t {
  kCommitted,  ///< durable and verified
  kSkipped,    ///< an earlier save was still being written
  kAborted,    ///< failed somewhere; nothing of it is left, the older generations are untouched
};

struct SaveResult {
  SaveStatus status = SaveStatus::kAborted;
  std::int64_t step = 0;
  /// Why it was aborted; with kCommitted, what went wrong afterwards (removal of old ones).
  std::string error = {};
  std::int64_t bytes = 0;      ///< written by this rank
  std::int64_t all_bytes = 0;  ///< by all ranks together
  double copy_s = 0;           ///< stall of the training thread
  double write_s = 0;          ///< file of this rank, until it is on the medium
  double commit_s = 0;         ///< gather, manifest, verification, rename, removal of old generations
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

/// Facts about the run before its first slot.
struct RecoveryContext {
  int rank = 0;
  int ranks = 1;             ///< that train
  int workers = 1;           ///< of a rank, which update its weights at the same time
  int servers = 0;           ///< ranks that hold parameters and do not train
  std::int64_t steps = 0;    ///< planned slots
  std::int64_t samples = 0;  ///< of the planned slots, over all replicas
  std::uint64_t seed = 1;
  bool shared_updates = true;          ///< replicas exchange gradients in every slot: their norms are equal
  bool outlives = false;               ///< ranks keep their memory when other ranks die
  std::int64_t failures = 0;           ///< of this run so far, those before a roll-back among them
  const ParameterSet* live = nullptr;  ///< outlives the policy
  FailureDomains domains;
  bool emulated = false;  ///< [emulate]: `costs` are those of the emulated cluster
  ClusterCosts costs;
};

/// Services of the core for a policy. Outlives the policy. Functions called collective are called by all
/// ranks that train, in the same order; their waits have the run's deadline.
class RecoveryHost {
 public:
  virtual ~RecoveryHost();
  virtual const RecoveryContext& run() const = 0;
  /// Sums each value over all ranks, in a fixed order. Collective.
  virtual void sum(std::span<double> values) = 0;
  /// The texts of all ranks, by rank. Collective.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// Opens a communicator of all ranks; null where one trains. Collective.
  virtual std::unique_ptr<Communicator> open(std::string_view name) = 0;
  /// Returns all that this rank needs to go on from this boundary, as bytes. Only in at_boundary and start.
  virtual std::string capture() = 0;
  /// Restores what capture() returned. Only in bring_back.
  virtual void restore(const std::string& captured) = 0;
  /// The policy's own memory under `name`, in this process. It outlives the policy when other ranks die, and
  /// is emptied when the run goes back to a checkpoint.
  virtual std::shared_ptr<void>& kept(std::string_view name) = 0;
  /// Sets optimizer state to zero, as at the first slot. Only in start.
  virtual void reset_optimizer() = 0;
  /// Makes each replica skip this many micro-batches. Only in start.
  virtual void skip_batches(std::int64_t batches) = 0;
  /// Writes the metric train/<name> of the slots done. Only rank 0's value counts.
  virtual void report(std::string_view name, double value) = 0;
};

/// Beginning of the slots: at the first one, after a resume, and whenever the run has gone back.
struct RecoveryStart {
  std::int64_t slot = 0;
  std::int64_t roll_backs = 0;       ///< that the policy asked for, in the whole run (BoundaryPlan)
  std::int64_t rolled_back_to = -1;  ///< slot that the newest of them went back to
  bool rolled_back = false;          ///< it has just gone back there
  bool from_memory = false;          ///< the policy has just brought all ranks back (bring_back)
};

/// A policy may change how a slot is trained.
struct SlotStart {
  std::int64_t slot = 0;
  double rate_scale = 1;  ///< of the learning rate
};

/// Outcome of a slot. The gradient norm is the same on all ranks where updates are shared.
struct SlotOutcome {
  std::int64_t slot = 0;
  bool gradient = false;                ///< the slot computed one
  bool applied = false;                 ///< and changed the weights by it
  double loss_sum = 0, loss_count = 0;  ///< of this rank; may be NaN or infinite
  double gradient_norm = 0;             ///< global, before clipping; likewise
};

/// Actions of a policy before a slot, besides saving.
struct BoundaryPlan {
  bool acts = false;             ///< at_boundary is called there
  bool rolls_back = false;       ///< all ranks go back to a consistent checkpoint
  std::int64_t from_slot = -1;   ///< that checkpoint, which no save has replaced; -1 = the newest valid one
  std::string_view reason = "";  ///< one word for recovery.jsonl and the log: "diverged"
};

class Recovery {
 public:
  using Interface = Recovery;
  static constexpr const char* kKind = "recovery/1";
  virtual ~Recovery();
  /// Called once, before the first slot and before any state is restored.
  virtual void bind(RecoveryHost& host) = 0;
  /// The state is that of `start.slot`. Collective.
  virtual void start(const RecoveryStart& start) = 0;
  /// A worker is about to train this slot. Pure in slot.slot and in the argument of start().
  virtual void before_slot(SlotStart& slot) = 0;
  /// On all ranks in the order of slots; of several workers in the order in which slots end.
  virtual void after_slot(const SlotOutcome& outcome) = 0;
  /// A metric of the evaluation before `slot`, on every rank that has it: with model parallelism the loss may
  /// be on some ranks only.
  virtual void on_evaluation(std::int64_t slot, std::string_view metric, double value) = 0;
  /// Asked before every slot but the first of a segment, unless the run ends there. Must be the same on all
  /// ranks.
  virtual BoundaryPlan plan_boundary(const SaveMoment& moment) = 0;
  /// Called where plan_boundary asked for it: workers wait, no transfer is under way, saves of this boundary
  /// are handed over. Collective.
  virtual void at_boundary(const SaveMoment& moment) = 0;
  /// True: a slot whose loss or gradient norm is not finite is refused, and the run goes on. The policy is
  /// told in after_slot.
  virtual bool answers_non_finite() const = 0;
  /// Called when the ranks that outlived a death and the replacements of the dead, whose memory is empty,
  /// have joined. Returns the slot to which the policy can bring all ranks from what they keep in memory, -1
  /// if none; the same on all ranks. Collective.
  virtual std::int64_t rejoin() = 0;
  /// Brings all ranks to `slot`: calls RecoveryHost::restore on every rank. Collective.
  virtual void bring_back(std::int64_t slot) = 0;
  /// Row accesses of applied slots only: unique rows and how often each was read. With rows on request
  /// ([parallel] rows) there is one call per update since the last slot, each for a batch of any replica.
  virtual void on_accesses(int table, std::span<const std::int64_t> ids,
                           std::span<const std::uint32_t> counts) = 0;
  /// Whether the clock asks for a save. Clocks of ranks differ, so rank 0 alone is asked, at each of its slot
  /// boundaries. A yes is sent to the control plane, and at the slot that it chooses, the same for all ranks,
  /// plan_save is called everywhere with `requested` set.
  virtual bool save_due(const SaveMoment& moment) = 0;
  virtual SavePlan plan_save(const SaveMoment& moment) = 0;
  /// Reports the end of a save: committed, skipped because the one before was still being written, or
  /// aborted. Called on the training thread, once per save. Ranks learn of the same save at different slots,
  /// so plan_save must not depend on it; save_due may.
  virtual void on_save(const SaveResult& result) = 0;
  virtual FailureDecision on_failure(const FailureEvent& failure) = 0;
  virtual void on_restored(const RestoredShard& shard) = 0;
  /// Reports counts of the policy, such as its share of lost samples, which are written beside each failure
  /// and at the end of the run. Calls `sink` with each name, valid during that call, and value.
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
  void bind(RecoveryHost& host) override;
  void start(const RecoveryStart& start) override;
  void before_slot(SlotStart& slot) override;
  void after_slot(const SlotOutcome& outcome) override;
  void on_evaluation(std::int64_t slot, std::string_view metric, double value) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  void at_boundary(const SaveMoment& moment) override;
  bool answers_non_finite() const override;
  std::int64_t rejoin() override;
  void bring_back(std::int64_t slot) override;
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

/// Base of policies that add something to another one: all calls go to `inner`, which outlives this.
class RecoveryDecorator : public Recovery {
 public:
  /// Throws Error(kConfig) where inner is null.
  explicit RecoveryDecorator(Recovery* inner);
  ~RecoveryDecorator() override;
  void bind(RecoveryHost& host) override;
  void start(const RecoveryStart& start) override;
  void before_slot(SlotStart& slot) override;
  void after_slot(const SlotOutcome& outcome) override;
  void on_evaluation(std::int64_t slot, std::string_view metric, double value) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  void at_boundary(const SaveMoment& moment) override;
  bool answers_non_finite() const override;
  std::int64_t rejoin() override;
  void bring_back(std::int64_t slot) override;
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
  /// Within "inner".
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;

 protected:
  Recovery& inner() const { return *inner_; }

 private:
  Recovery* inner_;
};

/// A policy that chooses rows ("tenon.recovery.selector/1"). plan_save says that a save is due; select says
/// what is in it, on every rank, once all saves before it have ended everywhere and on_save has reported
/// them: rows that were chosen are then saved or aborted, never skipped. Also called for saves that the core
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
  /// Fills `rows` ([n, width] f32) from the output of encode for as many rows; throws Error(kRun) on other
  /// bytes.
  virtual void decode(std::string_view encoding, std::span<const std::byte> stored, TensorView rows) = 0;
};

TENON_ABI_END
