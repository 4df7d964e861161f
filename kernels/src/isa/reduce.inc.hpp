// Block sums in double, the search for non-finite values, and rows of embedding tables
// (contracts: reduce.hpp, embedding.hpp). The lane loops are plain arrays: the compiler puts them into
// vectors without reordering, so all kernel sets give the same bits.
#pragma once

#include <tenon/kernels/reduce.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

template <class S, class Fn>
TENON_INLINE void blocks_of(const S* x, std::int64_t n, double* sums, Fn fn) {
  for (std::int64_t begin = 0; begin < n; begin += kReduceBlock, ++sums) {
    const std::int64_t end = n - begin < kReduceBlock ? n : begin + kReduceBlock;
    double lanes[kLanes] = {};
    for_lanes(begin, end, [&](std::int64_t i, std::int64_t count) TENON_BODY {
      float values[kLanes];
      store(values, load_group(x + i, count));
      for (int l = 0; l < kLanes; ++l) lanes[l] += fn(static_cast<double>(values[l]));
    });
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    *sums = lanes[0];
  }
}

template <class S>
void block_sums(const S* x, std::int64_t n, double* sums) {
  blocks_of(x, n, sums, [](double v) TENON_BODY { return v; });
}
template <class S>
void block_sums_of_squares(const S* x, std::int64_t n, double* sums) {
  blocks_of(x, n, sums, [](double v) TENON_BODY { return v * v; });
}

template <class S>
std::int64_t first_non_finite(const S* x, std::int64_t n) {
  constexpr std::int64_t kStride = 64 * kLanes;
  for (std::int64_t begin = 0; begin < n; begin += kStride) {
    const std::int64_t end = n - begin < kStride ? n : begin + kStride;
    I bad = {};
    for_lanes(begin, end, [&](std::int64_t i, std::int64_t count) TENON_BODY {
      const I magnitude = bits_of(load_group(x + i, count)) & splat_int(0x7fffffff);
      bad = bad | (splat_int(0x7f7fffff) < magnitude);
    });
    std::int32_t lanes[kLanes];
    __builtin_memcpy(lanes, &bad, sizeof lanes);
    std::int32_t any = 0;
    for (int l = 0; l < kLanes; ++l) any |= lanes[l];
    if (any == 0) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      const float value = load_one(x + i);
      if (value - value != 0.0f) return i;
    }
  }
  return -1;
}

template <class S>
void gather(const S* table, const std::int32_t* indices, S* y, std::int64_t n, std::int64_t cols) {
  for (std::int64_t i = 0; i < n; ++i)
    __builtin_memcpy(y + i * cols, table + indices[i] * cols, cols * sizeof(S));
}

template <class S>
void scatter_add(const S* dy, const std::int32_t* indices, float* dtable, std::int64_t n, std::int64_t cols,
                 std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (indices[i] < row_begin || indices[i] >= row_end) continue;
    float* row = dtable + indices[i] * cols;
    const S* source = dy + i * cols;
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t count) TENON_BODY {
      store_group(row + j, load_group(row + j, count) + load_group(source + j, count), count);
    });
  }
}

}  // namespace
}  // namespace tenon::kernels
