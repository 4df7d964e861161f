// Kernel bodies beside the quantizers: partial products under scales, and rounding to binary16.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/meeting.hpp>
#include <tenon/kernels/half.hpp>

namespace tenon::kernels::cuda {

/// Scale of line i: scales[i / lines * step]; 1 without scales.
struct LineScaling {
  const float* scales = nullptr;
  std::int64_t lines = 1, step = 1;
  TENON_BOTH float operator()(std::int64_t i) const {
    return scales == nullptr ? 1.0f : scales[i / lines * step];
  }
};

/// c[i, j] = (or +=) (scale of row i * scale of column j) * p[i, j].
struct ScaleProduct {
  const float* p;
  float* c;
  std::int64_t rows, columns;
  LineScaling of_rows, of_columns;
  bool accumulate;

  TENON_BOTH void operator()(const Block& block) const {
    const ScaleProduct& a = *this;
    for_each_element(block, rows * columns, [&](std::int64_t at) {
      const std::int64_t i = at / a.columns, j = at - i * a.columns;
      const float scaled = a.of_rows(i) * a.of_columns(j) * a.p[at];
      a.c[at] = a.accumulate ? a.c[at] + scaled : scaled;
    });
  }
};

/// How many numbers became infinite and how many zero.
struct HalfCounts {
  std::int64_t overflow, underflow;
};
struct AddHalfCounts {
  TENON_BOTH HalfCounts operator()(const HalfCounts& a, const HalfCounts& b) const {
    return {a.overflow + b.overflow, a.underflow + b.underflow};
  }
};

/// y = x rounded to binary16; what it took away is added to *counts. y may be x.
struct RoundToHalf {
  const float* x;
  float* y;
  std::int64_t n;
  HalfCounts* counts;

  TENON_BOTH void operator()(const Block& block) const {
    const RoundToHalf& a = *this;
    auto* const found = block.shared<HalfCounts>();
    block.each([&](int thread) {
      HalfCounts own = {0, 0};
      const std::int64_t stride = block.blocks() * block.threads();
      for (std::int64_t i = block.index() * block.threads() + thread; i < a.n; i += stride) {
        const auto bits = std::bit_cast<std::uint32_t>(a.x[i]);
        const std::uint32_t rounded = half_bits(bits);
        own.overflow += half_overflows(bits, rounded);
        own.underflow += half_underflows(bits, rounded);
        a.y[i] = std::bit_cast<float>(rounded);
      }
      found[thread] = own;
    });
    reduce_block(block, found, AddHalfCounts{});
    block.each([&](int thread) {
      if (thread != 0) return;
      add_to(&a.counts->overflow, found[0].overflow);
      add_to(&a.counts->underflow, found[0].underflow);
    });
  }
};

}  // namespace tenon::kernels::cuda
