// Small steps that the parts of the layer share: matrices, and tensors inside a workspace.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tenon::ssm {

/// Throws Error(kConfig): "layer 'h.0.mamba': <what>".
[[noreturn]] inline void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

inline TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}
/// All but the last dimension together are the rows.
inline TensorView matrix(TensorView view) {
  const std::int64_t columns = view.shape[view.shape.rank() - 1];
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < view.shape.rank(); ++i) rows *= view.shape[i];
  return view.reshaped({rows, columns});
}

/// Bytes of a tensor inside a workspace, rounded up so that the next tensor is aligned.
inline std::size_t window_bytes(DType dtype, std::int64_t elements) {
  return (static_cast<std::size_t>(dtype_bytes(dtype, elements)) + 63) / 64 * 64;
}
inline TensorView window(TensorView bytes, std::size_t offset, DType dtype, const Shape& shape) {
  return {static_cast<std::byte*>(bytes.data) + offset, shape, dtype, bytes.space};
}

/// dtype of states and of the parameters of heads: f32, or f64 for f64 activations.
inline DType statistics(DType activations) {
  return activations == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace tenon::ssm
