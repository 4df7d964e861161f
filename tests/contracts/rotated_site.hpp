// The site of rotated_codes_test.cpp and its number format: 16 elements of a column, Hadamard-rotated, as
// signed 4-bit codes with one scale, and the weight gradient computed block by block.
#pragma once

#include <tenon/device.hpp>
#include <tenon/site.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

namespace rehearsal {

inline constexpr std::int64_t kBlock = 16;
using Block = float[kBlock];

/// The 16-point Hadamard transform divided by 4: its own inverse.
inline void hadamard(Block& x) {
  for (int half = 1; half < kBlock; half *= 2) {
    for (int i = 0; i < kBlock; ++i) {
      if ((i & half) != 0) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b, x[i + half] = a - b;
    }
  }
  for (float& value : x) value /= 4;
}

/// Rows [16 b, 16 b + 16) of column k of x[m, columns] become 16 signed 4-bit codes and one scale.
inline void encode(const float* x, std::int64_t columns, std::uint8_t* codes, float& scale) {
  Block v;
  for (int i = 0; i < kBlock; ++i) v[i] = x[i * columns];
  hadamard(v);
  scale = 0;
  for (const float value : v) scale = std::max(scale, std::abs(value) / 7);
  for (int i = 0; i < kBlock; ++i) {
    const int code = scale == 0 ? 8 : static_cast<int>(std::lround(v[i] / scale)) + 8;
    codes[i / 2] = static_cast<std::uint8_t>(i % 2 == 0 ? code : codes[i / 2] | code << 4);
  }
}
inline void decode(const std::uint8_t* codes, float scale, Block& v) {
  for (int i = 0; i < kBlock; ++i) v[i] = scale * static_cast<float>((codes[i / 2] >> (i % 2 * 4) & 15) - 8);
  hadamard(v);
}
/// dw[n, k] += dy[m, n]^T x[m, k] in the order of blocks; `block` returns 16 rows of a column of x.
template <typename GetBlock>
inline void product(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, GetBlock block,
                    float* dw) {
  for (std::int64_t column = 0; column < k; ++column) {
    for (std::int64_t b = 0; b < m / kBlock; ++b) {
      Block v;
      block(column, b, v);
      for (std::int64_t o = 0; o < n; ++o) {
        for (int i = 0; i < kBlock; ++i) dw[o * k + column] += dy[(b * kBlock + i) * n + o] * v[i];
      }
    }
  }
}

class RotatedSite final : public tenon::LinearSite {
 public:
  RotatedSite(const tenon::SiteInfo& info, tenon::SiteHost& host)
      : m_(info.m), n_(info.n), k_(info.k), counter_(host.operands()) {
    tenon::Blas& blas = host.device().family<tenon::Blas>();
    fprop_ = blas.gemm(
        {.m = m_, .n = n_, .k = k_, .transpose_b = true, .bias = info.bias, .epilogue = info.epilogue});
    dgrad_ = blas.gemm({.m = m_, .n = k_, .k = n_});
  }
  tenon::SiteMemory memory() const override {
    return {.kept = static_cast<std::size_t>(m_ * k_ / 2 + m_ / kBlock * k_ * 4),
            .scratch = std::max(fprop_->scratch_bytes(), dgrad_->scratch_bytes())};
  }
  bool reads_input() const override { return false; }
  void fprop(const tenon::SiteCall& call, tenon::TensorView x, tenon::TensorView w, tenon::TensorView bias,
             tenon::TensorView y) override {
    fprop_->run(x, w, y, bias, 1, call.scratch);
    if (!call.training) return;
    for (std::int64_t at = 0; at < m_ / kBlock * k_; ++at)
      encode(x.as<float>() + at % k_ + at / k_ * kBlock * k_, k_, codes(call, at), scale(call, at));
    counter_.count("int4", 1);
  }
  void dgrad(const tenon::SiteCall& call, tenon::TensorView dy, tenon::TensorView w, tenon::TensorView dx,
             bool accumulate) override {
    ASSERT_FALSE(accumulate);
    dgrad_->run(dy, w, dx, {}, 1, call.scratch);
  }
  void wgrad(const tenon::SiteCall& call, tenon::TensorView x, tenon::TensorView dy, tenon::TensorView dw,
             bool accumulate) override {
    EXPECT_TRUE(x.empty()) << "x is not kept for a site that does not read it";
    if (!accumulate) std::fill_n(dw.as<float>(), n_ * k_, 0.0F);
    const auto kept = [&](std::int64_t column, std::int64_t b, Block& v) {
      decode(codes(call, b * k_ + column), scale(call, b * k_ + column), v);
    };
    product(m_, n_, k_, dy.as<float>(), kept, dw.as<float>());
  }

 private:
  std::uint8_t* codes(const tenon::SiteCall& call, std::int64_t at) const {
    return call.kept.as<std::uint8_t>() + m_ / kBlock * k_ * 4 + at * kBlock / 2;
  }
  float& scale(const tenon::SiteCall& call, std::int64_t at) const { return call.kept.as<float>()[at]; }
  std::int64_t m_, n_, k_;
  tenon::OperandCounter& counter_;
  std::unique_ptr<tenon::Gemm> fprop_, dgrad_;
};

}  // namespace rehearsal
