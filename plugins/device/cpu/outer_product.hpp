// Products of one term: every row of C is B's row times one element of A. They only write; a library's
// product takes several times as long (a bias per channel is such a product).
#pragma once

#include "gemm.hpp"

namespace tenon::cpu {

/// f32 throughout, rows long enough, without bias, alpha, map or accumulation.
bool is_outer_product(const GemmSpec& spec);

std::unique_ptr<Gemm> make_outer_product(const Kernels& kernels, const GemmSpec& spec);

}  // namespace tenon::cpu
