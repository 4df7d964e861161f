// Checks and small steps of this plugin's layers.
#include "common.hpp"

#include <fmt/format.h>

#include <vector>

namespace tenon::fno {

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

void expect_inputs(const InferContext& context, int count) {
  if (context.inputs() != count)
    refuse(context,
           fmt::format("expected {} input{}, found {}", count, count == 1 ? "" : "s", context.inputs()));
}

Shape expect_field(const InferContext& context, int index) {
  const ValueSpec spec = context.input(index);
  if (spec.dtype != context.activations())
    refuse(context, fmt::format("expected input {} in the activations' number format {}, found {}", index,
                                dtype_name(context.activations()), dtype_name(spec.dtype)));
  const int dims = spec.shape.rank() - 2;
  if (dims < 1 || dims > kMaxDims)
    refuse(context, fmt::format("expected input {} of shape [batch, channels, points...] with 1 to {} "
                                "dimensions of points, found {}",
                                index, kMaxDims, spec.shape.text()));
  return spec.shape;
}

std::int64_t product(std::span<const std::int64_t> extents) {
  std::int64_t result = 1;
  for (const std::int64_t extent : extents) result *= extent;
  return result;
}

Shape field(std::int64_t batch, std::int64_t channels, std::span<const std::int64_t> points) {
  std::vector<std::int64_t> extents{batch, channels};
  extents.insert(extents.end(), points.begin(), points.end());
  return Shape(extents);
}

DType statistics(DType activations) {
  return activations == DType::kF64 ? DType::kF64 : DType::kF32;
}

DType complex_type(DType activations) {
  return activations == DType::kF64 ? DType::kC128 : DType::kC64;
}

TensorView in_workspace(TensorView bytes, DType dtype, const Shape& shape) {
  return {bytes.data, shape, dtype, bytes.space};
}

std::size_t tensor_bytes(DType dtype, std::int64_t elements) {
  return static_cast<std::size_t>(dtype_bytes(dtype, elements));
}

TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}

}  // namespace tenon::fno
