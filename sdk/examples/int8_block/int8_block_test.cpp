// Sites of the plugin as a layer uses them: products of quantized operands, copies of weights, counts, kept
// layers.
#include "quantizer.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <tenon/precision.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace {

using tenon::Precision;
using tenon::TensorView;
using tenon::testing::Bench;

constexpr std::int64_t kM = 37, kN = 24, kK = 50;

class Counter final : public tenon::OperandCounter {
 public:
  void count(std::string_view format, std::int64_t operands) override {
    counts[std::string(format)] += operands;
  }
  std::map<std::string, std::int64_t> counts;
};

class TestSiteHost final : public tenon::SiteHost {
 public:
  explicit TestSiteHost(tenon::Device& device) : device_(device) {}
  tenon::Device& device() override { return device_; }
  tenon::OperandCounter& operands() override { return counter; }
  tenon::RandomKey rounding_key() override { return {}; }
  TensorView state(std::string_view, tenon::DType, const tenon::Shape&) override { return {}; }
  Counter counter;

 private:
  tenon::Device& device_;
};

std::vector<float> normals(std::int64_t count, const char* purpose) {
  std::vector<float> values;
  for (const double value : tenon::testing::normals(count, purpose))
    values.push_back(static_cast<float>(value));
  return values;
}

TensorView view(std::vector<float>& values, std::int64_t rows) {
  return {values.data(), tenon::Shape{rows, static_cast<std::int64_t>(values.size()) / rows}};
}

/// A site with the memory that it requested.
struct Bound {
  explicit Bound(const char* options, int layer_index = 0)
      : bench("cpu", "reference", 2),
        host(*bench.device),
        precision(bench.make_component<Precision>("int8_block", options)) {
    tenon::SiteInfo info;
    info.layer = "fc";
    info.layer_index = layer_index;
    info.layer_count = 3;
    info.m = kM, info.n = kN, info.k = kK, info.chunk = kM;
    site = precision->bind(info, host);
    if (site == nullptr) return;
    const tenon::SiteMemory need = site->memory();
    persistent.resize(need.persistent + 64);
    scratch.resize(need.scratch + 64);
    call.persistent = bytes(persistent, need.persistent);
    call.scratch = bytes(scratch, need.scratch);
  }
  static TensorView bytes(std::vector<std::byte>& memory, std::size_t count) {
    return {memory.data(), tenon::Shape{static_cast<std::int64_t>(count)}, tenon::DType::kU8};
  }
  std::int64_t counted() const {
    const auto found = host.counter.counts.find("int8_block");
    return found == host.counter.counts.end() ? 0 : found->second;
  }

  Bench bench;
  TestSiteHost host;
  tenon::testing::Made<Precision> precision;
  std::unique_ptr<tenon::LinearSite> site;
  std::vector<std::byte> persistent, scratch;
  tenon::SiteCall call;
};

enum class Along { kRows, kColumns };

std::vector<float> through(const std::vector<float>& x, std::int64_t rows, Along along, std::int64_t block) {
  std::vector<float> values(x.size());
  const auto quantize =
      along == Along::kRows ? int8_block::quantize_along_rows : int8_block::quantize_along_columns;
  quantize(x.data(), rows, static_cast<std::int64_t>(x.size()) / rows, block, values.data());
  return values;
}

/// c[i,j] = sum over l of a(i, l) b(l, j) in double.
template <typename A, typename B>
std::vector<double> product(std::int64_t rows, std::int64_t columns, std::int64_t inner, A a, B b) {
  std::vector<double> c;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < inner; ++l) sum += a(i, l) * b(l, j);
      c.push_back(sum);
    }
  }
  return c;
}

auto element(const std::vector<float>& values, std::int64_t columns) {
  return [&values, columns](std::int64_t row, std::int64_t column) {
    return static_cast<double>(values[row * columns + column]);
  };
}

/// Within the rounding of a sum of f32 products: `inner` terms, of which the largest sums are near the
/// tensor's largest element times a small number.
void expect_close(const std::vector<float>& found, const std::vector<double>& expected, std::int64_t inner) {
  const std::vector<double> values(found.begin(), found.end());
  EXPECT_LT(tenon::testing::relative_error(values, expected), static_cast<double>(inner) * 6e-8);
}

TEST(Int8Block, MultipliesWhatTheQuantizerLeaves) {
  for (const std::int64_t block : {7, 16, 64}) {
    Bound bound(("block = " + std::to_string(block)).c_str());
    auto x = normals(kM * kK, "x"), w = normals(kN * kK, "w"), dy = normals(kM * kN, "dy");
    std::vector<float> y(kM * kN), dx(kM * kK), dw(kN * kK);

    bound.site->fprop(bound.call, view(x, kM), view(w, kN), {}, view(y, kM));
    const auto x_k = through(x, kM, Along::kRows, block), w_k = through(w, kN, Along::kRows, block);
    expect_close(
        y, product(kM, kN, kK, element(x_k, kK), [&](auto l, auto j) { return element(w_k, kK)(j, l); }), kK);

    bound.site->dgrad(bound.call, view(dy, kM), view(w, kN), view(dx, kM), false);
    const auto dy_n = through(dy, kM, Along::kRows, block), w_n = through(w, kN, Along::kColumns, block);
    expect_close(dx, product(kM, kK, kN, element(dy_n, kN), element(w_n, kK)), kN);

    bound.site->wgrad(bound.call, view(x, kM), view(dy, kM), view(dw, kN), false);
    const auto x_m = through(x, kM, Along::kColumns, block), dy_m = through(dy, kM, Along::kColumns, block);
    expect_close(dw,
                 product(
                     kN, kK, kM, [&](auto i, auto l) { return element(dy_m, kN)(l, i); }, element(x_m, kK)),
                 kM);
    EXPECT_EQ(bound.counted(), 6);
  }
}

TEST(Int8Block, QuantizesAWeightOncePerVersion) {
  Bound bound("");
  auto x = normals(kM * kK, "x"), w = normals(kN * kK, "w"), other = normals(kN * kK, "other");
  const auto run = [&](std::vector<float>& weight, std::uint64_t version) {
    std::vector<float> y(kM * kN);
    bound.call.weight_version = version;
    bound.site->fprop(bound.call, view(x, kM), view(weight, kN), {}, view(y, kM));
    return y;
  };
  const auto first = run(w, 3), of_other = run(other, 3);
  EXPECT_NE(of_other, first) << "another set of the same version";
  EXPECT_EQ(run(w, 3), first);
  w = other;
  EXPECT_EQ(run(w, 3), first) << "a writer that did not raise the version is not noticed";
  EXPECT_EQ(run(w, 4), of_other);
}

TEST(Int8Block, QuantizesTheProductsThatItsOptionsName) {
  auto x = normals(kM * kK, "x"), w = normals(kN * kK, "w"), dy = normals(kM * kN, "dy");
  const auto all = [&](Bound& bound) {
    std::vector<float> y(kM * kN), dx(kM * kK), dw(kN * kK);
    bound.site->fprop(bound.call, view(x, kM), view(w, kN), {}, view(y, kM));
    bound.site->dgrad(bound.call, view(dy, kM), view(w, kN), view(dx, kM), false);
    bound.site->wgrad(bound.call, view(x, kM), view(dy, kM), view(dw, kN), false);
    return std::vector<std::vector<float>>{y, dx, dw};
  };
  Bound none("gemms = []"), forward("gemms = [\"fprop\"]"), backward("gemms = [\"dgrad\", \"wgrad\"]"),
      full("");
  const auto plain = all(none), first = all(forward), last = all(backward), both = all(full);
  EXPECT_EQ(none.counted(), 0);
  EXPECT_EQ(forward.counted(), 2);
  EXPECT_EQ(backward.counted(), 4);
  EXPECT_EQ(first, (std::vector<std::vector<float>>{both[0], plain[1], plain[2]}));
  EXPECT_EQ(last, (std::vector<std::vector<float>>{plain[0], both[1], both[2]}));
  for (int i = 0; i < 3; ++i) EXPECT_NE(plain[i], both[i]);
  EXPECT_EQ(none.site->memory().persistent, 0u);
  EXPECT_EQ(full.site->memory().persistent, 2 * forward.site->memory().persistent);
}

TEST(Int8Block, KeepsTheLastLayers) {
  for (const int layer : {0, 1, 2})
    EXPECT_EQ(Bound("keep_last = 2", layer).site != nullptr, layer == 0) << layer;
}

TEST(Int8Block, HidesNoOverflow) {
  Bound bound("");
  auto x = normals(kM * kK, "x"), w = normals(kN * kK, "w");
  x[3] = std::numeric_limits<float>::infinity();
  std::vector<float> y(kM * kN);
  bound.site->fprop(bound.call, view(x, kM), view(w, kN), {}, view(y, kM));
  EXPECT_TRUE(std::isnan(y[0])) << "the row of the infinity";
  EXPECT_TRUE(std::isfinite(y[kN])) << "the next row";
  EXPECT_FALSE(bound.precision->after_backward({.slot = 1, .found_non_finite = true}));
  EXPECT_TRUE(bound.precision->after_backward({.slot = 2}));
}

TEST(Int8Block, RefusesWhatCannotWork) {
  Bench bench("cpu", "reference", 1);
  for (const char* options : {"block = 0", "gemms = [\"forward\"]", "keep_last = -1", "bits = 4"})
    EXPECT_THROW(bench.make_component<Precision>("int8_block", options), tenon::Error) << options;
}

}  // namespace
