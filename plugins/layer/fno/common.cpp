// Checks and small steps of this plugin's layers.
#include "common.hpp"

#include <fmt/format.h>

namespace tenon::fno {

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

Layout expect_field(const InferContext& context, int index) {
  const ValueSpec spec = context.input(index);
  const Layout& layout = spec.layout;
  const int dims = layout.shape.rank() - 2;
  if (dims < 1 || dims > kMaxDims)
    refuse(context, fmt::format("expected input {} of shape [batch, channels, points...] with 1 to {} "
                                "dimensions of points, found {}",
                                index, kMaxDims, layout.shape.text()));
  for (const DimSharding& sharding : layout.sharding) {
    if (sharding.dim == 1)
      refuse(context, fmt::format("the channels of input {} are sharded ({}), which this layer cannot do; "
                                  "put a repartition before it that shards other dimensions",
                                  index, layout_text(layout)));
  }
  if (!layout.partial.empty())
    refuse(context, fmt::format("input {} is a sum over ranks ({}); put a repartition before the layer",
                                index, layout_text(layout)));
  return layout;
}

std::int64_t product(std::span<const std::int64_t> extents) {
  std::int64_t result = 1;
  for (const std::int64_t extent : extents) result *= extent;
  return result;
}

Layout with_channels(Layout layout, std::int64_t channels) {
  layout.shape[1] = channels;
  return layout;
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
  return dtype_bytes(dtype, elements);
}

TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}

}  // namespace tenon::fno
