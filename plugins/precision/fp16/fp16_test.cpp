// Sites of `fp16` against an oracle in double: the operands and results in binary16, and those that stay f32.
#include <tenon/numerics.hpp>
#include <tenon/precision.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace tenon::testing::fp16_test {
namespace {

constexpr std::int64_t kM = 19, kN = 24, kK = 40;

/// Rounds to binary16 by its definition: 11 significant bits, quanta of 2^-24 below 2^-14, infinity from
/// 65520.
double half(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double quantum = std::ldexp(1.0, std::max(exponent - 11, -24));
  const double rounded = std::nearbyint(x / quantum) * quantum;
  return std::fabs(rounded) >= 65520 ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

struct Counter final : OperandCounter {
  void count(std::string_view format, std::int64_t operands) override {
    counts[std::string(format)] += operands;
  }
  std::map<std::string, std::int64_t> counts;
};

struct Sink final : NumericsSink {
  void add(const OperandNumerics& operand) override {
    lines.push_back(std::string(operand.gemm) + "." + std::string(operand.operand) + " " +
                    std::string(operand.format) + " " + std::string(operand.reason));
    underflow.push_back(operand.stats.underflow);
  }
  std::vector<std::string> lines;
  std::vector<double> underflow;
};

/// A site with the memory that it requested.
struct Bound final : SiteHost {
  explicit Bound(const char* options)
      : bench("cpu", "reference", 1), precision(bench.make_component<Precision>("fp16", options)) {
    SiteInfo info;
    info.layer = "fc";
    info.layer_count = 1;
    info.m = info.chunk = kM, info.n = kN, info.k = kK;
    site = precision->bind(info, *this);
    const SiteMemory need = site->memory();
    persistent.resize(need.persistent);
    scratch.resize(need.scratch);
    call.persistent = {persistent.data(), Shape{static_cast<std::int64_t>(need.persistent)}, DType::kU8};
    call.scratch = {scratch.data(), Shape{static_cast<std::int64_t>(need.scratch)}, DType::kU8};
  }
  Device& device() override { return *bench.device; }
  OperandCounter& operands() override { return counter; }
  RandomKey rounding_key() override { return {}; }
  TensorView state(std::string_view, DType, const Shape&) override { return {}; }

  Counter counter;
  Bench bench;
  Made<Precision> precision;
  std::unique_ptr<LinearSite> site;
  std::vector<std::byte> persistent, scratch;
  SiteCall call;
};

struct Matrix {
  Matrix(std::int64_t rows_, std::int64_t columns_, const char* purpose, double scale = 1)
      : rows(rows_), columns(columns_) {
    for (const double value : normals(rows * columns, purpose))
      values.push_back(static_cast<float>(value * scale));
  }
  TensorView view() { return {values.data(), Shape{rows, columns}}; }
  double at(std::int64_t i, std::int64_t j) const { return static_cast<double>(values[i * columns + j]); }
  std::int64_t rows, columns;
  std::vector<float> values;
};

/// Checks that every element of `found` is binary16 and within half a unit of the exact sum of rounded
/// operands, plus the f32 sum's own error of 2^-24 for each of the `inner` terms.
template <typename Term>
void expect_rounded_sums(const Matrix& found, std::int64_t inner, Term term) {
  for (std::int64_t i = 0; i < found.rows; ++i) {
    for (std::int64_t j = 0; j < found.columns; ++j) {
      double sum = 0, sizes = 0;
      for (std::int64_t l = 0; l < inner; ++l) sum += term(i, j, l), sizes += std::fabs(term(i, j, l));
      const double value = found.at(i, j);
      ASSERT_EQ(value, half(value)) << i << ", " << j << " is not binary16";
      const double slack = static_cast<double>(inner) * 0x1p-24 * sizes;
      ASSERT_GE(value, half(sum - slack)) << i << ", " << j;
      ASSERT_LE(value, half(sum + slack)) << i << ", " << j;
    }
  }
}

TEST(Fp16Site, RoundsOperandsAndResults) {
  Bound bound("");
  Matrix x(kM, kK, "x"), w(kN, kK, "w"), dy(kM, kN, "dy", 1e-6), y(kM, kN, "y"), dx(kM, kK, "dx"),
      dw(kN, kK, "dw");
  bound.site->fprop(bound.call, x.view(), w.view(), {}, y.view());
  expect_rounded_sums(y, kK, [&](auto i, auto j, auto l) { return half(x.at(i, l)) * half(w.at(j, l)); });
  bound.site->dgrad(bound.call, dy.view(), w.view(), dx.view(), false);
  expect_rounded_sums(dx, kN, [&](auto i, auto j, auto l) { return half(dy.at(i, l)) * half(w.at(l, j)); });
  bound.site->wgrad(bound.call, x.view(), dy.view(), dw.view(), false);
  expect_rounded_sums(dw, kM, [&](auto i, auto j, auto l) { return half(dy.at(l, i)) * half(x.at(l, j)); });
  EXPECT_EQ(bound.counter.counts, (std::map<std::string, std::int64_t>{{"fp16", 6}}));
  EXPECT_NE(dy.at(0, 0), half(dy.at(0, 0))) << "the test's own operands are not binary16 already";
}

TEST(Fp16Site, AddsInFloat32) {
  Bound bound("");
  Matrix x(kM, kK, "x"), w(kN, kK, "w"), dy(kM, kN, "dy"), dx(kM, kK, "dx"), dw(kN, kK, "dw");
  const Matrix base_x = dx, base_w = dw;
  Matrix first_x = dx, first_w = dw;
  bound.site->dgrad(bound.call, dy.view(), w.view(), first_x.view(), false);
  bound.site->wgrad(bound.call, x.view(), dy.view(), first_w.view(), false);
  bound.site->dgrad(bound.call, dy.view(), w.view(), dx.view(), true);
  bound.site->wgrad(bound.call, x.view(), dy.view(), dw.view(), true);
  for (std::size_t i = 0; i < dx.values.size(); ++i)
    ASSERT_EQ(dx.values[i], base_x.values[i] + first_x.values[i]);
  for (std::size_t i = 0; i < dw.values.size(); ++i)
    ASSERT_EQ(dw.values[i], base_w.values[i] + first_w.values[i]);
}

TEST(Fp16Site, LeavesGradientsAloneWhereTold) {
  Bound bound("gradients = 'fp32'");
  // Below the smallest subnormal of binary16: rounded gradients would all be zero.
  Matrix x(kM, kK, "x"), w(kN, kK, "w"), dy(kM, kN, "dy", 1e-10), dx(kM, kK, "dx"), dw(kN, kK, "dw");
  bound.site->dgrad(bound.call, dy.view(), w.view(), dx.view(), false);
  bound.site->wgrad(bound.call, x.view(), dy.view(), dw.view(), false);
  double sum = 0;
  for (std::int64_t l = 0; l < kN; ++l) sum += dy.at(3, l) * half(w.at(l, 5));
  EXPECT_NEAR(dx.at(3, 5), sum, 1e-15);
  sum = 0;
  for (std::int64_t l = 0; l < kM; ++l) sum += dy.at(l, 3) * half(x.at(l, 5));
  EXPECT_NEAR(dw.at(3, 5), sum, 1e-15);
  EXPECT_EQ(bound.counter.counts["fp16"], 2) << "w of dgrad and x of wgrad";

  Bound rounding("");
  rounding.site->wgrad(rounding.call, x.view(), dy.view(), dw.view(), false);
  EXPECT_THAT(dw.values, ::testing::Each(0.0F));
}

TEST(Fp16Site, CopiesTheWeightWhenItsVersionRises) {
  Bound bound("");
  Matrix x(kM, kK, "x"), w(kN, kK, "w"), y(kM, kN, "y"), again = y, after = y;
  bound.site->fprop(bound.call, x.view(), w.view(), {}, y.view());
  for (float& value : w.values) value *= 2;
  bound.site->fprop(bound.call, x.view(), w.view(), {}, again.view());
  EXPECT_EQ(again.values, y.values) << "the copy is kept while nobody says that the weight changed";
  ++bound.call.weight_version;
  bound.site->fprop(bound.call, x.view(), w.view(), {}, after.view());
  EXPECT_NE(after.values, y.values);
}

TEST(Fp16Site, OverflowShows) {
  Bound bound("");
  Matrix x(kM, kK, "x"), w(kN, kK, "w"), y(kM, kN, "y");
  x.values[0] = 65519.9F;  // rounds to 65504
  bound.site->fprop(bound.call, x.view(), w.view(), {}, y.view());
  EXPECT_TRUE(std::all_of(y.values.begin(), y.values.end(), [](float v) { return !std::isnan(v); }));
  x.values[0] = 65520.0F;  // rounds to infinity
  bound.site->fprop(bound.call, x.view(), w.view(), {}, y.view());
  EXPECT_FALSE(std::isfinite(y.values[0]));
}

TEST(Fp16Site, ReportsItsOperands) {
  Bound bound("");
  Sink sink;
  bound.call.numerics = &sink;
  Matrix x(kM, kK, "x"), w(kN, kK, "w"), dy(kM, kN, "dy", 1e-10), y(kM, kN, "y"), dx(kM, kK, "dx"),
      dw(kN, kK, "dw");
  bound.site->fprop(bound.call, x.view(), w.view(), {}, y.view());
  bound.site->dgrad(bound.call, dy.view(), w.view(), dx.view(), false);
  bound.site->wgrad(bound.call, x.view(), dy.view(), dw.view(), false);
  EXPECT_EQ(sink.lines, (std::vector<std::string>{"fprop.x fp16 recipe", "fprop.w fp16 recipe",
                                                  "dgrad.w fp16 recipe", "dgrad.dy fp16 recipe",
                                                  "wgrad.x fp16 recipe", "wgrad.dy fp16 recipe"}));
  EXPECT_EQ(sink.underflow, (std::vector<double>{0, 0, 0, 1, 0, 1}));
}

TEST(Fp16, RefusesAnInitialScaleBelowTheFloor) {
  Bench bench("cpu", "reference", 1);
  try {
    bench.make_component<Precision>("fp16", "init = 2.0\nmin_scale = 4.0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("precision.fp16: init = 2 lies below min_scale = 4; the scale "
                                     "begins at init and never falls below min_scale"));
  }
}

TEST(Fp16, BeginsAtThePublishedScales) {
  Bench bench("cpu", "reference", 1);
  EXPECT_EQ(bench.make_component<Precision>("fp16", "")->loss_scale(), 65536);
  EXPECT_EQ(bench.make_component<Precision>("fp16", "scaler = 'megatron'")->loss_scale(), 4294967296.0);
  EXPECT_EQ(bench.make_component<Precision>("fp16", "loss_scale = 'static'\nscale = 8.0")->loss_scale(), 8);
  const auto none = bench.make_component<Precision>("fp16", "loss_scale = 'none'");
  EXPECT_EQ(none->loss_scale(), 1);
  EXPECT_FALSE(static_cast<LossScaler*>(none->query(LossScaler::kId))->answers_overflow());
}

}  // namespace
}  // namespace tenon::testing::fp16_test
