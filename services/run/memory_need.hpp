// Memory of a model in this process, computed before it is allocated, so that a table larger than the machine
// is refused with a message and the system does not kill the process.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/parameter.hpp>

#include <cstdint>
#include <span>

namespace tenon::train {

/// Bytes of weights, gradients and optimizer state of `replicas` replicas in one process.
std::int64_t model_bytes(std::span<const ParameterInfo> parameters, Optimizer& optimizer, int replicas);

/// Throws Error(kConfig) that names the largest parameters if that is more than `available` bytes.
void require_memory(std::span<const ParameterInfo> parameters, Optimizer& optimizer, int replicas,
                    std::int64_t available);

}  // namespace tenon::train
