// Operands of products: the numbers from the device's quantizers, in f32, times two scales.
#include "plan.hpp"
#include "testing.hpp"

#include <tenon/kernels/formats.hpp>

#include <gtest/gtest.h>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::distance;
using testing::element;
using testing::Rig;
using testing::site_info;
using testing::transposed;
using testing::Values;

class ProductTest : public ::testing::Test {
 protected:
  testing::Made<Precision> make(const char* type, const std::string& options = "") {
    return bench.make_component<Precision>(type, options);
  }
  struct Decoded {
    Values values;   ///< code x block scale
    float scale;     ///< of the matrix
    Values largest;  ///< with two-level scales: the largest magnitude of each element's block, unscaled
  };
  /// Returns the device's quantization of a matrix.
  Decoded quantized(const std::string& format, Use use, TensorView x, bool rotate = false,
                    std::uint64_t step = 0, RandomKey key = {}, bool stochastic = false) {
    OperandPlan plan;
    plan.format = &format_of(format);
    plan.rotate = rotate;
    if (stochastic) plan.rounding = RoundingMode::kStochastic;
    const auto kernel =
        bench.device->family<QuantOps>().quantizer(spec_of(plan, use, x.shape[0], x.shape[1], x.dtype));
    testing::Buffers buffers(*bench.device);
    const TensorView scratch = buffers.bytes(kernel->scratch_bytes());
    QuantizeOutput out;
    const std::int64_t rows = kernel->padded_rows(), columns = x.shape[1];
    out.values = buffers.make(DType::kBF16, {rows, columns});
    out.scales = buffers.bytes(kernel->scale_bytes());
    QuantizeDraws draws;
    draws.key = key;
    draws.step = step;
    const float scale =
        kernel->run(x, kernel->needs_amax() ? kernel->amax(x, scratch) : 0.0f, draws, out, scratch, nullptr);
    Decoded decoded{tenon::testing::read(*bench.device, out.values), scale, {}};
    if (plan.format->scale != BlockScale::kTwoLevel || !along_rows(use)) return decoded;
    for (std::int64_t at = 0; at < rows * columns; ++at) {
      const std::int64_t block = at / columns / 16 * columns + at % columns;
      decoded.largest.push_back(
          6.0 * kernels::decode(out.scales.as<std::uint8_t>()[block], kernels::Element::kE4M3));
    }
    return decoded;
  }

  Bench bench{"cpu", "reference", 2};
};

TEST_F(ProductTest, P15_FpropAndDgradReadTheSameWeight) {
  // The other operand is an identity in bf16, so the products are the weight.
  const char* identity_sides = "[site.\"*\"]\nfprop_x = \"bf16\"\ndgrad_dy = \"bf16\"";
  const auto both = [&](const char* type, const std::string& options) {
    const auto precision = make(type, options + identity_sides);
    Rig rig(*bench.device, *precision, site_info(48, 48, 48));
    Values identity(48 * 48, 0.0);
    for (std::size_t i = 0; i < 48; ++i) identity[i * 48 + i] = 1;
    rig.set(rig.x, identity);
    rig.set(rig.dy, identity);
    const Values y = rig.fprop(), dx = rig.dgrad();
    Values turned;
    for (std::size_t i = 0; i < 48; ++i)
      for (std::size_t j = 0; j < 48; ++j) turned.push_back(y[j * 48 + i]);
    EXPECT_LT(distance(dx, rig.get(rig.w)), 0.2);
    return turned == dx;
  };
  EXPECT_TRUE(both("nvfp4", ""));
  EXPECT_TRUE(both("fp8", ""));
  EXPECT_TRUE(both("fp8", "recipe = \"block\"\n"));
  EXPECT_FALSE(both("nvfp4", "weights = \"1d\"\n")) << "blocks along different dimensions cannot agree";
  EXPECT_FALSE(both("mxfp4", "stochastic = \"none\"\n"));
}

TEST_F(ProductTest, P21_RotationOfOneOperandAloneRuinsWgrad) {
  const auto error = [&](const char* options) {
    const auto precision = make("nvfp4", options);
    Rig rig(*bench.device, *precision, site_info(64, 32, 48));
    rig.fprop();
    const Values dy = rig.get(rig.dy), x = rig.get(rig.x);
    return distance(rig.wgrad(), testing::product(32, 48, 64, transposed(dy, 32), element(x, 48)));
  };
  EXPECT_LT(error("rotate = \"wgrad\""), 0.25);
  EXPECT_LT(error("rotate = \"none\""), 0.25);
  EXPECT_GT(error("rotate = \"x\""), 1.0);
  EXPECT_GT(error("rotate = \"dy\""), 1.0);
}

TEST_F(ProductTest, P26_TheMeanOfStochasticWgradIsThatOfTheRotatedGradient) {
  constexpr std::int64_t kM = 64, kN = 16, kK = 32;
  constexpr int kDraws = 100;
  const auto ratio = [&](const char* options) {
    const auto precision = make("nvfp4", options);
    Rig rig(*bench.device, *precision, site_info(kM, kN, kK));
    const auto [x, x_scale, unused] = quantized("nvfp4", Use::kWgradX, rig.x, true);
    const auto rounded = quantized("nvfp4", Use::kWgradDy, rig.dy, true);
    // The rotated gradient by the definition: rows of 16 times diag(s) H, rounded to bf16. A value above the
    // largest number of its block, which the rounding of the block's scale allows, becomes that number.
    const Values dy = rig.get(rig.dy);
    Values turned(dy.size());
    for (std::int64_t column = 0; column < kN; ++column) {
      for (std::int64_t row = 0; row < kM; ++row) {
        double sum = 0;
        for (std::int64_t l = 0; l < 16; ++l) {
          const double sign = (0xD7E8 >> l & 1) != 0 ? -1 : 1;
          const double entry = std::popcount(static_cast<unsigned>(l & (row % 16))) % 2 != 0 ? -0.25 : 0.25;
          sum += dy[(row / 16 * 16 + l) * kN + column] * sign * entry;
        }
        const std::size_t at = row * kN + column;
        const double largest = rounded.largest[at] * rounded.scale;
        turned[at] = std::clamp<double>(
            tenon::testing::from_bf16(tenon::testing::to_bf16(static_cast<float>(sum))), -largest, largest);
      }
    }
    Values expected = testing::product(kN, kK, kM, transposed(turned, kN), element(x, kK));
    for (double& value : expected) value *= x_scale;
    Values mean(expected.size(), 0.0);
    double single = 0;
    for (int i = 0; i < kDraws; ++i) {
      rig.call.step = i;
      rig.fprop();
      const Values dw = rig.wgrad();
      single += distance(dw, expected) / kDraws;
      for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += dw[e] / kDraws;
    }
    return distance(mean, expected) / single;
  };
  // 512 elements: the ratio of the two norms scatters by a few per cent around 1 / sqrt(100).
  EXPECT_NEAR(ratio("random_bits = 24"), 0.1, 0.015);
  // With 8 bits a bias of at most 1/512 of a step remains, against an error of one draw of about 0.4 steps.
  EXPECT_NEAR(ratio("random_bits = 8"), 0.1, 0.02);
  EXPECT_GT(ratio("stochastic = \"none\""), 0.95) << "rounding to nearest does not average out";
}

TEST_F(ProductTest, P28_ProductsAreThoseOfTheDecodedOperands) {
  constexpr std::int64_t kM = 48, kN = 24, kK = 80;
  const struct {
    const char *type, *options, *format;
    bool rotate;
  } cases[] = {{"nvfp4", "stochastic = \"none\"", "nvfp4", true},
               {"nvfp4", "stochastic = \"none\"\nrotate = \"none\"", "nvfp4", false},
               {"mxfp4", "stochastic = \"none\"", "mxfp4", false},
               {"mxfp8", "", "mxfp8_e4m3", false},
               {"fp8", "gradients = \"e4m3\"", "fp8_e4m3", false},
               {"fp8", "recipe = \"block\"", "fp8_block", false}};
  for (const auto& c : cases) {
    const auto precision = make(c.type, c.options);
    Rig rig(*bench.device, *precision, site_info(kM, kN, kK));
    rig.fprop();
    const Values dw = rig.wgrad();
    const auto [dy, dy_scale, unused_dy] = quantized(c.format, Use::kWgradDy, rig.dy, c.rotate);
    const auto [x, x_scale, unused_x] = quantized(c.format, Use::kWgradX, rig.x, c.rotate);
    const double alpha = static_cast<double>(dy_scale) * x_scale;
    Values sizes_dy = dy, sizes_x = x;
    for (double& value : sizes_dy) value = std::abs(value);
    for (double& value : sizes_x) value = std::abs(value);
    const Values exact = testing::product(kN, kK, kM, transposed(dy, kN), element(x, kK));
    const Values sizes = testing::product(kN, kK, kM, transposed(sizes_dy, kN), element(sizes_x, kK));
    for (std::size_t i = 0; i < dw.size(); ++i) {
      // kM roundings of the sum, and those of alpha and of the product with it.
      const double bound = (kM + 2) * std::ldexp(1.0, -24) * sizes[i] * alpha;
      ASSERT_LE(std::abs(dw[i] - exact[i] * alpha), bound) << c.type << " " << c.options << ", element " << i;
    }
  }
}

TEST_F(ProductTest, P28_AlphaOfTheScalesAgreesWithTheAmaxForm) {
  for (int i = 0; i < 200; ++i) {
    testing::Buffers buffers(*bench.device);
    const auto matrix = [&](const char* name) {
      Values values = tenon::testing::normals(32 * 16, name + std::to_string(i));
      return buffers.of(DType::kF32, {32, 16}, values);
    };
    const TensorView a = matrix("a"), b = matrix("b");
    const auto amax = [&](TensorView view) {
      double largest = 0;
      for (const double value : tenon::testing::read(*bench.device, view))
        largest = std::max(largest, std::abs(value));
      return static_cast<float>(largest);
    };
    const float alpha = quantized("nvfp4", Use::kFpropX, a).scale * quantized("nvfp4", Use::kFpropX, b).scale;
    const float other = amax(a) * amax(b) / (36.0f * 448.0f * 448.0f);
    const auto distance = std::abs(static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(alpha)) -
                                   static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(other)));
    EXPECT_LE(distance, 2) << alpha << " " << other;
  }
}

TEST_F(ProductTest, AFloatScalePerBlockGivesTheSameProductAsItsDecodedOperands) {
  // m, n and k that end inside a block, chunks, and a bias and a map, each applied once.
  SiteInfo info = site_info(200, 150, 300);
  info.chunk = 136;
  info.bias = true;
  info.epilogue = Epilogue::kRelu;
  const auto power = make("fp8", "recipe = \"block\""),
             floats = make("fp8", "recipe = \"block\"\nscales = \"fp32\"");
  Rig a(*bench.device, *power, info), b(*bench.device, *floats, info);
  Values exact = testing::product(200, 150, 300, element(a.get(a.x), 300), transposed(a.get(a.w), 300));
  const Values bias = a.get(a.bias);
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = std::max(0.0, exact[i] + bias[i % 150]);
  const Values dy = a.get(a.dy);
  const Values dw = testing::product(150, 300, 200, transposed(dy, 150), element(a.get(a.x), 300));
  const Values dx = testing::product(200, 300, 150, element(dy, 150), element(a.get(a.w), 300));
  for (Rig* rig : {&a, &b}) {
    const auto found = rig->step(0);
    // E4M3 has a relative error of at most 1/16, 0.026 rms; two operands, and the rounding to bf16.
    EXPECT_LT(distance(found[0], exact), 0.045);
    EXPECT_LT(distance(found[1], dx), 0.045);
    EXPECT_LT(distance(found[2], dw), 0.045);
    const Values twice = rig->wgrad(true);
    EXPECT_LT(distance(twice,
                       [&] {
                         Values v = found[2];
                         for (double& e : v) e *= 2;
                         return v;
                       }()),
              1e-5);
    Values base = found[1];
    rig->set(rig->dx, base);
    const Values sum = rig->dgrad(true);
    for (double& value : base) value *= 2;
    EXPECT_LT(distance(sum, base), 0.01);
  }
  EXPECT_NE(a.get(a.dw), b.get(b.dw));
}

TEST_F(ProductTest, P33_SixtyFourMicroBatchesAreOneBatch) {
  const auto difference = [&](const char* type, const std::string& options) {
    const auto precision = make(type, options);
    Rig whole(*bench.device, *precision, site_info(1024, 16, 32));
    Rig part(*bench.device, *precision, site_info(16, 16, 32));
    whole.call.step = part.call.step = 5;
    whole.fprop();
    const Values one = whole.wgrad(), x = whole.get(whole.x), dy = whole.get(whole.dy);
    for (int micro = 0; micro < 64; ++micro) {
      part.call.micro = micro;
      part.set(part.x, Values(x.begin() + micro * 16 * 32, x.begin() + (micro + 1) * 16 * 32));
      part.set(part.dy, Values(dy.begin() + micro * 16 * 16, dy.begin() + (micro + 1) * 16 * 16));
      part.fprop();
      part.wgrad(micro > 0);
    }
    return distance(part.get(part.dw), one);
  };
  EXPECT_LT(difference("nvfp4", "switch = \"all\"\nswitch_at = 0"), 1e-5) << "bf16";
  const double quantized = difference("nvfp4", "");
  EXPECT_GT(quantized, 1e-3) << "scales and draws belong to micro-batches";
  EXPECT_LT(quantized, 0.3) << "in expectation they are equal";
}

}  // namespace
}  // namespace tenon::quantized
