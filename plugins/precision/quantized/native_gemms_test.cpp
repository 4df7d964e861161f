// Option `products`: sites that multiply codes agree with those that multiply values, within the bound of two
// orders of the same sums; sites that cannot multiply codes report the reason, or multiply values.
#include "device/device_test.hpp"
#include "testing.hpp"

#include <tenon/numerics.hpp>

#include <gtest/gtest.h>

namespace tenon::quantized {
namespace {

using tenon::testing::message_of;
using testing::Bench;
using testing::Rig;
using testing::site_info;
using testing::Values;

constexpr std::int64_t kM = 48, kN = 64, kK = 80;

double norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Two orders of a sum of k products in f32 differ by at most 2 (k + 3) 2^-24 of the sum of magnitudes
/// (decision 0033), whose Frobenius norm is at most that of both operands, multiplied; rounding to a format
/// makes an operand at most twice as long. A GPU's units keep fewer bits (unit_error), of sums that are no
/// larger than those of magnitudes. A result in bf16 may then round to its neighbour: 2^-8 of itself.
double bound(const Values& result, double a, double b, std::int64_t k, bool bf16) {
  return (2 * static_cast<double>(k + 3) * 0x1p-24 + tenon::testing::unit_error(k)) * 4 * a * b +
         (bf16 ? 0x1p-8 * norm(result) : 0);
}

double native_part(Precision& precision) {
  double part = -1;
  auto* const metrics = static_cast<PrecisionMetrics*>(precision.query(PrecisionMetrics::kId));
  if (metrics != nullptr) {
    metrics->metrics([&](std::string_view name, double value) {
      if (name == "native_products") part = value;
    });
  }
  return part;
}

struct Recipe {
  const char *component, *options;
};
const Recipe kRecipes[] = {
    {"nvfp4", ""},
    {"nvfp4", "weights = '1d'\nrotate = 'none'\nstochastic = 'none'\nfour_over_six = true"},
    {"mxfp8", ""},
    {"mxfp8", "gradients = 'e5m2'"},
    {"fp8", ""},
    {"fp8", "recipe = 'delayed'"},
    {"fp8", "recipe = 'block'"},
    {"nvfp4", "keep_worst = 0.01"},
    {"nvfp4", "switch = 'forward'\nswitch_at = 0.01"}};

class NativeGemmsTest : public ::testing::Test {
 protected:
  auto make(const Recipe& recipe, const std::string& products) {
    const std::string options = std::string(recipe.options) + "\nproducts = \"" + products + "\"";
    return device.make_component<Precision>(recipe.component, options);
  }
  /// Whether the device has units for what the recipe multiplies; only a GPU may lack those for block scales.
  bool has_units(const Recipe& recipe) {
    const auto policy = make(recipe, "native");
    const std::string refusal = message_of([&] { Rig(*device.device, *policy, site_info(kM, kN, kK)); });
    return tenon::testing::tested_device() != "cuda" ||
           refusal.find("has no units for block scales") == std::string::npos;
  }
  tenon::testing::TestedDevice device;
};

class Listener final : public NumericsSink {
 public:
  void add(const OperandNumerics&) override { ++heard; }
  int heard = 0;
};

TEST_F(NativeGemmsTest, GiveWhatProductsOfValuesGive) {
  int tried = 0;
  for (const Recipe& recipe : kRecipes) {
    if (!has_units(recipe)) continue;
    ++tried;
    SCOPED_TRACE(std::string(recipe.component) + " " + recipe.options);
    const auto values = make(recipe, "values"), native = make(recipe, "native");
    SiteInfo info = site_info(kM, kN, kK);
    info.bias = true;
    info.epilogue = Epilogue::kGeluTanh;
    Rig expected(*device.device, *values, info), found(*device.device, *native, info);
    EXPECT_EQ(native_part(*native), 1);
    Listener listener;
    for (std::int64_t slot = 0; slot < 3; ++slot) {
      found.call.numerics = slot == 2 ? &listener : nullptr;
      const auto of_values = expected.step(slot), own = found.step(slot);
      const double x = norm(found.get(found.x)), w = norm(found.get(found.w)), dy = norm(found.get(found.dy));
      const double bounds[] = {bound(of_values[0], x, w, kK, true), bound(of_values[1], dy, w, kN, true),
                               bound(of_values[2], dy, x, kM, false)};
      for (std::size_t i = 0; i < own.size(); ++i)
        EXPECT_LE(testing::distance(own[i], of_values[i]) * norm(of_values[i]), bounds[i])
            << "slot " << slot << " result " << i;
      // Accumulated results.
      const Values added = found.wgrad(true), there = expected.wgrad(true);
      EXPECT_LE(testing::distance(added, there) * norm(there), 2 * bounds[2]);
    }
    EXPECT_GT(listener.heard, 0);
  }
  EXPECT_GE(tried, 2) << "fp8 with one scale for a tensor has units on every GPU";
}

TEST_F(NativeGemmsTest, AnOperandThatIsNotFiniteShows) {
  for (const Recipe& recipe : {Recipe{"nvfp4", ""}, {"mxfp8", ""}, {"fp8", ""}}) {
    if (!has_units(recipe)) continue;
    const auto native = make(recipe, "native");
    Rig rig(*device.device, *native, site_info(kM, kN, kK));
    Values x = tenon::testing::normals(rig.x.elements(), "x");
    x[5] = INFINITY;
    rig.set(rig.x, x);
    for (const double value : rig.fprop()) ASSERT_TRUE(std::isnan(value)) << recipe.component;
  }
}

TEST_F(NativeGemmsTest, AutoMultipliesValuesWhereCodesCannotBe) {
  // More rows than a block: within one block f32 scales apply to whole lines, which units support.
  const Recipe recipes[] = {{"mxfp4", ""}, {"fp8", "recipe = 'block'\nscales = 'fp32'"}};
  for (const Recipe& recipe : recipes) {
    const auto values = make(recipe, "values"), either = make(recipe, "auto");
    const SiteInfo info = site_info(3 * kM, kN, kK);
    Rig expected(*device.device, *values, info), found(*device.device, *either, info);
    EXPECT_EQ(native_part(*values), -1);
    EXPECT_EQ(native_part(*either), 0);
    EXPECT_EQ(found.step(0), expected.step(0)) << recipe.component;
  }
  // Only one product of a site.
  for (const Recipe& mixed : {Recipe{"nvfp4", "stochastic = 'none'\nsite = {'*' = {wgrad_x = 'mxfp4'}}"},
                              {"fp8", "site = {'*' = {wgrad_x = 'mxfp4'}}"}}) {
    const auto values = make(mixed, "values"), either = make(mixed, "auto");
    const SiteInfo info = site_info(kM, kN, kK);
    Rig expected(*device.device, *values, info), found(*device.device, *either, info);
    EXPECT_NEAR(native_part(*either), has_units(mixed) ? 2.0 / 3 : 0, 1e-9) << mixed.component;
    EXPECT_EQ(found.step(0)[2], expected.step(0)[2]) << mixed.component;
  }
}

TEST_F(NativeGemmsTest, NativeSaysWhatCannotMultiplyCodes) {
  const auto refusal = [&](Bench& bench, const char* component, const std::string& options) {
    const auto policy = bench.make_component<Precision>(component, options + "\nproducts = \"native\"");
    return message_of([&] { Rig(*bench.device, *policy, site_info(kM, kN, kK)); });
  };
  const std::string begin = "layer 'h.0.mlp.c_fc': products = \"native\", but ";
  const std::string end = "; products = \"auto\" multiplies values there, \"values\" everywhere";
  EXPECT_EQ(refusal(device, "mxfp4", ""),
            begin +
                "fprop cannot multiply codes: A is e2m1 in blocks of 1x32: powers of two as scales go with "
                "e4m3 and e5m2" +
                end);
  EXPECT_EQ(refusal(device, "fp8", "site = {'*' = {wgrad_x = 'bf16'}}"),
            begin + "wgrad cannot multiply codes: bf16 has no codes: both operands must be quantized" + end);
  EXPECT_EQ(refusal(device, "fp8", "site = {'*' = {dgrad_w = 'mxfp8_e4m3'}}"),
            begin + "dgrad cannot multiply codes: both operands must have scales of one kind" + end);
  Bench cpu("cpu", "auto", 1);
  EXPECT_EQ(refusal(cpu, "nvfp4", ""),
            begin +
                "fprop cannot multiply codes: the device has no products of codes (tenon.device.scaled/1)" +
                end);
}

TEST_F(NativeGemmsTest, ARotationOfOneSideAloneCannotMultiplyCodesOfOddSizes) {
  const Recipe recipe{"nvfp4", "rotate = 'x'"};
  if (!has_units(recipe)) return;
  const auto policy = make(recipe, "native");
  EXPECT_NE(message_of([&] {
              Rig(*device.device, *policy, site_info(kM + 1, kN, kK));
            }).find("wgrad cannot multiply codes: one operand is rotated alone, and padded to 64 rows of 49"),
            std::string::npos);
}

}  // namespace
}  // namespace tenon::quantized
