// All that a rank must keep to continue with the same bits: one enumeration serves saving, restoring and
// hashing. Names: "model/<parameter>", "optimizer.<slot>/<parameter>", "sync.<set>/<parameter>",
// "rank<r>/<component>/<name>". Replicas that always hold equal weights share the first two and replica 0
// writes them; others carry "replica<r>/".
#pragma once

#include "loop/parts.hpp"
#include "loop/replica.hpp"
#include "loop/update.hpp"
#include "record/saved_shape.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/on_policy.hpp>
#include <tenon/tier.hpp>

#include <functional>
#include <string>
#include <vector>

namespace tenon::train {

/// Counts that lines of metrics show beside Counters. They are saved with them, so that the lines after a
/// resume are those of an uninterrupted run, but are no part of the state's hash: they depend on when lines
/// are due.
struct LineCounts {
  double loss_sum = 0, loss_count = 0;  ///< since the last line of train/loss
  std::int64_t skipped_updates = 0;
  /// On rank 0: slots whose plans were looked at, the samples of all replicas in them, and of those the ones
  /// in slots with gradients.
  std::int64_t planned_slots = 0, planned_samples = 0, trained_samples = 0;
  std::int64_t evaluated = -1;  ///< slot before which the newest evaluation was
  std::int64_t bytes_sent = 0;  ///< when this was last saved
  std::string recorded;         ///< Distributions::window(), likewise
  void state(StateVisitor& visitor);
};

/// Counts of one rank. The position is that of its replica.
struct Counters {
  std::int64_t slot = 0;      ///< slots done
  std::int64_t updates = 0;   ///< applied
  std::int64_t position = 0;  ///< samples of the global order before the next micro-batch of replica 0
  std::int64_t samples = 0;   ///< of all replicas
  std::int64_t tokens = 0;
  std::int64_t roll_backs = 0;       ///< that the recovery policy asked for
  std::int64_t rolled_back_to = -1;  ///< slot that the newest of them went back to
  double wall_s = 0;                 ///< of earlier segments too
  LineCounts lines;
  void state(StateVisitor& visitor);
};

/// One tensor or row table of the rank.
struct StateEntry {
  std::string name;
  TensorView view;  ///< empty for a table
  RowTable* table = nullptr;
  int parameter = -1;
  Shape global_shape, offset;
  bool written = true;  ///< this rank writes and hashes it (replicas of shared tensors do not)
  std::int64_t bytes() const;
};

/// A run goes on from a checkpoint of its own, or begins as a copy of another one.
enum class Continued : std::uint8_t { kResume, kFork };

struct RestoredRows {
  std::int64_t rows = 0;   ///< of tables of the model
  std::int64_t bytes = 0;  ///< with their optimizer state
};

/// Rows of tables and of their optimizer state in a restore.
struct KeptCount {
  std::int64_t kept = 0;  ///< taken as an earlier process left them
  std::int64_t lost = 0;  ///< of tables with such rows, read from the checkpoint all the same
};

class RankState {
 public:
  struct Members {
    int rank = 0;
    int replica = 0;
    std::span<const int> coordinates;  ///< in the mesh
    bool shared = false;               ///< replicas hold equal weights and optimizer state
    RankReplica* weights = nullptr;
    Updater* updater = nullptr;
    std::vector<Executor*> executors;
    Parts* parts = nullptr;
    Counters* counters = nullptr;
    OnPolicyDataset* drawn = nullptr;  ///< the data set, where its samples are of the model; else null
  };
  explicit RankState(const Members& members) : m_(members) {}

  std::vector<StateEntry> entries() const;
  /// Scalars and tensors of the components, prefixed "rank<r>/".
  void visit(StateVisitor& visitor) const;
  /// The counters' `lines`, prefixed likewise. They have changed only where a slot has ended.
  void visit_lines(StateVisitor& visitor) const;
  /// The part of visit() that a slot may change before its update: all but the two that follow.
  void visit_step(StateVisitor& visitor) const;
  void visit_recovery(StateVisitor& visitor) const;
  /// Samples that the model made: no slot changes them.
  void visit_drawn(StateVisitor& visitor) const;
  const Members& members() const { return m_; }
  /// Prefix of the names of the weights that the strategy of this run evaluates. "" when they are in none of
  /// the sets that checkpoints hold.
  std::string evaluated_prefix() const;

  /// xxh3-128 digests of everything, for StateHasher::merge on rank 0.
  std::string digests() const;
  /// Throws Error(kConfig) that names the first tensor in which the generation differs from this run.
  /// `alone`: the rank holds its replica's whole model, so a tensor that only the generation has is a
  /// difference too.
  void check(const CheckpointReader& reader, bool alone, Continued continued = Continued::kResume) const;
  /// Reads all of it back from one generation, at any world size whose shards the generation covers. `shape`:
  /// of this run. A fork keeps the recovery policy as it is: that one's saves are in another folder. Rows
  /// that outlived an earlier process are not read where they go back to this checkpoint, which is of attempt
  /// `attempt`.
  KeptCount restore(CheckpointReader& reader, const RunShape& shape, std::uint64_t attempt,
                    Continued continued = Continued::kResume) const;
  /// One of each table whose rows outlive the process.
  std::vector<KeptRows*> kept_rows() const;
  /// Rows that outlived an earlier process and serve no checkpoint become those before the first slot.
  void drop_kept_rows(std::uint64_t seed_init) const;
  /// Optimizer state as before the first slot.
  void reset_optimizer() const;
  /// Brings rows of this rank that are lost, and their optimizer state, back to what `reader` has; without
  /// one, to what they were before the first slot. Nothing else changes.
  using IsLost = std::function<bool(int parameter, std::int64_t row)>;
  RestoredRows restore_rows(CheckpointReader* reader, const IsLost& is_lost, std::uint64_t seed_init) const;

 private:
  /// Throws Error(kConfig) where the samples of another number of replicas would be needed.
  void restore_drawn(const CheckpointReader& reader, StateVisitor& visitor) const;
  void add_set(std::vector<StateEntry>& out, const ParameterSet& set, const std::string& prefix,
               bool written) const;
  /// False where all rows of the table are to be read.
  bool take_kept(const StateEntry& entry, CheckpointReader& reader, std::uint64_t attempt,
                 KeptCount& count) const;
  void add_table(std::vector<StateEntry>& out, RowTable* table, int parameter, const std::string& name,
                 std::int64_t width) const;
  Members m_;
};

/// Buffers of one save, alive until the copy is made. Reused, so that a save allocates little.
class SaveBuffers {
 public:
  /// Encodes rows [n, width] of f32 in host memory: appends to `out`.
  using Encode = std::function<void(TensorView rows, std::vector<std::byte>& out)>;
  /// Fills items and meta from the state as it is now, and from the run's shape: dense tensors whole, tables
  /// as the plan says, rows of weights by `encode` where the plan has an encoding. The items point into the
  /// plan.
  void collect(const RankState& state, const RunShape& shape, const SavePlan& plan, const Encode& encode);
  std::span<const SaveItem> items() const { return items_; }
  std::span<const MetaBlock> meta() const { return meta_; }
  /// Gives back the memory of tables once they are copied: it may be most of the machine's.
  void release_tables();

 private:
  std::vector<SaveItem> items_;
  std::vector<MetaBlock> meta_;
  std::vector<std::vector<std::byte>> staged_;  ///< rows of tables
};

}  // namespace tenon::train
