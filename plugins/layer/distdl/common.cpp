// Refusals, and tensors in workspaces.
#include "common.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::distdl {

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

BoxOps* boxes_of(Device& device) {
  return device.space() == MemorySpace::kHost ? nullptr : &device.family<BoxOps>();
}

ValueSpec expect_one_activation(const InferContext& context) {
  if (context.inputs() != 1) refuse(context, fmt::format("expected one input, found {}", context.inputs()));
  ValueSpec x = context.input(0);
  if (x.dtype != context.activations()) {
    refuse(context, fmt::format("expected x in the activations' number format {}, found {}",
                                dtype_name(context.activations()), dtype_name(x.dtype)));
  }
  if (!x.layout.partial.empty())
    refuse(context,
           "x is a sum over ranks (" + layout_text(x.layout) + "); put a repartition before the layer");
  return x;
}

TensorView tensor(TensorView bytes, DType dtype, const Shape& shape) {
  return {bytes.data, shape, dtype, bytes.space};
}

}  // namespace tenon::distdl
