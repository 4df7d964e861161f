// Refusals and tensors in workspaces, for the layers of this plugin.
#pragma once

#include <tenon/device.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/gradient_sum.hpp>

#include <string>

namespace tenon::distdl {

inline constexpr std::uint64_t kOnHost = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC;

/// Throws Error(kConfig): "layer 'conv1': <what>".
[[noreturn]] void refuse(const InferContext& context, const std::string& what);
/// The operators on boxes of a device with memory of its own; null in host memory, where lines are copied.
BoxOps* boxes_of(Device& device);
/// The only input, an activation.
ValueSpec expect_one_activation(const InferContext& context);

/// A tensor at the start of a workspace.
TensorView tensor(TensorView bytes, DType dtype, const Shape& shape);

}  // namespace tenon::distdl
