// Applying the optimizer: slices of arenas that share settings, state owned by the core, norm and clipping;
// and the largest rate of its schedule.
#pragma once

#include "loop/parts.hpp"

#include <tenon/executor.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/parameter.hpp>
#include <tenon/tier.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

/// The mesh as far as norms need it.
struct MeshSpec {
  std::span<const int> coordinates;
  Communicator* all = nullptr;  ///< all ranks of the replica's mesh; null when it has one rank
};

class Updater {
 public:
  /// Optimizer rows lie where `places` says; null: in host memory.
  Updater(const Part<Optimizer>& optimizer, ParameterSet& live, Device& device, RowPlaces* places);
  /// Lets a rule that asks for it prepare for a run of `steps` planned slots. Once, before the first apply().
  void bind(const MeshSpec& mesh, std::int64_t steps);

  /// Global norm of the gradients: shards summed over their axes, replicated parameters counted once; rows of
  /// tables that are sharded over the replicas summed over `replicas`, unless that is null. NaN or infinite
  /// exactly if some gradient is.
  double gradient_norm(const ParameterSet& gradients, std::span<const RowGradient> rows, const MeshSpec& mesh,
                       Communicator* replicas);
  /// One update of all trainable parameters; context.count is that of this update.
  void apply(const UpdateContext& context, const ParameterSet& gradients, std::span<const RowGradient> rows);
  /// Updates rows of one table alone.
  void apply_rows(const UpdateContext& context, const RowGradient& rows);

  /// State tensors in the order of slots(): "optimizer.<slot>".
  const std::vector<std::unique_ptr<ParameterSet>>& state() const { return state_; }
  /// Bytes of this rank's row tables and of the optimizer's tables beside them.
  std::int64_t table_bytes() const;
  struct TableState {
    int parameter;
    std::string name;  ///< "optimizer.<slot>"
    std::unique_ptr<RowTable> table;
  };
  const std::vector<TableState>& table_state() const { return tables_; }

 private:
  double squares_of(const TensorView& rows);
  struct Slice {
    int arena;
    std::int64_t begin, elements;
    bool decay;
    int parameter;
    Shape shape;
    std::vector<TensorView> state;
  };
  void cut();
  void step_rows(const UpdateContext& context, const RowGradient& rows);
  TensorView view(const TensorView& arena, const Slice& slice) const;

  const Part<Optimizer>& optimizer_;  ///< every call carries the guard's names
  RowOptimizer* row_optimizer_;
  ParameterSet& live_;
  Device& device_;
  ReduceOps& reduce_;
  std::vector<std::unique_ptr<ParameterSet>> state_;
  std::vector<TableState> tables_;
  std::vector<std::vector<RowTable*>> state_of_;  ///< per parameter, in the order of row_slots()
  std::vector<std::uint8_t> first_holder_;
  std::vector<Slice> slices_;
};

/// True for exactly one of the ranks of a replica that hold the same shard of a parameter: it counts, writes
/// and hashes the shard.
inline bool is_first_holder(const ParameterSpec& spec, std::span<const int> coordinates) {
  for (std::size_t axis = 0; axis < coordinates.size(); ++axis) {
    if (!is_sharded(spec, static_cast<int>(axis)) && coordinates[axis] != 0) return false;
  }
  return true;
}

// The largest rate of a schedule over a run, asked for in bounded time: a run may be planned for 2^63 - 1
// slots and end after a few, by a budget.

/// Largest rate of slots 0 ... steps - 1. Up to 2^20 slots every one is asked. Beyond, 2^16 slots at equal
/// distances, then as many between the neighbours of the largest of them, down to single slots: exact for
/// rates that rise to one peak and then fall or stay, as those of warm-up and decay; of others at least the
/// largest that was asked for.
double peak_rate(const Schedule& schedule, std::int64_t steps, double base_lr);

}  // namespace tenon::train
