// Parameters in memory: backward-finish order, arenas, and the shard of a rank of the mesh.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/parameter.hpp>
#include <tenon/tensor.hpp>

#include <span>
#include <vector>

namespace tenon::graph {

/// A declaration together with what the graph knows about it.
struct Declared {
  ParameterSpec spec;
  int users = 0;         ///< layers that add to its gradient
  int finish_order = 0;  ///< position in backward-finish order; never finished ones come last
};

/// Kind of the parameters of an arena; only trained ones have gradients.
enum class ArenaUse : std::uint8_t { kTrained, kFrozen, kBuffer };
ArenaUse arena_use(const ParameterSpec& spec);

/// Assigns arenas and offsets. Arenas are keyed by (use, dtype), each parameter starts on 64
/// bytes, and within an arena parameters follow the order of backward-finish.
std::vector<ParameterInfo> lay_out(const std::vector<Declared>& declared, const MeshPlace& place);

/// The parameters of a set that has `dimensions` of them alone (StateSlot): the same indices and arenas, with
/// places of its own.
std::vector<ParameterInfo> reduced(std::vector<ParameterInfo> parameters, const StateSlot& slot);

/// For each of a graph's parameters the index of that name in `set`. Throws Error(kConfig) that lists every
/// one which the set lacks, holds no memory for, or has in another shape, shard, dtype or role.
std::vector<int> bound_indices(const std::vector<ParameterInfo>& parameters, const ParameterSet& set);

/// Elements of an arena, padding included.
std::int64_t arena_elements(const std::vector<ParameterInfo>& parameters, int arena);
DType arena_dtype(const std::vector<ParameterInfo>& parameters, int arena);
ArenaUse arena_use(const std::vector<ParameterInfo>& parameters, int arena);
int arena_count(const std::vector<ParameterInfo>& parameters);

/// The same memory as a flat tensor of f32 or f64; other types as they are. Updates, norms and scales treat
/// complex numbers as pairs of reals.
inline TensorView as_reals(TensorView view) {
  if (!dtype_is_complex(view.dtype)) return view;
  view.dtype = view.dtype == DType::kC64 ? DType::kF32 : DType::kF64;
  view.shape = Shape{view.elements() * 2};
  return view;
}

}  // namespace tenon::graph
