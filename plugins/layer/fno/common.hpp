// What layers of this plugin share: values [batch, channels, points...], checks at infer, and tensors in
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

/// Space and time: what may follow batch and channels.
inline constexpr int kMaxDims = 4;

/// Throws Error(kConfig): "layer 'layers.0.spectral': <what>".
[[noreturn]] void refuse(const InferContext& context, const std::string& what);
void expect_inputs(const InferContext& context, int count);
/// Input `index` is an activation [batch, channels, points...] of 1 to 4 dimensions, of which any but the
/// channels may be cut over the model grid; returns its layout. This rank's part is the shape of its spec.
Layout expect_field(const InferContext& context, int index);

/// The points of a value [batch, channels, points...].
inline std::span<const std::int64_t> points_of(const Shape& shape) {
  return shape.extents().subspan(2);
}
std::int64_t product(std::span<const std::int64_t> extents);
/// `layout` with so many channels.
Layout with_channels(Layout layout, std::int64_t channels);

/// dtype of statistics and of complex numbers' parts: f32, or f64 beside f64 activations.
DType statistics(DType activations);
/// c64, or c128 beside f64 activations.
DType complex_type(DType activations);

/// A tensor at the start of a workspace, and the bytes that it needs there.
TensorView in_workspace(TensorView bytes, DType dtype, const Shape& shape);
std::size_t tensor_bytes(DType dtype, std::int64_t elements);
TensorView flat(TensorView view);

}  // namespace tenon::fno
