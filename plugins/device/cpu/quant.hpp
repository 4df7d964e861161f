// Quantizers of this device (family QuantOps, quant.cpp): the available combinations, the split of a matrix
// for parallel loops, and the slow measurement. Results do not depend on the number of threads: blocks are
// rounded alone, draws are functions of the position, and sums are added in a fixed order.
#pragma once

#include "common.hpp"
#include "device_common/quantized.hpp"

#include <memory>

namespace tenon::cpu {

std::unique_ptr<QuantizeKernel> make_quantizer(const Kernels& kernels, const QuantizeSpec& spec);

using device_arguments::blocks_of;
using device_arguments::runs_down;

/// Bands of a matrix: every band begins where a block and a group of draws begin.
struct Bands {
  std::int64_t height = 1, width = 1;  ///< rows and columns of a band
  std::int64_t across = 0, count = 0;
  explicit Bands(const QuantizeSpec& spec);
};

/// The codes of a matrix and the matrix that they represent, for measurement.
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
