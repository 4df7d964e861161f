// Refusals and tensors in workspaces, for the layers of this plugin.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/gradient_sum.hpp>

#include <fmt/format.h>

#include <string>

namespace tenon::distdl {

/// Throws Error(kConfig): "layer 'conv1': <what>".
[[noreturn]] inline void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

/// The operators on boxes of a device with memory of its own; null in host memory, where lines are copied.
inline StridedCopyOps* boxes_of(Device& device) {
  return device.space() == MemorySpace::kHost ? nullptr : &device.family<StridedCopyOps>();
}

/// The only input, which is no sum over ranks.
inline ValueSpec expect_summed(const InferContext& context) {
  ValueSpec x = context.input(0);
  if (!x.layout.partial.empty())
    refuse(context,
           "x is a sum over ranks (" + layout_text(x.layout) + "); put a repartition before the layer");
  return x;
}

/// A tensor at the start of a workspace.
inline TensorView tensor(TensorView bytes, DType dtype, const Shape& shape) {
  return {bytes.data, shape, dtype, bytes.space};
}

}  // namespace tenon::distdl
