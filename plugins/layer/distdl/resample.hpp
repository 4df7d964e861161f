// Interpolation along one dimension of a tensor in host memory, and its adjoint. An output is one input, or
// lies between two neighbours: both are chosen and weighted by the output's global index alone, so that the
// bits of an output do not depend on which part of it a rank makes.
#pragma once

#include <tenon/index_map.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <vector>

namespace tenon::distdl {

/// What the outputs of a rank are made of.
struct Taps {
  std::int64_t inputs = 0;        ///< that the rank reads
  std::vector<std::int64_t> low;  ///< the first input of each output, among these
  std::vector<double> share;      ///< of the input behind it; 0: that is not read
  std::int64_t outputs() const { return static_cast<std::int64_t>(low.size()); }
};
/// Of the outputs `made` out of all, of which the rank reads the inputs `read` out of all.
Taps taps_of(Interpolation kind, std::int64_t all_inputs, std::int64_t all_outputs, ElementRange made,
             ElementRange read);

/// y [outer, outputs, inner] = interpolation of x [outer, inputs, inner]; f32 or f64 both.
void resample(const Taps& taps, TensorView x, TensorView y, std::int64_t inner);
/// x = adjoint of y; terms in ascending order of outputs.
void resample_adjoint(const Taps& taps, TensorView y, TensorView x, std::int64_t inner);

}  // namespace tenon::distdl
