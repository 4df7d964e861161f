// Values as layers handle them: seen as matrices and flat arrays, inside the bytes of a workspace, and the
// axes of the mesh over which they may still be sharded.
#pragma once

#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/options.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::layer_common {

/// Throws Error(kConfig): "layer 'h.0.mlp.c_fc': <what>".
[[noreturn]] inline void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

/// A value seen as a matrix: the last extent is the columns, all others together are the rows.
inline std::int64_t columns_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}
inline std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}
inline TensorView matrix(TensorView view) {
  return view.reshaped({rows_of(view.shape), columns_of(view.shape)});
}
inline TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}

/// A tensor inside the bytes of a workspace.
inline TensorView window(TensorView bytes, std::size_t offset, DType dtype, const Shape& shape) {
  return {static_cast<std::byte*>(bytes.data) + offset, shape, dtype, bytes.space};
}
/// Bytes of a tensor inside a workspace, rounded up so that the next tensor is aligned.
inline std::size_t window_bytes(DType dtype, std::int64_t elements) {
  constexpr std::size_t kAlignment = 64;
  return (static_cast<std::size_t>(dtype_bytes(dtype, elements)) + kAlignment - 1) / kAlignment * kAlignment;
}

/// dtype of statistics, states, logits and losses: f32, or f64 for f64 activations.
inline DType statistics(DType activations) {
  return activations == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// Option `axes`: axes of the mesh, each once, over which input 0 in layout `x` is not sharded.
inline std::vector<int> free_axes(InferContext& context, const Options& options, const Layout& x) {
  const Mesh& mesh = context.mesh();
  const std::vector<int> taken = sharded_axes(x);
  std::vector<int> axes;
  for (const std::int64_t wanted : options.integers("axes")) {
    if (wanted >= mesh.axes()) {
      refuse(context, fmt::format("option 'axes' names axis {} of the mesh, but parallel.grid has {} "
                                  "axes",
                                  wanted, mesh.axes()));
    }
    const auto axis = static_cast<int>(wanted);
    const auto has = [axis](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), axis) != list.end();
    };
    if (has(axes)) refuse(context, fmt::format("option 'axes' names axis {} twice", axis));
    if (has(taken)) {
      refuse(context, fmt::format("axis {} of option 'axes' shards input 0 already ({}); name another axis, "
                                  "or put a repartition before the layer that leaves axis {} to copies",
                                  axis, layout_text(x), axis));
    }
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace tenon::layer_common
