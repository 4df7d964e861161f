// Conversion of flat arrays between storage types, shared by `convert` of the elementwise family and by
// products whose operands must be widened. Every conversion rounds once, to nearest even.
#pragma once

#include "common.hpp"

namespace tenon::cpu {

/// y[0..n) = x[0..n) for f32, f64, bf16 and f16 in any pairing, split among threads. x and y must not overlap
/// unless equal in place and type.
void convert_array(const Kernels& kernels, DType from, const void* x, DType to, void* y, std::int64_t n);

/// The same, without f16, for `rows` rows of `columns` elements; rows begin `x_stride` and `y_stride`
/// elements after one another.
void convert_rows(const Kernels& kernels, DType from, const void* x, std::int64_t x_stride, DType to, void* y,
                  std::int64_t y_stride, std::int64_t rows, std::int64_t columns);

/// The same on the calling thread only, typed.
template <class From, class To>
void convert_block(const Kernels& kernels, const From* x, To* y, std::int64_t n);

/// f64 to bf16 without the double rounding of a detour over f32.
kernels::Bf16 round_to_bf16(double value);

}  // namespace tenon::cpu
