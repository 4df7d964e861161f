// Sites as a layer uses them: switches, draws, copies of weights, kept data, counts and reports.
#include "testing.hpp"

#include <tenon/numerics.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::Rig;
using testing::site_info;
using testing::Values;

constexpr const char* kComponents[] = {"nvfp4", "mxfp4", "mxfp8", "fp8"};

class SiteTest : public ::testing::Test {
 protected:
  testing::Made<Precision> make(const char* type, const std::string& options = "") {
    return bench.make_component<Precision>(type, options);
  }
  Bench bench{"cpu", "reference", 2};
};

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
  // A run that restarts after the switch, or before it, needs nothing but the slot.
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
  for (int slot = 3; slot < 6; ++slot) EXPECT_EQ(resumed.step(slot), steps[slot]);
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
