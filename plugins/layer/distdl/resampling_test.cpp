// Transposed convolutions and interpolations on one rank: PyTorch's outputs and gradients
// (tests/reference/resampling.safetensors), and refusals.
#include "reference/recorded.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

using Integers = std::vector<std::int64_t>;

struct RecordedCase {
  std::string name;
  NodeSpec node;
  bool weight = false, bias = false;
};
void PrintTo(const RecordedCase& c, std::ostream* out) {
  *out << c.name;
}

NodeSpec layer(const char* type, std::vector<NamedOption> options) {
  return {"n", type, {"x"}, std::move(options)};
}

RecordedCase transposed(const char* name, std::int64_t features, const Integers& kernel,
                        std::vector<NamedOption> more, bool bias = true) {
  RecordedCase c{std::string("transposed_") + name,
                 layer("conv_transpose", {{"features", features}, {"kernel", kernel}, {"bias", bias}}), true,
                 bias};
  c.node.options.insert(c.node.options.end(), more.begin(), more.end());
  return c;
}

std::vector<RecordedCase> recorded_cases() {
  using Integer = std::int64_t;
  const auto stride = [](Integers values) { return NamedOption{"stride", values}; };
  const auto padding = [](Integers values) { return NamedOption{"padding", values}; };
  const auto dilation = [](Integers values) { return NamedOption{"dilation", values}; };
  const auto more = [](Integers values) { return NamedOption{"output_padding", values}; };
  const auto groups = [](Integer value) { return NamedOption{"groups", value}; };
  std::vector<RecordedCase> cases = {
      transposed("1d", 4, {3}, {stride({2}), padding({1}), more({1})}),
      transposed("1d_dilated", 3, {3}, {dilation({3}), padding({2}), more({2})}),
      transposed("1d_gaps", 2, {2}, {stride({4}), more({3})}),
      transposed("1d_cropped", 2, {3}, {stride({2}), padding({3})}, false),
      transposed("2d", 4, {3, 3}, {stride({2}), padding({1}), more({1})}),
      transposed("2d_mixed", 3, {2, 3}, {stride({3, 1}), padding({0, 1}), dilation({1, 2}), more({2, 1})}),
      transposed("2d_groups", 9, {3, 2},
                 {stride({2}), padding({1, 0}), groups(3), NamedOption{"chunk", Integer{2}}}),
      transposed("2d_depthwise", 4, {2}, {stride({2}), groups(4)}, false),
      transposed("2d_points", 2, {1}, {stride({3, 2}), more({2, 1})}),
      transposed("3d", 3, {2}, {stride({2}), NamedOption{"chunk", Integer{1}}}),
      transposed("3d_groups", 6, {3, 2, 1},
                 {stride({2, 1, 2}), padding({1, 0, 0}), more({1, 0, 1}), groups(2)}),
  };
  const std::pair<const char*, Integers> scales[] = {{"1d", {2}},    {"1d_four", {4}},    {"1d_one", {3}},
                                                     {"2d", {2, 3}}, {"2d_rows", {3, 1}}, {"3d", {2, 3, 2}}};
  for (const char* mode : {"nearest", "linear", "linear_aligned"})
    for (const auto& [name, scale] : scales)
      cases.push_back({std::string(mode) + "_" + name,
                       layer("upsample", {{"scale", scale}, {"mode", std::string(mode)}})});
  return cases;
}

/// float32: PyTorch's own loses 4e-7. bfloat16 rounds x, the products, d_y and the sums of them to 8 bits
/// each.
struct Setting {
  const char *precision, *kernels;
  double bound;
};
constexpr Setting kSettings[] = {{"fp64", "reference", 1e-12},
                                 {"fp64", "auto", 1e-12},
                                 {"fp32", "reference", 2e-6},
                                 {"fp32", "auto", 2e-6},
                                 {"bf16", "auto", 0.03}};

class Resampling : public ::testing::TestWithParam<RecordedCase> {};
INSTANTIATE_TEST_SUITE_P(All, Resampling, ::testing::ValuesIn(recorded_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Resampling, GivesPyTorchsOutputsAndGradients) {
  const Recorded recorded("resampling");
  const RecordedCase& c = GetParam();
  const std::string prefix = c.name + ".";
  const auto field = [&](const char* tensor, const char* as) {
    return TestField{as, recorded.shape(prefix + tensor), DType::kF64, recorded.values(prefix + tensor)};
  };
  for (const Setting& setting : kSettings) {
    Bench bench("cpu", setting.kernels, 1);
    const auto precision = bench.make_component<Precision>(setting.precision, "");
    LayerHarness harness(
        {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
        {c.node}, {"n"}, {field("x", "x"), field("d_y", "d_n")});
    if (c.weight) harness.set_parameter("n.weight", recorded.values(prefix + "w"));
    if (c.bias) harness.set_parameter("n.bias", recorded.values(prefix + "b"));
    harness.forward();
    harness.backward(1.0, true);
    const auto expect = [&](const std::vector<double>& found, const char* tensor) {
      EXPECT_LT(relative_error(found, recorded.values(prefix + tensor)), setting.bound)
          << setting.precision << " " << setting.kernels << " " << tensor;
    };
    expect(harness.value("n"), "y");
    expect(harness.input_gradient("x"), "d_x");
    // A second backward adds to the first one's result.
    for (const double times : {1.0, 2.0}) {
      for (const auto& [name, tensor] : {std::pair{"n.weight", "d_w"}, {"n.bias", "d_b"}}) {
        if (!recorded.has(prefix + tensor)) continue;
        std::vector<double> gradient = harness.gradient(name);
        for (double& element : gradient) element /= times;
        expect(gradient, tensor);
      }
      harness.forward();
      harness.backward(1.0, false);
    }
  }
}

/// The refusal of a layer over x; "" where it is accepted.
std::string refusal(const NodeSpec& node, const Shape& x) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp64", "");
  try {
    LayerHarness harness(
        {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
        {node}, {"n"}, {{"x", x, DType::kF64, normals(x.elements(), "x")}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

NodeSpec transposed_layer(std::vector<NamedOption> more) {
  NodeSpec node = layer("conv_transpose", {{"features", std::int64_t{4}}, {"kernel", Integers{3}}});
  node.options.insert(node.options.end(), more.begin(), more.end());
  return node;
}

TEST(ConvTranspose, RefusesWhatCannotBe) {
  const Shape x{2, 4, 5, 6};
  EXPECT_EQ(
      refusal(transposed_layer({{"output_padding", Integers{0, 1}}}), x),
      "layer 'n': output_padding must be smaller than the stride or the dilation, which are 1 and 1 along "
      "dimension 3; found 1");
  EXPECT_EQ(refusal(transposed_layer({{"output_padding", Integers{1}}, {"dilation", Integers{2}}}), x), "");
  EXPECT_EQ(
      refusal(transposed_layer({{"padding", Integers{4, 0}}}), x),
      "layer 'n': padding 4 leaves out as many of the 7 outputs on both sides along dimension 2 of x [2, "
      "4, 5, 6], so that none is left; lower it");
  EXPECT_EQ(refusal(transposed_layer({{"padding", Integers{3}}}), x), "");
  EXPECT_EQ(refusal(transposed_layer({{"groups", std::int64_t{3}}}), x),
            "layer 'n': groups = 3 must divide the 4 channels of x and the 4 features");
  EXPECT_EQ(refusal(transposed_layer({{"stride", Integers{1, 2, 3}}}), x),
            "layer 'n': option 'stride' takes one number or 2, one for each dimension after the channels; "
            "found 3");
  EXPECT_EQ(refusal(transposed_layer({}), {2, 4}),
            "layer 'n': expected x [batch, channels, 1 to 3 extents], found shape [2, 4]");
}

TEST(Upsample, RefusesWhatCannotBe) {
  const Shape x{2, 3, 4, 5};
  EXPECT_THAT(refusal(layer("upsample", {{"scale", Integers{2, 0}}}), x), ::testing::HasSubstr("scale"));
  EXPECT_THAT(refusal(layer("upsample", {{"scale", Integers{2}}, {"mode", std::string("cubic")}}), x),
              ::testing::AllOf(::testing::HasSubstr("cubic"), ::testing::HasSubstr("linear_aligned")));
  EXPECT_EQ(refusal(layer("upsample", {{"scale", Integers{2, 2, 2}}}), x),
            "layer 'n': option 'scale' takes one number or 2, one for each dimension after the channels; "
            "found 3");
  EXPECT_EQ(refusal(layer("upsample", {{"scale", Integers{2}}}), {2, 3}),
            "layer 'n': expected x [batch, channels, 1 to 3 extents], found shape [2, 3]");
}

// A neighbour whose weight is zero does not affect an output.
TEST(Upsample, CopiesWhereAnOutputLiesOnAnInput) {
  const double inf = std::numeric_limits<double>::infinity();
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp64", "");
  LayerHarness harness(
      {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
      {layer("upsample", {{"scale", Integers{3}}, {"mode", std::string("linear")}})}, {"n"},
      {{"x", {1, 1, 3}, DType::kF64, {0.1, inf, 0.3}}});
  harness.forward();
  EXPECT_EQ(harness.value("n"), (std::vector<double>{0.1, 0.1, inf, inf, inf, inf, inf, 0.3, 0.3}));
}

}  // namespace
}  // namespace tenon::testing
