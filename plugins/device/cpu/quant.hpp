// Quantizers of this device (family QuantOps, quant.cpp): which combinations there are, how a matrix is cut
// for parallel loops, and the slow measurement beside it. Results do not depend on the number of threads:
// blocks are rounded alone, draws are functions of the position, and sums are taken in a fixed order.
#pragma once

#include "common.hpp"
#include "device_common/quantized.hpp"

#include <memory>

namespace tenon::cpu {

std::unique_ptr<QuantizeKernel> make_quantizer(const Kernels& kernels, const QuantizeSpec& spec);

using device_arguments::blocks_of;
using device_arguments::runs_down;

/// Bands of a matrix: every one begins where a block and a group of draws does.
struct Bands {
  std::int64_t height = 1, width = 1;  ///< rows and columns of a band
  std::int64_t across = 0, count = 0;
  explicit Bands(const QuantizeSpec& spec);
};

/// What codes of a matrix mean against what they came from.
template <class S>
struct Measured {
  const S* x = nullptr;
  const kernels::Bf16* values = nullptr;        ///< as QuantizeOutput
  const std::uint8_t* scales = nullptr;         ///< bits, or floats for kFloat
  kernels::TensorScale tensor;                  ///< of the matrix
  const kernels::TensorScale* lines = nullptr;  ///< or of its lines
};

/// QuantizeStats in f64: per strip of rows, strips added in order.
template <class S>
QuantizeStats measure(const QuantizeSpec& spec, const Measured<S>& measured);

}  // namespace tenon::cpu
