// Shared by the layers of this plugin: values [batch, channels, points...], checks at infer, and tensors in
// workspaces.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace tenon::fno {

/// Maximum number of dimensions of space and time after batch and channels.
inline constexpr int kMaxDims = 4;

/// Throws Error(kConfig): "layer 'layers.0.spectral': <what>".
[[noreturn]] void refuse(const InferContext& context, const std::string& what);
/// Input `index` is an activation [batch, channels, points...] of 1 to 4 dimensions, any of which except the
/// channels may be sharded over the mesh; returns its layout. The shape of its spec is this rank's
/// shard.
Layout expect_field(const InferContext& context, int index);

/// The points of a value [batch, channels, points...].
inline std::span<const std::int64_t> points_of(const Shape& shape) {
  return shape.extents().subspan(2);
}
std::int64_t product(std::span<const std::int64_t> extents);
/// `layout` with so many channels.
Layout with_channels(Layout layout, std::int64_t channels);

/// dtype of statistics and of the real and imaginary parts of complex numbers: f32, or f64 for f64
/// activations.
DType statistics(DType activations);
/// c64, or c128 for f64 activations.
DType complex_type(DType activations);

/// A tensor at the start of a workspace, and the bytes that it needs there.
TensorView in_workspace(TensorView bytes, DType dtype, const Shape& shape);
std::size_t tensor_bytes(DType dtype, std::int64_t elements);
TensorView flat(TensorView view);

}  // namespace tenon::fno
