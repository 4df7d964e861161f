// Sites of `mor`: operands of the products, fallbacks and their reasons, counts, and the quantizer.
#include "ledger.hpp"

#include <tenon/kernels/reference/mor.hpp>
#include <tenon/numerics.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <numeric>

namespace tenon::testing {
namespace {

using kernels::Bf16;

constexpr std::int64_t kM = 160, kN = 144, kK = 192;

struct Counter final : OperandCounter {
  void count(std::string_view format, std::int64_t operands) override {
    counts[std::string(format)] += operands;
  }
  std::map<std::string, std::int64_t> counts;
};

struct Sink final : NumericsSink {
  void add(const OperandNumerics& operand) override {
    lines.push_back(std::string(operand.gemm) + "." + std::string(operand.operand) + " " +
                    std::string(operand.format) + ": " + std::string(operand.reason));
    choices.emplace_back(operand.choices.as<std::uint8_t>(),
                         operand.choices.as<std::uint8_t>() + operand.choices.elements());
    sides.emplace_back(operand.block_rows, operand.block_columns);
  }
  std::vector<std::string> lines;
  std::vector<std::vector<std::uint8_t>> choices;
  std::vector<std::pair<std::int64_t, std::int64_t>> sides;
};

struct Matrix {
  Matrix(std::int64_t rows_, std::int64_t columns_, const char* purpose, double tail = 0)
      : rows(rows_), columns(columns_) {
    const auto z = normals(rows * columns, purpose), spread = normals(rows * columns, "spread");
    for (std::size_t i = 0; i < z.size(); ++i)
      values.push_back(kernels::to_bf16(static_cast<float>(z[i] * std::exp(tail * spread[i]))));
  }
  TensorView view() { return {values.data(), Shape{rows, columns}, DType::kBF16}; }
  std::vector<float> floats() const {
    std::vector<float> wide;
    for (const Bf16 value : values) wide.push_back(kernels::to_float(value));
    return wide;
  }
  std::int64_t rows, columns;
  std::vector<Bf16> values;
};

/// A site with the memory that it requested, under a policy, or the plain BF16 product.
struct Bound final : SiteHost {
  explicit Bound(const std::string& options, SiteInfo info = {})
      : bench("cpu", "reference", 1), precision(bench.make_component<Precision>("mor", options)) {
    info.layer = info.layer.empty() ? "h.0.fc" : info.layer;
    info.module = info.module.empty() ? "linear" : info.module;
    info.block_count = std::max(info.block_count, 1);
    info.layer_count = std::max(info.layer_count, 1);
    info.m = info.chunk = kM, info.n = kN, info.k = kK;
    info.activation = DType::kBF16;
    site = precision->bind(info, *this);
    if (site == nullptr) return;
    const SiteMemory need = site->memory();
    persistent.resize(need.persistent);
    scratch.resize(need.scratch);
    call.persistent = {persistent.data(), Shape{static_cast<std::int64_t>(need.persistent)}, DType::kU8};
    call.scratch = {scratch.data(), Shape{static_cast<std::int64_t>(need.scratch)}, DType::kU8};
  }
  ~Bound() override { site.reset(); }
  Device& device() override { return *bench.device; }
  OperandCounter& operands() override { return counter; }
  RandomKey rounding_key() override { return {}; }
  TensorView state(std::string_view, DType dtype, const Shape& shape) override {
    states.emplace_back(static_cast<std::size_t>(shape.elements()) * 8);
    return {states.back().data(), shape, dtype};
  }
  std::map<std::string, double> metrics() {
    std::map<std::string, double> found;
    static_cast<PrecisionMetrics*>(precision->query(PrecisionMetrics::kId))
        ->metrics([&](std::string_view name, double value) { found.emplace(name, value); });
    return found;
  }

  Counter counter;
  Bench bench;
  Made<Precision> precision;
  std::deque<std::vector<std::byte>> states;
  std::unique_ptr<LinearSite> site;
  std::vector<std::byte> persistent, scratch;
  SiteCall call;
};

struct Case {
  Matrix x{kM, kK, "x"}, dy{kM, kN, "dy"};
  std::vector<float> w = Matrix(kN, kK, "w").floats();
  std::vector<Bf16> y = std::vector<Bf16>(kM * kN), dx = std::vector<Bf16>(kM * kK);
  std::vector<float> dw = std::vector<float>(kN * kK);

  void run(Bound& bound) {
    const TensorView weight{w.data(), Shape{kN, kK}};
    bound.site->fprop(bound.call, x.view(), weight, {}, {y.data(), Shape{kM, kN}, DType::kBF16});
    bound.site->dgrad(bound.call, dy.view(), weight, {dx.data(), Shape{kM, kK}, DType::kBF16}, false);
    bound.site->wgrad(bound.call, x.view(), dy.view(), {dw.data(), Shape{kN, kK}}, false);
  }
};

/// Returns the reference's result for a matrix in blocks of rows x columns (0 = all).
std::vector<float> decided(const std::vector<Bf16>& x, std::int64_t rows, std::int64_t block_rows,
                           std::int64_t block_columns) {
  kernels::MorArgs args;
  args.x = x.data();
  args.rows = rows, args.columns = static_cast<std::int64_t>(x.size()) / rows;
  args.block_rows = block_rows > 0 ? block_rows : rows;
  args.block_columns = block_columns > 0 ? block_columns : args.columns;
  std::vector<Bf16> values(x.size());
  kernels::reference::mor(args, values.data(), nullptr);
  std::vector<float> wide;
  for (const Bf16 value : values) wide.push_back(kernels::to_float(value));
  return wide;
}

std::vector<Bf16> narrowed(const std::vector<float>& values) {
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(kernels::to_bf16(value));
  return result;
}

/// Checks for equality within the rounding of an f32 sum of `inner` terms and of a result in BF16.
template <typename Term>
void expect_products(const std::vector<float>& found, std::int64_t rows, std::int64_t inner, double unit,
                     Term term) {
  const auto columns = static_cast<std::int64_t>(found.size()) / rows;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0, sizes = 0;
      for (std::int64_t l = 0; l < inner; ++l) sum += term(i, j, l), sizes += std::fabs(term(i, j, l));
      const double slack = static_cast<double>(inner) * 0x1p-24 * sizes + unit * std::fabs(sum);
      ASSERT_NEAR(static_cast<double>(found[i * columns + j]), sum, slack) << i << ", " << j;
    }
  }
}

std::vector<float> widened(const std::vector<Bf16>& values) {
  std::vector<float> wide;
  for (const Bf16 value : values) wide.push_back(kernels::to_float(value));
  return wide;
}

TEST(MorSite, MultipliesWhatWasDecidedAlongTheSum) {
  struct Partition {
    const char* text;
    std::int64_t across, along;
  };
  for (const Partition& p :
       {Partition{"128x128", 128, 128}, {"row", 1, 0}, {"8x32", 8, 32}, {"tensor", 0, 0}}) {
    Bound bound(std::string("partition = '") + p.text + "'");
    Case c;
    c.run(bound);
    const auto at = [](const std::vector<float>& values, std::int64_t columns) {
      return [&values, columns](std::int64_t i, std::int64_t j) {
        return static_cast<double>(values[i * columns + j]);
      };
    };
    const std::vector<Bf16> w = narrowed(c.w);
    const auto x_k = decided(c.x.values, kM, p.across, p.along), w_k = decided(w, kN, p.across, p.along);
    expect_products(widened(c.y), kM, kK, 0x1p-8,
                    [&](auto i, auto j, auto l) { return at(x_k, kK)(i, l) * at(w_k, kK)(j, l); });
    const auto dy_n = decided(c.dy.values, kM, p.across, p.along), w_n = decided(w, kN, p.along, p.across);
    expect_products(widened(c.dx), kM, kN, 0x1p-8,
                    [&](auto i, auto j, auto l) { return at(dy_n, kN)(i, l) * at(w_n, kK)(l, j); });
    const auto dy_m = decided(c.dy.values, kM, p.along, p.across),
               x_m = decided(c.x.values, kM, p.along, p.across);
    expect_products(c.dw, kN, kM, 0,
                    [&](auto i, auto j, auto l) { return at(dy_m, kN)(l, i) * at(x_m, kK)(l, j); });
    EXPECT_NE(widened(c.x.values), x_k) << "rounding to E4M3 is seen";
    EXPECT_EQ(bound.counter.counts, (std::map<std::string, std::int64_t>{{"mor:e4m3", 6}})) << p.text;
  }
}

TEST(MorSite, P39_AThresholdOfZeroIsThePlainProduct) {
  Bound bound("threshold = 0.0");
  Case c;
  c.run(bound);
  std::vector<Bf16> y(kM * kN), w = narrowed(c.w);
  GemmSpec spec;
  spec.m = kM, spec.n = kN, spec.k = kK, spec.transpose_b = true;
  spec.a = spec.b = spec.c = DType::kBF16;
  const auto gemm = bound.bench.device->family<Blas>().gemm(spec);
  std::vector<std::byte> scratch(gemm->scratch_bytes());
  gemm->run(c.x.view(), {w.data(), Shape{kN, kK}, DType::kBF16}, {y.data(), Shape{kM, kN}, DType::kBF16}, {},
            1.0F, {scratch.data(), Shape{static_cast<std::int64_t>(scratch.size())}, DType::kU8});
  EXPECT_EQ(widened(c.y), widened(y));
  EXPECT_EQ(bound.counter.counts, (std::map<std::string, std::int64_t>{{"mor:bf16", 6}}));
}

TEST(MorSite, P40_APlantedHeavyTailFallsBackInOneScaleAndNotInBlocks) {
  const auto lines = [](const char* options) {
    Bound bound(options);
    Sink sink;
    bound.call.numerics = &sink;
    Case c;
    // Two halves whose magnitudes differ by 2^22: one scale for both loses the smaller one, a scale per block
    // does not.
    for (std::size_t i = c.x.values.size() / 2; i < c.x.values.size(); ++i)
      c.x.values[i] = kernels::to_bf16(kernels::to_float(c.x.values[i]) * 0x1p-22F);
    c.run(bound);
    return sink.lines;
  };
  const auto whole = lines("partition = 'tensor'\nstrategy = 'current'");
  EXPECT_THAT(whole,
              ::testing::Contains(::testing::MatchesRegex("fprop.x mor:bf16: error 0.[4-5]... > 0.045")));
  EXPECT_THAT(whole, ::testing::Contains(::testing::MatchesRegex("fprop.w mor:e4m3: error 0.022. <= 0.045")));
  EXPECT_THAT(whole, ::testing::Contains(::testing::MatchesRegex("wgrad.x mor:bf16: .*")));
  for (const std::string& line : lines("partition = '16x16'"))
    EXPECT_THAT(line, ::testing::MatchesRegex(".* mor:e4m3: error 0.02.. <= 0.045"));
}

TEST(MorSite, ReportsBlocksAndTheirSides) {
  Bound bound("level = 'sub3'\npartition = '16x32'\nstrategy = 'block'");
  Sink sink;
  bound.call.numerics = &sink;
  Case c;
  // One block of fprop's x that no format can represent, one that only E5M2 can.
  c.x.values[0] = kernels::to_bf16(0x1p40F), c.x.values[1] = kernels::to_bf16(0x1p-40F);
  c.x.values[40] = kernels::to_bf16(0x1p10F), c.x.values[41] = kernels::to_bf16(0x1p-10F);
  c.run(bound);
  EXPECT_EQ(sink.lines[1].substr(0, 25), "fprop.x mor:e4m3: blocks:");
  EXPECT_EQ(sink.choices[1][0], static_cast<std::uint8_t>(MorChoice::kKeep));
  EXPECT_EQ(sink.choices[1][1], static_cast<std::uint8_t>(MorChoice::kE5M2));
  EXPECT_EQ(sink.sides[1], (std::pair<std::int64_t, std::int64_t>{16, 32}));
  EXPECT_EQ(sink.lines[4].substr(0, 7), "wgrad.x");
  EXPECT_EQ(sink.sides[4], (std::pair<std::int64_t, std::int64_t>{32, 16}))
      << "down the rows that wgrad sums over";
}

TEST(MorSite, CountsTrainingAlone) {
  Bound bound("partition = 'tensor'\nstrategy = 'current'");
  Case c;
  c.x = Matrix(kM, kK, "x", 3.0);
  c.run(bound);
  bound.call.training = false;
  c.run(bound);
  const auto found = bound.metrics();
  EXPECT_EQ(found.at("mor/h.0.fc/fprop.x"), 0);
  EXPECT_EQ(found.at("mor/h.0.fc/fprop.w"), 1);
  EXPECT_EQ(found.at("mor/h.0.fc/dgrad.dy"), 1);
  EXPECT_GT(found.at("mor/h.0.fc/fprop.x/error"), 0.045);
  EXPECT_EQ(found.at("mor/share"), 4.0 / 6);
  EXPECT_EQ(found.at("mor/share/x"), 0);
  EXPECT_EQ(found.at("mor/share/w"), 1);
  EXPECT_EQ(found.size(), 6u * 2 + 4);
  const auto* decisions = reinterpret_cast<const std::int64_t*>(bound.states.front().data());
  EXPECT_EQ(std::accumulate(decisions, decisions + mor::kUses * mor::kChoices, std::int64_t{0}), 6);
  bound.site.reset();
  EXPECT_TRUE(bound.metrics().empty()) << "a site that is gone is not asked";
}

TEST(MorSite, DecidesAboutAWeightOncePerVersion) {
  Bound bound("");
  Case c;
  c.run(bound);
  const auto before = c.y;
  for (float& value : c.w) value *= 2;
  c.run(bound);
  EXPECT_EQ(widened(c.y), widened(before)) << "the copy is kept while nobody says that the weight changed";
  ++bound.call.weight_version;
  c.run(bound);
  EXPECT_NE(widened(c.y), widened(before));
}

TEST(MorSite, KeepsWhatItIsTold) {
  const auto keeps = [](const char* options, SiteInfo info) { return Bound(options, info).site == nullptr; };
  SiteInfo third;
  third.block_index = 2;
  third.block_count = 4;
  third.layer_count = 2;  // not the last site, whose result would cover all
  EXPECT_FALSE(keeps("", third));
  EXPECT_FALSE(keeps("keep_first = 2\nkeep_last = 1", third));
  EXPECT_TRUE(keeps("keep_first = 3", third));
  EXPECT_TRUE(keeps("keep_last = 2", third));
  EXPECT_TRUE(keeps("keep = ['h.*.fc']", third));
  SiteInfo head;
  head.module = "head";
  head.block_index = -1;
  head.layer_count = 2;
  EXPECT_TRUE(keeps("", head));
  EXPECT_FALSE(keeps("head = true\nkeep_first = 1", head));
}

TEST(MorSite, RefusesToKeepEverythingAndPatternsWithoutALayer) {
  const auto message = [](const char* options) {
    try {
      Bound bound(options, SiteInfo());
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message("keep = ['*']"), ::testing::HasSubstr("precision mor: every site stays in bf16"));
  EXPECT_THAT(
      message("keep = ['h.0.attn.*']"),
      ::testing::HasSubstr("the pattern 'h.0.attn.*' matches no layer with products; there are h.0.fc"));
}

TEST(MorSite, ExperimentalNvfp4TakesWhatItsOwnErrorAllows) {
  Bound bound("fp4 = true\nfp4_threshold = 1.0"), never("fp4 = true\nfp4_threshold = 0.0"), plain("");
  Case c, d, e;
  c.run(bound);
  EXPECT_EQ(bound.counter.counts, (std::map<std::string, std::int64_t>{{"mor:nvfp4", 6}}));
  d.run(never);
  e.run(plain);
  EXPECT_EQ(never.counter.counts, (std::map<std::string, std::int64_t>{{"mor:e4m3", 6}}));
  EXPECT_EQ(widened(d.y), widened(e.y));
  const auto distance = [&](const std::vector<Bf16>& y) {
    const auto a = widened(y), b = widened(e.y);
    double sum = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      sum += std::pow(static_cast<double>(a[i] - b[i]), 2), size += std::pow(static_cast<double>(b[i]), 2);
    return std::sqrt(sum / size);
  };
  EXPECT_GT(distance(c.y), 0.05) << "four bits are seen";
  EXPECT_LT(distance(c.y), 0.3);
}

TEST(MorQuantizer, ShowsCodesScalesAndTheDecision) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("mor", "");
  auto& quantizer = *static_cast<Quantizer*>(precision->query(Quantizer::kId));
  EXPECT_THAT(quantizer.formats(), ::testing::ElementsAre("mor"));
  const Matrix x(40, 52, "x"), heavy(40, 52, "x", 4.0);
  for (const char* scale : {"gam", "block", "e8", "current"}) {
    for (const Matrix* input : {&x, &heavy}) {
      std::vector<float> from = input->floats(), dequantized(from.size());
      QuantizeRequest request;
      request.format = "mor";
      request.block_rows = request.block_columns = 16;
      request.scale = scale;
      request.rows = 40, request.columns = 52;
      const QuantizeShape shape = quantizer.shape(request);
      EXPECT_EQ(shape.scale_rows, 3);
      EXPECT_EQ(shape.scale_columns, 4);
      EXPECT_EQ(shape.scale, DType::kF32);
      std::vector<std::uint8_t> codes(from.size());
      std::vector<float> scales(12);
      const QuantizeReport report = quantizer.run(
          request, *bench.device, {from.data(), Shape{40, 52}}, {codes.data(), Shape{40, 52}, DType::kU8},
          {scales.data(), Shape{3, 4}}, {dequantized.data(), Shape{40, 52}});
      double error = 0;
      for (std::size_t i = 0; i < from.size(); ++i) {
        const float value =
            kernels::decode(codes[i], kernels::Element::kE4M3) * scales[i / 52 / 16 * 4 + i % 52 / 16];
        error += std::fabs(static_cast<double>(value) - static_cast<double>(from[i])) /
                 std::fabs(static_cast<double>(from[i]));
        // Either a quotient by the encode scale, or a product with its reciprocal.
        if (report.decision == "e4m3") {
          ASSERT_NEAR(value, dequantized[i], std::fabs(value) * 0x1p-22F);
        } else {
          ASSERT_EQ(dequantized[i], from[i]) << "bf16: the input";
        }
      }
      EXPECT_NEAR(report.mean_relative_error, error / static_cast<double>(from.size()), 1e-5);
      EXPECT_EQ(report.decision, report.mean_relative_error > 0.045 ? "bf16" : "e4m3");
      EXPECT_EQ(report.tensor_scale, 1);
      if (std::string_view(scale) == "current") {
        EXPECT_EQ(report.decision, input == &x ? "e4m3" : "bf16");
      }
    }
  }
}

TEST(MorQuantizer, RefusesWhatIsNotDefined) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("mor", "");
  auto& quantizer = *static_cast<Quantizer*>(precision->query(Quantizer::kId));
  const auto refusal = [&](std::string_view QuantizeRequest::*field, std::string_view value) -> std::string {
    QuantizeRequest request;
    request.*field = value;
    request.rows = request.columns = 4;
    try {
      quantizer.shape(request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(&QuantizeRequest::rounding, "sr"),
            "format mor rounds to nearest; rounding 'sr' is not defined for it");
  EXPECT_EQ(refusal(&QuantizeRequest::transform, "rht16"), "format mor has no transform 'rht16'");
  EXPECT_EQ(refusal(&QuantizeRequest::scale, "floor"),
            "format mor has no scale 'floor'; it has gam, block, e8 and current");
}

}  // namespace
}  // namespace tenon::testing
