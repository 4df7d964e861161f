// Quantizers of this device (family QuantOps, quant.cpp): makers, and checks with their messages, which
// sources that start kernels cannot make themselves.
#pragma once

#include "queue.hpp"

#include <tenon/ops/quant.hpp>
#include <tenon/sdk/ops/mor.hpp>

#include <cstdint>
#include <memory>

namespace tenon::cuda {

std::unique_ptr<QuantizeKernel> make_quantizer(Queue& queue, const QuantizeSpec& spec);

/// Throw Error(kConfig) with the reason for a combination that is not defined, in the words of the other
/// devices.
void check_quantize_spec(const QuantizeSpec& spec);
void check_mor_spec(const MorSpec& spec);

/// Throws Error(kRun) if `scratch` has fewer than `expected` bytes.
void check_scratch(const TensorView& scratch, std::size_t expected, const char* where);

/// Pointer to the scale of line 0, or null without scales. `extent`: lines of the product.
const float* checked_scales(const ProductScales& side, std::int64_t extent, const char* name);

[[noreturn]] void refuse_quantizer(const char* reason);

/// Blocks run down the columns: so do groups of draws, rotation and lines.
inline bool runs_down(const QuantizeSpec& spec) {
  return spec.scale != BlockScale::kTensor && spec.block_rows > spec.block_columns;
}

inline std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

}  // namespace tenon::cuda
