// Short transforms in float32 as products with the matrix of their kept modes: for a few modes of a few
// points that is less work than a whole transform. Used by the family Fft.
#pragma once

#include "common.hpp"

#include <tenon/ops/spectral.hpp>

#include <memory>

namespace tenon::cpu {

/// Whether make_direct_fft computes this one: by its points, kept modes and number format alone.
bool is_direct(const FftSpec& spec);
std::unique_ptr<FftKernel> make_direct_fft(const Kernels& kernels, const FftSpec& spec);

}  // namespace tenon::cpu
