// Quantizers of this device (family QuantOps, quant.cpp): makers, and checks of specs, whose messages cannot
// be formatted in sources that start kernels.
#pragma once

#include "device_common/quantized.hpp"
#include "queue.hpp"

#include <tenon/sdk/ops/mor.hpp>

#include <cstdint>
#include <memory>

namespace tenon::cuda {

std::unique_ptr<QuantizeKernel> make_quantizer(Queue& queue, const QuantizeSpec& spec);

/// Throw Error(kConfig) with the reason for a combination that is not defined, in the words of the other
/// devices.
void check_quantize_spec(const QuantizeSpec& spec);
void check_mor_spec(const MorSpec& spec);

using device_arguments::blocks_of;
using device_arguments::check_scratch;
using device_arguments::checked_scales;
using device_arguments::runs_down;

}  // namespace tenon::cuda
