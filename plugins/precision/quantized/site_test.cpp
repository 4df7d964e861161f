// Sites as a layer uses them: what products multiply, copies of weights, what is kept, what is counted.
#include "plan.hpp"
#include "testing.hpp"

#include <tenon/kernels/formats.hpp>
#include <tenon/numerics.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::distance;
using testing::element;
using testing::Rig;
using testing::site_info;
using testing::transposed;
using testing::Values;

constexpr const char* kComponents[] = {"nvfp4", "mxfp4", "mxfp8", "fp8"};

class SiteTest : public ::testing::Test {
 protected:
  testing::Made<Precision> make(const char* type, const std::string& options = "") {
    return bench.make_component<Precision>(type, options);
  }
  struct Decoded {
    Values values;   ///< code x block scale
    float scale;     ///< of the matrix
    Values largest;  ///< with two-level scales: the largest magnitude of each element's block, scale left out
  };
  /// What the device makes of a matrix.
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

TEST_F(SiteTest, P15_FpropAndDgradReadTheSameWeight) {
  // An identity in bf16 on the other side: the products are the weight.
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

TEST_F(SiteTest, P21_RotationOfOneOperandAloneRuinsWgrad) {
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

TEST_F(SiteTest, P26_TheMeanOfStochasticWgradIsThatOfTheRotatedGradient) {
  constexpr std::int64_t kM = 64, kN = 16, kK = 32;
  constexpr int kDraws = 100;
  const auto ratio = [&](const char* options) {
    const auto precision = make("nvfp4", options);
    Rig rig(*bench.device, *precision, site_info(kM, kN, kK));
    const auto [x, x_scale, unused] = quantized("nvfp4", Use::kWgradX, rig.x, true);
    const auto rounded = quantized("nvfp4", Use::kWgradDy, rig.dy, true);
    // The rotated gradient by the definition: rows of 16 times diag(s) H, rounded to bf16. What exceeds
    // the largest number of its block, which the rounding of the block's scale allows, is that number.
    const Values dy = rig.get(rig.dy);
    Values turned(dy.size());
    for (std::int64_t column = 0; column < kN; ++column) {
      for (std::int64_t row = 0; row < kM; ++row) {
        double sum = 0;
        for (std::int64_t l = 0; l < 16; ++l) {
          const double sign = (0xD7E8 >> l & 1) != 0 ? -1 : 1;
          const double entry = std::popcount(static_cast<unsigned>(l & (row % 16))) % 2 != 0 ? -0.25 : 0.25;
          sum += dy[static_cast<std::size_t>((row / 16 * 16 + l) * kN + column)] * sign * entry;
        }
        const auto at = static_cast<std::size_t>(row * kN + column);
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

TEST_F(SiteTest, P28_ProductsAreThoseOfTheDecodedOperands) {
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

TEST_F(SiteTest, P28_AlphaOfTheScalesAgreesWithTheAmaxForm) {
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

TEST_F(SiteTest, AFloatScalePerBlockGivesTheSameProductAsItsDecodedOperands) {
  // m, n and k that end inside a block, chunks, a bias and a map: they are applied once.
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

TEST_F(SiteTest, P33_SixtyFourMicroBatchesAreOneBatch) {
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

TEST_F(SiteTest, P36_AfterTheSwitchProductsAreThoseOfBf16) {
  const auto plain = make("nvfp4", "switch = \"all\"\nswitch_at = 0"), full = make("nvfp4");
  const auto at_eighty = [&](const char* which) {
    return make("nvfp4", std::string("switch_at = 0.8\nswitch = \"") + which + "\"");
  };
  const SiteInfo info = site_info(40, 24, 50);
  Rig bf16(*bench.device, *plain, info), nvfp4(*bench.device, *full, info);
  const auto all = at_eighty("all"), forward = at_eighty("forward");
  Rig a(*bench.device, *all, info), f(*bench.device, *forward, info);
  EXPECT_EQ(a.step(79), nvfp4.step(79));
  EXPECT_EQ(f.step(79), nvfp4.step(79));
  EXPECT_EQ(f.host.counts["bf16"], 0);
  EXPECT_EQ(a.step(80), bf16.step(80));
  const auto late = f.step(80), before = nvfp4.step(80);
  EXPECT_EQ(late[0], bf16.step(80)[0]);
  EXPECT_EQ(late[1], before[1]);
  EXPECT_EQ(late[2], before[2]);
  EXPECT_EQ(f.host.counts["bf16"], 2);
  // A run that begins again behind the switch, or before it, needs nothing but the slot.
  Rig again(*bench.device, *forward, info);
  EXPECT_EQ(again.step(80), late);
  EXPECT_EQ(again.step(79), nvfp4.step(79));
}

TEST_F(SiteTest, P25_DrawsOfStochasticRoundingNeedNoState) {
  const auto precision = make("nvfp4");
  const SiteInfo info = site_info(40, 24, 50);
  Rig whole(*bench.device, *precision, info), resumed(*bench.device, *precision, info);
  std::vector<std::vector<Values>> steps;
  for (int slot = 0; slot < 6; ++slot) steps.push_back(whole.step(slot));
  EXPECT_NE(steps[3][1], steps[4][1]) << "each slot draws anew";
  EXPECT_EQ(steps[3][0], steps[4][0]) << "x and w are rounded to nearest";
  for (int slot = 3; slot < 6; ++slot) EXPECT_EQ(resumed.step(slot), steps[static_cast<std::size_t>(slot)]);
  Rig other(*bench.device, *precision, info, 2);
  EXPECT_NE(other.step(3)[1], steps[3][1]) << "another seed_rounding";
}

TEST_F(SiteTest, P25_TheTwoCopiesOfAGradientHaveUncorrelatedErrors) {
  // dgrad with w = identity shows the errors of one copy, wgrad with x = identity (not rotated) the other's.
  const auto precision =
      make("nvfp4", "rotate = \"none\"\n[site.\"*\"]\ndgrad_w = \"bf16\"\nwgrad_x = \"bf16\"");
  Rig rig(*bench.device, *precision, site_info(64, 64, 64));
  Values identity(64 * 64, 0.0);
  for (std::size_t i = 0; i < 64; ++i) identity[i * 64 + i] = 1;
  rig.set(rig.w, identity);
  rig.set(rig.x, identity);
  rig.fprop();
  const Values dy = rig.get(rig.dy), a = rig.dgrad(), b = rig.wgrad();
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    for (std::size_t j = 0; j < 64; ++j) {
      const double ea = a[i * 64 + j] - dy[i * 64 + j], eb = b[j * 64 + i] - dy[i * 64 + j];
      ab += ea * eb, aa += ea * ea, bb += eb * eb;
    }
  }
  EXPECT_LT(std::abs(ab / std::sqrt(aa * bb)), 4.0 / 64) << "4 / sqrt(n)";
}

TEST_F(SiteTest, CountsItsOperandsAndKeepsNoPlainInput) {
  const struct {
    const char *type, *options;
    std::map<std::string, std::int64_t> counts;
    bool reads_input;
  } cases[] = {
      {"nvfp4", "", {{"nvfp4", 4}, {"nvfp4_2d", 2}}, false},
      {"nvfp4", "weights = \"1d\"", {{"nvfp4", 6}}, false},
      {"mxfp4", "", {{"mxfp4", 6}}, false},
      {"mxfp8", "gradients = \"e5m2\"", {{"mxfp8_e4m3", 4}, {"mxfp8_e5m2", 2}}, false},
      {"fp8", "", {{"fp8_e4m3", 4}, {"fp8_e5m2", 2}}, false},
      {"fp8", "recipe = \"block\"", {{"fp8_block", 4}, {"fp8_block_2d", 2}}, false},
      {"nvfp4", "switch = \"all\"", {{"nvfp4", 4}, {"nvfp4_2d", 2}}, true},
      {"nvfp4", "keep_worst = 0.1", {{"nvfp4", 4}, {"nvfp4_2d", 2}}, true},
      {"nvfp4",
       "[site.\"h.*\"]\nwgrad_x = \"bf16\"\nfprop_x = \"mxfp8_e5m2\"",
       {{"nvfp4", 2}, {"nvfp4_2d", 2}, {"bf16", 1}, {"mxfp8_e5m2", 1}},
       true},
  };
  for (const auto& c : cases) {
    const auto precision = make(c.type, c.options);
    Rig rig(*bench.device, *precision, site_info(40, 24, 50));
    rig.step(0);
    EXPECT_EQ(rig.host.counts, c.counts) << c.type << " " << c.options;
    EXPECT_EQ(rig.site->reads_input(), c.reads_input) << c.type << " " << c.options;
    EXPECT_EQ(rig.site->memory().kept > 0, !c.reads_input) << c.type << " " << c.options;
  }
}

TEST_F(SiteTest, KeepsOneCopyOfAWeightWhereItsBlocksAreSquare) {
  const auto bytes = [&](const char* type, const char* options) {
    const auto precision = make(type, options);
    return Rig(*bench.device, *precision, site_info(64, 64, 64)).site->memory().persistent;
  };
  EXPECT_EQ(bytes("nvfp4", ""), 64u * 64 * 2);
  EXPECT_EQ(bytes("nvfp4", "weights = \"1d\""), 2u * 64 * 64 * 2);
  EXPECT_EQ(bytes("mxfp8", ""), 2u * 64 * 64 * 2);
  EXPECT_EQ(bytes("fp8", ""), 64u * 64 * 2);
}

TEST_F(SiteTest, HidesNothingThatIsNotFinite) {
  for (const char* type : kComponents) {
    const auto precision = make(type);
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      Rig rig(*bench.device, *precision, site_info(40, 24, 50));
      Values x = rig.get(rig.x);
      x[77] = bad;
      rig.set(rig.x, x);
      const auto has_nan = [](const Values& values) {
        return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
      };
      EXPECT_TRUE(has_nan(rig.fprop())) << type;
      EXPECT_TRUE(has_nan(rig.wgrad())) << type << ": found_inf sees the gradient of the weight";
    }
    EXPECT_FALSE(precision->after_backward({.slot = 1, .found_non_finite = true}));
    EXPECT_TRUE(precision->after_backward({.slot = 2}));
  }
}

class Sink final : public NumericsSink {
 public:
  void add(const OperandNumerics& operand) override {
    seen.push_back(std::string(operand.gemm) + "." + std::string(operand.operand) + " " +
                   std::string(operand.format));
    signal_to_noise.push_back(operand.stats.signal / operand.stats.noise);
    scales.push_back(operand.scales.elements());
  }
  std::vector<std::string> seen;
  std::vector<double> signal_to_noise;
  std::vector<std::int64_t> scales;
};

TEST_F(SiteTest, ReportsItsOperandsToThoseWhoListenAndChangesNothing) {
  const auto precision = make("nvfp4");
  Rig rig(*bench.device, *precision, site_info(32, 32, 64)),
      quiet(*bench.device, *precision, site_info(32, 32, 64));
  Sink sink;
  rig.call.numerics = &sink;
  EXPECT_EQ(rig.step(0), quiet.step(0));
  EXPECT_EQ(sink.seen, (std::vector<std::string>{"fprop.x nvfp4", "fprop.w nvfp4_2d", "wgrad.x nvfp4",
                                                 "dgrad.dy nvfp4", "dgrad.w nvfp4_2d", "wgrad.dy nvfp4"}));
  for (const double ratio : sink.signal_to_noise) {
    EXPECT_GT(ratio, 40) << "16 dB";
    EXPECT_LT(ratio, 200) << "23 dB";
  }
  EXPECT_EQ(sink.scales, (std::vector<std::int64_t>{32 * 4, 2 * 4, 2 * 64, 32 * 2, 2 * 4, 2 * 32}));
}

}  // namespace
}  // namespace tenon::quantized
