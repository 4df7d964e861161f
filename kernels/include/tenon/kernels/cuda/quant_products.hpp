// Kernel bodies used with the quantizers: partial products under scales, and rounding to binary16.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/half.hpp>

namespace tenon::kernels::cuda {

/// Scale of line i: scales[i / lines * step]; 1 without scales. Lines are visited in order.
class LineScaling {
 public:
  LineScaling() = default;
  LineScaling(const float* scales, std::int64_t lines, std::int64_t step)
      : scales_(scales), lines_(lines), step_(step) {}

  /// Scales of line i and later ones.
  class From {
   public:
    TENON_BOTH From(const LineScaling& of, std::int64_t i) : of_(of) {
      if (of.scales_ == nullptr) return;
      place_ = i / of.lines_ * of.step_;
      left_ = of.lines_ - i % of.lines_;
    }
    TENON_BOTH float here() const { return of_.scales_ == nullptr ? 1.0f : of_.scales_[place_]; }
    TENON_BOTH void advance() {
      if (--left_ > 0) return;
      left_ = of_.lines_;
      place_ += of_.step_;
    }

   private:
    const LineScaling& of_;
    std::int64_t place_ = 0, left_ = 1;  ///< index of the scale; its remaining lines
  };

 private:
  const float* scales_ = nullptr;
  std::int64_t lines_ = 1, step_ = 1;
};

/// c[i, j] = (or +=) (scale of row i * scale of column j) * p[i, j]. A thread processes eight columns.
struct ScaleProduct {
  const float* p;
  float* c;
  std::int64_t rows, columns;
  LineScaling of_rows, of_columns;
  bool accumulate;
  static constexpr int kRun = 8;

  TENON_BOTH std::int64_t runs() const { return (columns + kRun - 1) / kRun; }

  TENON_BOTH void operator()(const Block& block) const {
    const ScaleProduct& a = *this;
    for_each_element(block, rows * runs(), [&](std::int64_t at) {
      const Divided place = divided(at, a.runs());
      const std::int64_t i = place.quotient, j = place.remainder * kRun;
      const int n = left_of(a.columns, j, kRun);
      const float row = LineScaling::From(a.of_rows, i).here();
      LineScaling::From column(a.of_columns, j);
      const auto from = load_run<kRun>(a.p + i * a.columns + j, n);
      Run<float, kRun> to = {};
      if (a.accumulate) to = load_run<kRun>(a.c + i * a.columns + j, n);
      TENON_UNROLL
      for (int e = 0; e < kRun; ++e) {
        if (e >= n) continue;
        const float scaled = row * column.here() * from.at[e];
        to.at[e] = a.accumulate ? to.at[e] + scaled : scaled;
        column.advance();
      }
      store_run<kRun>(a.c + i * a.columns + j, to, n);
    });
  }
};

/// Numbers of elements that became infinite and that became zero.
struct HalfCounts {
  std::int64_t overflow, underflow;
};
struct AddHalfCounts {
  TENON_BOTH HalfCounts operator()(const HalfCounts& a, const HalfCounts& b) const {
    return {a.overflow + b.overflow, a.underflow + b.underflow};
  }
};

/// y = x rounded to binary16; overflows and underflows are added to *counts. y may be x.
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
