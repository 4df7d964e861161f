// Rehearses a site that keeps, for wgrad, 4-bit codes of the transposed and Hadamard-rotated input instead of
// the input. The bytes it declares replace the input's in the memory plan, and the weight gradient is exactly
// the product with the decoded codes.
#include "support.hpp"

#include <tenon/device.hpp>
#include <tenon/site.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

namespace rehearsal::rotated_codes_test {
namespace {

using namespace tenon;

// The site and its number format: 16 elements of a column, Hadamard-rotated, as signed 4-bit codes with one
// scale, and the weight gradient computed block by block.

constexpr std::int64_t kBlock = 16;
using Block = float[kBlock];

/// The 16-point Hadamard transform divided by 4: its own inverse.
void hadamard(Block& x) {
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
void encode(const float* x, std::int64_t columns, std::uint8_t* codes, float& scale) {
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
void decode(const std::uint8_t* codes, float scale, Block& v) {
  for (int i = 0; i < kBlock; ++i) v[i] = scale * static_cast<float>((codes[i / 2] >> (i % 2 * 4) & 15) - 8);
  hadamard(v);
}
/// dw[n, k] += dy[m, n]^T x[m, k] in the order of blocks; `block` returns 16 rows of a column of x.
template <typename GetBlock>
void product(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, GetBlock block, float* dw) {
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

class Rotated final : public PlainPrecision {
 public:
  static constexpr ComponentInfo kInfo{.id = "rotated4", .summary = "inputs kept as rotated 4-bit codes"};
  explicit Rotated(const Options&) {}
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override {
    if (site.m % kBlock != 0) return nullptr;
    return std::make_unique<RotatedSite>(site, host);
  }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.rotated", .version = "1.0.0", .summary = "codes"},
                    Rotated)

namespace fixture = tenon::testing;
using fixture::LayerHarness;

/// x [256, 8] -> linear a [256, 64] -> linear b [256, 8], pulled back.
LayerHarness make_chain(fixture::Bench& bench, Precision& precision, bool keep_values) {
  const auto linear = [](const char* name, const char* input, std::int64_t features) {
    return NodeSpec{name, "linear", {input}, {{"features", features}}};
  };
  return {{.layers = &*bench.layers,
           .device = &*bench.device,
           .host = &bench.host,
           .precision = &precision,
           .keep_values = keep_values},
          {linear("a", "x", 64), linear("b", "a", 8)},
          {"b"},
          {{"x", {256, 8}, DType::kF32, fixture::normals(256 * 8, "x")}}};
}

TEST(RotatedCodes, ReplaceTheInputInMemoryAndInTheWeightGradient) {
  fixture::Bench bench("cpu", "auto", 1);
  bench.registry.add_builtin(plugin);
  const auto rotated = bench.make_component<Precision>("rotated4", "");
  PlainPrecision plain;
  LayerHarness coded = make_chain(bench, *rotated, true), exact = make_chain(bench, plain, true);
  for (LayerHarness* harness : {&coded, &exact}) harness->forward(), harness->backward(1.0, true);

  const TensorView x = coded.executor().value("a"), dy = coded.executor().inputs()[1];
  std::vector<float> expected(8 * 64, 0.0F);
  const auto recoded = [&](std::int64_t column, std::int64_t b, Block& v) {
    std::uint8_t codes[kBlock / 2];
    float scale = 0;
    encode(x.as<float>() + b * kBlock * 64 + column, 64, codes, scale);
    decode(codes, scale, v);
  };
  product(256, 8, 64, dy.as<float>(), recoded, expected.data());
  const std::vector<double> found = coded.gradient("b.weight");
  EXPECT_EQ(found, std::vector<double>(expected.begin(), expected.end()));
  const double error = fixture::relative_error(found, exact.gradient("b.weight"));
  EXPECT_GT(error, 1e-4) << "four bits are not exact";
  EXPECT_LT(error, 0.2);

  // 256 x 64 codes of half a byte and a scale per 16 of them, instead of 256 x 64 floats.
  const std::int64_t kept = 256 * 64 / 2 + 256 * 64 / 16 * 4, input = 256 * 64 * 4;
  const auto bytes = [&](Precision& precision) {
    return make_chain(bench, precision, false).executor().activation_bytes();
  };
  // On processors without AVX-512 the plans differ by 9,728 bytes more, whatever kernels; why is not known.
  EXPECT_LE(bytes(*rotated), bytes(plain) - (input - kept) + 16384);
}

TEST(RotatedCodes, CountTheirOperandsInARun) {
  const Folder folder;
  const std::string model =
      "[[model.layer]]\nname = 'lin'\ntype = 'linear'\nfeatures = 16\ninputs = ['x']\n"
      "[[model.layer]]\nname = 'loss'\ntype = 'quadratic'\n[precision]\ntype = 'rotated4'\n";
  const RunResult result = train(plugin, model, {"data.batch=16"}, folder);
  EXPECT_EQ(result.quantized_operands.at("int4"), 12) << "one per slot, none in evaluation";
}

}  // namespace
}  // namespace rehearsal::rotated_codes_test
