// Every layer against numbers that PyTorch computed (tests/reference/layers.safetensors), in float64 and
// float32, with the plain loops and with the fastest kernels.
#include "cases.hpp"

#include "reference/recorded.hpp"

#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

struct RecordedCase {
  const char* name;
  const char* type;
  std::vector<NamedOption> options;
  std::vector<const char*> inputs;
  std::vector<std::pair<const char*, const char*>> parameters = {};  ///< recorded name, member of the node
  double bound64 = 1e-12, bound32 = 2e-6;
};
std::ostream& operator<<(std::ostream& out, const RecordedCase& c) {
  return out << c.name;
}

std::vector<RecordedCase> recorded_cases() {
  using Integer = std::int64_t;
  std::vector<RecordedCase> cases = {
      {"linear", "linear", {{"features", Integer{4}}, {"bias", false}}, {"x"}, {{"w", "weight"}}},
      {"linear_bias", "linear", {{"features", Integer{4}}}, {"x"}, {{"w", "weight"}, {"b", "bias"}}},
      {"embedding", "embedding", {{"rows", Integer{7}}, {"width", Integer{3}}}, {"ids"}, {{"w", "weight"}}},
      // The row of mean 1000 costs both implementations digits.
      {"layer_norm", "layer_norm", {}, {"x"}, {{"w", "weight"}, {"b", "bias"}}, 1e-10, 5e-5},
      {"gelu_tanh", "gelu", {}, {"x"}},
      {"gelu_exact", "gelu", {{"approximate", std::string("none")}}, {"x"}},
  };
  const std::pair<const char*, Integer> windows[] = {{"global", 0}, {"window3", 3}, {"window1", 1}};
  static std::vector<std::string> names;  // keeps the texts that the cases point to
  names.reserve(6);
  for (const auto& [label, window] : windows) {
    for (const bool scaled : {false, true}) {
      names.push_back(std::string("attention_") + label + (scaled ? "_scaled" : ""));
      cases.push_back({names.back().c_str(),
                       "attention",
                       {{"heads", Integer{2}}, {"window", window}, {"scaled", scaled}},
                       {"q", "k", "v"}});
    }
  }
  return cases;
}

struct Setting {
  const char *precision, *kernels;
};
constexpr Setting kSettings[] = {
    {"fp64", "reference"}, {"fp64", "auto"}, {"fp32", "reference"}, {"fp32", "auto"}};

class RecordedLayers : public ::testing::TestWithParam<RecordedCase> {
 protected:
  TestField field(const std::string& tensor, const std::string& name) const {
    const auto values = recorded_.values(tensor);
    Shape shape = recorded_.shape(tensor);
    return {name, shape, name == "ids" || name == "targets" ? DType::kI32 : DType::kF64, values};
  }
  Recorded recorded_{"layers"};
};

TEST_P(RecordedLayers, GiveTheRecordedOutputsAndGradients) {
  const RecordedCase& c = GetParam();
  const std::string prefix = std::string(c.name) + ".";
  for (const Setting& setting : kSettings) {
    Bench bench("cpu", setting.kernels, 1);
    const auto precision = bench.make_component<Precision>(setting.precision, "");
    const double bound = precision->activations() == DType::kF64 ? c.bound64 : c.bound32;
    NodeSpec node{"n", c.type, {}, c.options};
    std::vector<TestField> fields;
    for (const char* input : c.inputs) {
      node.inputs.emplace_back(input);
      fields.push_back(field(prefix + input, input));
    }
    fields.push_back(field(prefix + "d_y", "d_n"));
    LayerHarness harness(
        {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
        {node}, {"n"}, fields);
    for (const auto& [name, member] : c.parameters) {
      harness.set_parameter(std::string("n.") + member, recorded_.values(prefix + name));
    }
    harness.forward();
    harness.backward(1.0, true);
    const std::string where = std::string(setting.precision) + " " + setting.kernels + " ";
    EXPECT_LT(relative_error(harness.value("n"), recorded_.values(prefix + "y")), bound) << where << "y";
    for (const char* input : c.inputs) {
      if (!recorded_.has(prefix + "d_" + input)) continue;
      EXPECT_LT(relative_error(harness.input_gradient(input), recorded_.values(prefix + "d_" + input)), bound)
          << where << "d_" << input;
    }
    for (const auto& [name, member] : c.parameters) {
      EXPECT_LT(relative_error(harness.gradient(std::string("n.") + member),
                               recorded_.values(prefix + "d_" + name)),
                bound)
          << where << "d_" << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, RecordedLayers, ::testing::ValuesIn(recorded_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

class RecordedLosses : public RecordedLayers {};

TEST_F(RecordedLosses, GiveTheRecordedMeanAndGradient) {
  for (const std::string name : {"softmax_ce", "softmax_ce_ignore", "softmax_ce_far"}) {
    for (const Setting& setting : kSettings) {
      Bench bench("cpu", setting.kernels, 1);
      const auto precision = bench.make_component<Precision>(setting.precision, "");
      const bool exact = precision->activations() == DType::kF64;
      const double bound = exact ? 1e-12 : 2e-6;
      // Logits near 1000 leave half a unit in the last place of their log-sum-exp, 3e-5, in a float32
      // gradient.
      const double gradient_bound = !exact && name == "softmax_ce_far" ? 6e-5 : bound;
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          {{"n", "softmax_cross_entropy", {"logits", "targets"}, {}}}, {},
          {field(name + ".logits", "logits"), field(name + ".targets", "targets")});
      const double sum = harness.forward(), count = harness.executor().losses()[0].count;
      harness.backward(1.0 / count, true);
      const double expected = recorded_.values(name + ".loss")[0];
      EXPECT_NEAR(sum / count, expected, bound * std::abs(expected)) << name;
      EXPECT_LT(relative_error(harness.input_gradient("logits"), recorded_.values(name + ".d_logits")),
                gradient_bound)
          << name;
    }
  }
}

}  // namespace
}  // namespace tenon::testing
