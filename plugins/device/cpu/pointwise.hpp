// The maps of `Epilogue` on arrays of one thread: used by activations and by the tail of products.
#pragma once

#include "common.hpp"

#include <tenon/ops/dense.hpp>

namespace tenon::cpu {

/// y = map(x), y may be x.
template <class S>
void map_forward(const Kernels& kernels, Epilogue map, const S* x, S* y, std::int64_t n);
/// dx = map'(x) dy, dx may be dy. S is float or double, or bf16.
template <class S>
void map_backward(const Kernels& kernels, Epilogue map, const S* x, const S* dy, S* dx, std::int64_t n);

}  // namespace tenon::cpu
