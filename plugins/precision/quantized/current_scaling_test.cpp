// FP8 with one current scale per tensor, property N16 of its specification: the scale, the error of a round
// trip, powers of two, tensors without a scale, and which GEMM layers of a network are quantized.
#include "testing.hpp"

#include <tenon/numerics.hpp>
#include <tenon/ops/quant.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::Rig;
using testing::site_info;
using testing::Values;

struct Fp8Case {
  const char* name;
  ElementFormat element;
  double largest;          ///< finite
  int smallest_normal;     ///< exponent
  double error;            ///< of normals: half a unit of the last place of 1
  std::uint8_t last_code;  ///< of the largest
};
void PrintTo(const Fp8Case& format, std::ostream* out) {
  *out << format.name;
}
constexpr Fp8Case kFp8Cases[] = {{"E4M3", ElementFormat::kE4M3, 448, -6, 0x1p-4, 0x7E},
                                 {"E5M2", ElementFormat::kE5M2, 57344, -14, 0x1p-3, 0x7B}};

class CurrentScaling : public ::testing::TestWithParam<Fp8Case> {
 protected:
  static constexpr std::int64_t kRows = 37, kColumns = 53;

  struct Rounded {
    float scale = 0;  ///< decode scale
    std::vector<std::uint8_t> codes;
    Values values;  ///< decoded
    QuantizeStats stats;
  };
  /// `values`, rounded to f32, through the quantizer of the device.
  Rounded round(const Values& values) {
    const QuantizeSpec spec{.rows = kRows,
                            .columns = kColumns,
                            .input = DType::kF32,
                            .element = GetParam().element,
                            .scale = BlockScale::kTensor};
    auto* const ops = static_cast<QuantOps*>(bench.device->query(QuantOps::kId));
    const auto kernel = ops->quantizer(spec);
    testing::Buffers buffers(*bench.device);
    const TensorView x = buffers.make(DType::kF32, {kRows, kColumns});
    const TensorView out = buffers.make(DType::kBF16, {kRows, kColumns});
    const TensorView codes = buffers.make(DType::kU8, {kRows * kColumns});
    const TensorView scratch = buffers.bytes(kernel->scratch_bytes());
    tenon::testing::write(*bench.device, x, values);
    Rounded result;
    const float amax = kernel->amax(x, scratch);
    result.scale = kernel->run(x, amax, {}, {out, codes, {}, {}}, scratch, &result.stats);
    result.values = tenon::testing::read(*bench.device, out);
    for (double& value : result.values) value *= static_cast<double>(result.scale);
    const auto* const bytes = static_cast<const std::uint8_t*>(codes.data);
    result.codes.assign(bytes, bytes + kRows * kColumns);
    return result;
  }
  /// Numbers over 24 binades, rounded to f32, and a zero.
  static Values wide(const char* name) {
    Values values = tenon::testing::normals(kRows * kColumns, name);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i == 11 ? 0.0 : std::ldexp(values[i], static_cast<int>(i % 24) - 18));
    return values;
  }
  static double amax_of(const Values& values) {
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    return largest;
  }

  Bench bench{"cpu", "auto", 1};
};
INSTANTIATE_TEST_SUITE_P(Formats, CurrentScaling, ::testing::ValuesIn(kFp8Cases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CurrentScaling, N16_TheScaleIsTheLargestFiniteOverTheAmaxOfTheTensor) {
  for (const char* name : {"a", "b", "c"}) {
    const Values x = wide(name);
    const Rounded rounded = round(x);
    const double amax = amax_of(x);
    // The division and its inverse round once each.
    EXPECT_NEAR(1 / static_cast<double>(rounded.scale), GetParam().largest / amax,
                2 * 0x1p-23 * GetParam().largest / amax);
    EXPECT_EQ(rounded.stats.amax, amax);
    EXPECT_EQ(rounded.stats.saturated, 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::abs(x[i]) == amax) {
        EXPECT_EQ(rounded.codes[i] & 0x7F, GetParam().last_code) << "amax becomes the largest code";
      }
    }
  }
}

TEST_P(CurrentScaling, N16_ARoundTripOfNormalsStaysWithinHalfAUnit) {
  const Values x = wide("r");
  const Rounded rounded = round(x);
  const double smallest = std::ldexp(static_cast<double>(rounded.scale), GetParam().smallest_normal);
  int normals = 0;
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::abs(x[i]) < smallest) continue;
    ++normals;
    worst = std::max(worst, std::abs(rounded.values[i] - x[i]) / std::abs(x[i]));
  }
  // The scaled number is rounded to f32 before it becomes a code.
  EXPECT_LE(worst, GetParam().error * (1 + 0x1p-20));
  EXPECT_GT(worst, GetParam().error * 0.8)
      << "the bound is reached, or codes have more bits than they should";
  EXPECT_GT(normals, 700);
}

TEST_P(CurrentScaling, N16_APowerOfTwoLeavesTheCodesUnchanged) {
  const Values x = wide("p");
  const Rounded whole = round(x);
  for (const int power : {-90, -40, -7, -1, 1, 5, 33, 100}) {
    Values scaled = x;
    for (double& value : scaled) value = std::ldexp(value, power);
    const Rounded other = round(scaled);
    EXPECT_EQ(other.codes, whole.codes) << power;
    EXPECT_EQ(other.scale, std::ldexp(whole.scale, power)) << power;
  }
  Values third = x;
  for (double& value : third) value /= 3;
  EXPECT_NE(round(third).scale, whole.scale);
}

TEST_P(CurrentScaling, N16_ZerosAndNumbersThatAreNotFiniteAreHandledAndReported) {
  const Values none(kRows * kColumns, 0.0);
  const Rounded zero = round(none);
  EXPECT_EQ(zero.scale, 1) << "a scale that changes nothing";
  EXPECT_EQ(zero.values, none);
  EXPECT_EQ(zero.codes, std::vector<std::uint8_t>(kRows * kColumns, 0));
  EXPECT_EQ(zero.stats.amax, 0);
  EXPECT_EQ(zero.stats.underflow, 0);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Values x = wide("n");
    x[77] = bad;
    EXPECT_TRUE(std::isnan(round(x).scale)) << bad << ": the product of a scale that is NaN shows it";
  }
  // A magnitude so small that its scale would overflow keeps the largest scale that f32 has.
  Values tiny(kRows * kColumns, 0.0);
  tiny[5] = 0x1p-140;
  EXPECT_TRUE(std::isfinite(round(tiny).scale));
  EXPECT_GT(round(tiny).scale, 0);
}

/// Decode scales by operand.
class Scales final : public NumericsSink {
 public:
  void add(const OperandNumerics& operand) override {
    by_operand[std::string(operand.gemm) + "." + std::string(operand.operand)] = operand.stats.scale_max;
    reported.push_back(operand.stats.amax);
  }
  std::map<std::string, double> by_operand;
  std::vector<double> reported;
};

TEST(CurrentScalingOfSites, N16_EachTensorHasTheScaleOfItsOwnStep) {
  Bench bench{"cpu", "reference", 1};
  const auto precision = bench.make_component<Precision>("fp8", "recipe = \"current\"");
  Rig rig(*bench.device, *precision, site_info(32, 32, 64));
  Scales first, second;
  rig.call.numerics = &first;
  rig.step(0);
  Values x = rig.get(rig.x);
  for (double& value : x) value *= 4;
  rig.set(rig.x, x);
  rig.call.numerics = &second;
  rig.step(1);
  std::string operands;
  for (const auto& [operand, scale] : first.by_operand) operands += operand + " ";
  ASSERT_EQ(operands, "dgrad.dy dgrad.w fprop.w fprop.x wgrad.dy ") << "wgrad reads the codes of fprop's x";
  for (const auto& [operand, scale] : second.by_operand) {
    const bool of_x = operand.ends_with(".x");
    EXPECT_DOUBLE_EQ(scale, first.by_operand.at(operand) * (of_x ? 4 : 1)) << operand;
  }
  const auto largest = [&](TensorView view) {
    double amax = 0;
    for (const double value : rig.get(view)) amax = std::max(amax, std::abs(value));
    return amax;
  };
  EXPECT_NEAR(second.by_operand.at("fprop.x"), largest(rig.x) / 448, 1e-6 * largest(rig.x) / 448);
  EXPECT_NEAR(second.by_operand.at("fprop.w"), largest(rig.w) / 448, 1e-6 * largest(rig.w) / 448);
  EXPECT_NEAR(second.by_operand.at("wgrad.dy"), largest(rig.dy) / 57344, 1e-6 * largest(rig.dy) / 57344);
}

TEST(CurrentScalingOfSites, N16_AnOperandThatIsNotFiniteIsReported) {
  Bench bench{"cpu", "reference", 1};
  const auto precision = bench.make_component<Precision>("fp8", "recipe = \"current\"");
  Rig rig(*bench.device, *precision, site_info(32, 32, 64));
  Values x = rig.get(rig.x);
  x[3] = HUGE_VAL;
  rig.set(rig.x, x);
  Scales scales;
  rig.call.numerics = &scales;
  const Values y = rig.fprop();
  EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }));
  ASSERT_EQ(scales.reported.size(), 2u);
  EXPECT_FALSE(std::isfinite(scales.reported[0]));
  rig.set(rig.x, Values(x.size(), 0.0));
  EXPECT_EQ(rig.fprop(), Values(y.size(), 0.0));
}

/// A network of layers with so many sites each, the last one a head; "101" = layers 0 and 2 of three are kept
/// as a whole, "." = some of the layer's sites are.
std::vector<std::string> kept_sites(const std::string& options, const std::vector<int>& sites) {
  Bench bench{"cpu", "reference", 1};
  const auto precision = bench.make_component<Precision>("fp8", options);
  int gemms = 0;
  for (std::size_t i = 0; i + 1 < sites.size(); ++i) gemms += sites[i];
  std::vector<std::string> kept;
  int gemm = 0;
  for (std::size_t layer = 0; layer < sites.size(); ++layer) {
    const bool head = layer + 1 == sites.size();
    for (int site = 0; site < sites[layer]; ++site) {
      SiteInfo info = site_info(32, 32, 32);
      const std::string name = head ? "lm_head" : "model.layers." + std::to_string(layer) + ".mixer";
      info.layer = name;
      info.module = head ? "head" : "linear";
      info.site = site;
      info.layer_index = static_cast<int>(layer);
      info.layer_count = static_cast<int>(sites.size());
      info.block_index = head ? -1 : static_cast<int>(layer);
      info.block_count = static_cast<int>(sites.size()) - 1;
      info.gemm_index = head ? -1 : gemm++;
      info.gemm_count = gemms;
      testing::TestHost host(*bench.device, 1);
      if (precision->bind(info, host) == nullptr) kept.push_back(name + "." + std::to_string(site));
    }
  }
  return kept;
}

TEST(KeptGemms, N16_TheFirstAndLastProductsStayWhateverLayersTheyAreIn) {
  using Names = std::vector<std::string>;
  const std::vector<int> sites = {2, 4, 2, 2,
                                  1};  // a Mamba-2 layer, attention, feed-forward, and so on; a head
  const auto name = [](int layer, int site) {
    return "model.layers." + std::to_string(layer) + ".mixer." + std::to_string(site);
  };
  EXPECT_EQ(kept_sites("", sites), Names{"lm_head.0"});
  EXPECT_EQ(kept_sites("keep_first_gemms = 3", sites),
            (Names{name(0, 0), name(0, 1), name(1, 0), "lm_head.0"}));
  EXPECT_EQ(kept_sites("keep_last_gemms = 3", sites),
            (Names{name(2, 1), name(3, 0), name(3, 1), "lm_head.0"}));
  EXPECT_EQ(kept_sites("keep_last_gemms = 1\nhead = true", sites), Names{name(3, 1)})
      << "a head does not count";
  EXPECT_EQ(kept_sites("keep_first_gemms = 1\nkeep_last = 1", sites),
            (Names{name(0, 0), name(3, 0), name(3, 1), "lm_head.0"}));
  try {
    kept_sites("keep_first_gemms = 4\nkeep_last_gemms = 6", sites);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("every site stays in bf16 (keep_first, keep_last, keep_first_gemms, "
                        "keep_last_gemms, keep, head)"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tenon::quantized
