// Every layer against numbers that PyTorch computed
// (tests/reference/{layers,sequence_layers,attention}.safetensors), in float64 and float32, with the plain
// loops and with the fastest kernels.
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
  const char* file = "layers";
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
  using Pair = std::vector<Integer>;
  const NamedOption overlapping[] = {{"kernel", Pair{3, 2}}, {"stride", Pair{2, 1}}, {"padding", Pair{1, 1}}};
  const std::vector<RecordedCase> images = {
      {"rms_norm", "rms_norm", {}, {"x"}, {{"w", "weight"}}},
      {"silu", "silu", {}, {"x"}},
      {"squared_relu", "squared_relu", {}, {"x"}},
      {"conv2d",
       "conv2d",
       {{"features", Integer{4}}, {"kernel", Pair{3}}, {"padding", Pair{1}}},
       {"x"},
       {{"w", "weight"}, {"b", "bias"}}},
      {"conv2d_strided",
       "conv2d",
       {{"features", Integer{5}}, {"kernel", Pair{3, 2}}, {"stride", Pair{2, 1}}, {"padding", Pair{1, 0}}},
       {"x"},
       {{"w", "weight"}, {"b", "bias"}}},
      {"conv2d_dilated",
       "conv2d",
       {{"features", Integer{3}},
        {"kernel", Pair{3}},
        {"dilation", Pair{2, 3}},
        {"padding", Pair{2, 3}},
        {"bias", false}},
       {"x"},
       {{"w", "weight"}}},
      {"conv2d_groups",
       "conv2d",
       {{"features", Integer{9}},
        {"kernel", Pair{3}},
        {"groups", Integer{3}},
        {"stride", Pair{2}},
        {"padding", Pair{1}},
        {"chunk", Integer{2}}},
       {"x"},
       {{"w", "weight"}, {"b", "bias"}}},
      {"conv2d_depthwise",
       "conv2d",
       {{"features", Integer{4}},
        {"kernel", Pair{3}},
        {"groups", Integer{4}},
        {"padding", Pair{1}},
        {"bias", false}},
       {"x"},
       {{"w", "weight"}}},
      {"conv2d_point",
       "conv2d",
       {{"features", Integer{3}}, {"kernel", Pair{1}}, {"stride", Pair{2}}, {"bias", false}},
       {"x"},
       {{"w", "weight"}}},
      {"max_pool2d", "max_pool2d", {{"kernel", Pair{2}}}, {"x"}},
      {"max_pool2d_overlapping", "max_pool2d", {std::begin(overlapping), std::end(overlapping)}, {"x"}},
      {"max_pool2d_dilated",
       "max_pool2d",
       {{"kernel", Pair{2}}, {"stride", Pair{1}}, {"dilation", Pair{3}}},
       {"x"}},
      {"average_pool2d", "average_pool2d", {}, {"x"}},
      {"average_pool2d_padding", "average_pool2d", {std::begin(overlapping), std::end(overlapping)}, {"x"}},
      {"average_pool2d_no_padding",
       "average_pool2d",
       {overlapping[0], overlapping[1], overlapping[2], {"count_padding", false}},
       {"x"}},
      {"average_pool2d_global", "average_pool2d", {{"global", true}}, {"x"}},
  };
  cases.insert(cases.end(), images.begin(), images.end());
  for (const char* name : {"batch_norm", "batch_norm_rows"}) {
    cases.push_back(
        {name, "batch_norm", {{"eps", 1e-3}, {"momentum", 0.3}}, {"x"}, {{"w", "weight"}, {"b", "bias"}}});
  }
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

/// The cases of sequence_layers.py.
std::vector<RecordedCase> recorded_sequence_cases() {
  using Integer = std::int64_t;
  std::vector<RecordedCase> cases = {
      {"rotary", "rotary", {{"heads", Integer{2}}}, {"x"}},
      {"rotary_wide", "rotary", {{"heads", Integer{1}}, {"base", 500000.0}}, {"x"}},
      {"rotary_positions", "rotary", {{"heads", Integer{3}}, {"base", 100.0}}, {"x", "positions"}},
      {"positions_given", "positions", {{"context", Integer{9}}}, {"x", "positions"}, {{"w", "weight"}}},
      {"gate_silu", "gate", {}, {"a", "b"}},
      {"gate_gelu", "gate", {{"map", std::string("gelu")}}, {"a", "b"}},
      {"gate_none", "gate", {{"map", std::string("none")}}, {"a", "b"}},
      {"head_log_probs",
       "head_log_probs",
       {{"vocabulary", Integer{11}}, {"chunk_rows", Integer{4}}},
       {"x", "ids"},
       {{"w", "weight"}}},
  };
  for (RecordedCase& c : cases) c.file = "sequence_layers";
  return cases;
}

/// Cases of tests/reference/attention.safetensors with as many keys as queries and no hidden key.
std::vector<RecordedCase> recorded_attention() {
  std::vector<RecordedCase> cases;
  const struct {
    const char* name;
    std::int64_t heads, kv_heads, window;
    bool packed, scaled;
  } table[] = {{"grouped", 4, 2, 0, false, true},
               {"grouped_unscaled", 6, 2, 0, false, false},
               {"one_key_head", 4, 1, 0, false, true},
               {"grouped_window", 6, 3, 3, false, true},
               {"documents", 2, 0, 0, true, true},
               {"documents_window", 2, 0, 3, true, true},
               {"documents_of_one_token", 2, 0, 0, true, true},
               {"documents_grouped", 4, 2, 4, true, true}};
  for (const auto& row : table) {
    cases.push_back(
        {row.name,
         "attention",
         {{"heads", row.heads}, {"kv_heads", row.kv_heads}, {"window", row.window}, {"scaled", row.scaled}},
         {"q", "k", "v"}});
    cases.back().file = "attention";
    if (row.packed) cases.back().inputs.push_back("documents");
  }
  return cases;
}

bool holds_integers(std::string_view name) {
  return name == "ids" || name == "targets" || name == "positions" || name == "documents" || name == "mask";
}

struct Setting {
  const char *precision, *kernels;
};
constexpr Setting kSettings[] = {
    {"fp64", "reference"}, {"fp64", "auto"}, {"fp32", "reference"}, {"fp32", "auto"}};

class RecordedLayers : public ::testing::TestWithParam<RecordedCase> {
 protected:
  TestField field(const std::string& tensor, const std::string& name) const {
    return field(recorded_, tensor, name);
  }
  static TestField field(const Recorded& recorded, const std::string& tensor, const std::string& name) {
    return {name, recorded.shape(tensor), holds_integers(name) ? DType::kI32 : DType::kF64,
            recorded.values(tensor)};
  }
  Recorded recorded_{"layers"};
};

TEST_P(RecordedLayers, GiveTheRecordedOutputsAndGradients) {
  const RecordedCase& c = GetParam();
  const Recorded recorded(c.file);
  const std::string prefix = std::string(c.name) + ".";
  for (const Setting& setting : kSettings) {
    Bench bench("cpu", setting.kernels, 1);
    const auto precision = bench.make_component<Precision>(setting.precision, "");
    const double bound = precision->activations() == DType::kF64 ? c.bound64 : c.bound32;
    NodeSpec node{"n", c.type, {}, c.options};
    std::vector<TestField> fields;
    for (const char* input : c.inputs) {
      node.inputs.emplace_back(input);
      fields.push_back(field(recorded, prefix + input, input));
    }
    fields.push_back(field(recorded, prefix + "d_y", "d_n"));
    LayerHarness harness(
        {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
        {node}, {"n"}, fields);
    for (const auto& [name, member] : c.parameters) {
      harness.set_parameter(std::string("n.") + member, recorded.values(prefix + name));
    }
    harness.forward();
    harness.backward(1.0, true);
    const std::string where = std::string(setting.precision) + " " + setting.kernels + " ";
    EXPECT_LT(relative_error(harness.value("n"), recorded.values(prefix + "y")), bound) << where << "y";
    for (const char* input : c.inputs) {
      if (!recorded.has(prefix + "d_" + input)) continue;
      EXPECT_LT(relative_error(harness.input_gradient(input), recorded.values(prefix + "d_" + input)), bound)
          << where << "d_" << input;
    }
    for (const auto& [name, member] : c.parameters) {
      EXPECT_LT(
          relative_error(harness.gradient(std::string("n.") + member), recorded.values(prefix + "d_" + name)),
          bound)
          << where << "d_" << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, RecordedLayers, ::testing::ValuesIn(recorded_cases()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Sequences, RecordedLayers, ::testing::ValuesIn(recorded_sequence_cases()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Attention, RecordedLayers, ::testing::ValuesIn(recorded_attention()),
                         [](const auto& info) { return std::string(info.param.name); });

class RecordedLosses : public RecordedLayers {};

TEST_F(RecordedLosses, GiveTheRecordedMeanAndGradient) {
  const std::pair<std::string, double> cases[] = {{"softmax_ce", 0},
                                                  {"softmax_ce_ignore", 0},
                                                  {"softmax_ce_far", 0},
                                                  {"softmax_ce_smooth", 0.1},
                                                  {"softmax_ce_flat", 1}};
  for (const auto& [name, smoothing] : cases) {
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
          {{"n", "softmax_cross_entropy", {"logits", "targets"}, {{"label_smoothing", smoothing}}}}, {},
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

TEST_F(RecordedLosses, GiveTheRecordedSquaredError) {
  for (const Setting& setting : kSettings) {
    Bench bench("cpu", setting.kernels, 1);
    const auto precision = bench.make_component<Precision>(setting.precision, "");
    const double bound = precision->activations() == DType::kF64 ? 1e-12 : 2e-6;
    LayerHarness harness(
        {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
        {{"n", "mse", {"x", "t"}, {}}}, {}, {field("mse.x", "x"), field("mse.t", "t")});
    const double sum = harness.forward(), count = harness.executor().losses()[0].count;
    harness.backward(1.0 / count, true);
    EXPECT_EQ(count, 20);
    const double expected = recorded_.values("mse.loss")[0];
    EXPECT_NEAR(sum / count, expected, bound * expected);
    for (const char* input : {"x", "t"}) {
      EXPECT_LT(
          relative_error(harness.input_gradient(input), recorded_.values(std::string("mse.d_") + input)),
          bound);
    }
  }
}

TEST_F(RecordedLosses, OfSequencesGiveTheRecordedMeanAndGradients) {
  const Recorded recorded("sequence_layers");
  using Reals = std::vector<double>;
  const auto part = [](const char* name, const char* type, const char* target) {
    return NodeSpec{name, type, {"logits", target}, {{"metric", std::string(name)}}};
  };
  const struct {
    std::string name;
    std::vector<NodeSpec> nodes;
    std::vector<const char*> fields;
  } cases[] = {
      {"weighted_sum",
       {{"n", "weighted_sum", {"values", "mask", "weights"}, {{"scale", -1.5}}}},
       {"values", "weights", "mask"}},
      {"weighted_sum_all", {{"n", "weighted_sum", {"values"}, {}}}, {"values"}},
      {"add_losses",
       {part("ce", "softmax_cross_entropy", "targets"),
        part("error", "mse", "t"),
        {"n", "add_losses", {"ce", "error"}, {{"weights", Reals{0.7, 1.9}}}}},
       {"logits", "targets", "t"}},
      {"add_losses_equal",
       {part("ce", "softmax_cross_entropy", "targets"),
        part("error", "mse", "t"),
        {"n", "add_losses", {"ce", "error"}, {{"balance", std::string("equal")}}}},
       {"logits", "targets", "t"}},
  };
  for (const auto& c : cases)
    for (const Setting& setting : kSettings) {
      Bench bench("cpu", setting.kernels, 1);
      const auto precision = bench.make_component<Precision>(setting.precision, "");
      const double bound = precision->activations() == DType::kF64 ? 1e-12 : 2e-6;
      std::vector<TestField> fields;
      for (const char* name : c.fields) fields.push_back(field(recorded, c.name + "." + name, name));
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          c.nodes, {}, fields);
      const double sum = harness.forward(), count = harness.executor().losses().back().count;
      harness.backward(1.0 / count, true);
      const double expected = recorded.values(c.name + ".loss")[0];
      EXPECT_NEAR(sum / count, expected, bound * std::abs(expected)) << c.name;
      for (const char* name : c.fields) {
        if (!recorded.has(c.name + ".d_" + name)) continue;
        EXPECT_LT(relative_error(harness.input_gradient(name), recorded.values(c.name + ".d_" + name)), bound)
            << c.name << " " << name;
      }
    }
}

TEST_F(RecordedLosses, OfPoliciesGiveTheRecordedMeanAndGradients) {
  const Recorded recorded("policy_loss");
  for (const auto& [name, clip] : {std::pair("usual", 0.2), std::pair("wide", 3.0), std::pair("none", 0.0)})
    for (const Setting& setting : kSettings) {
      Bench bench("cpu", setting.kernels, 1);
      const auto precision = bench.make_component<Precision>(setting.precision, "");
      const double bound = precision->activations() == DType::kF64 ? 1e-12 : 2e-6;
      std::vector<TestField> fields;
      for (const char* input : {"log_probs", "drawn", "advantages", "targets"})
        fields.push_back(field(recorded, std::string(name) + "." + input, input));
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          {{"n", "policy_loss", {"log_probs", "drawn", "advantages", "targets"}, {{"clip", clip}}}}, {},
          fields);
      const double sum = harness.forward(), count = harness.executor().losses().back().count;
      harness.backward(1.0 / count, true);
      const double expected = recorded.values(std::string(name) + ".loss")[0];
      EXPECT_NEAR(sum / count, expected, bound * std::abs(expected)) << name;
      for (const char* input : {"log_probs", "drawn", "advantages"})
        EXPECT_LT(
            relative_error(harness.input_gradient(input), recorded.values(std::string(name) + ".d_" + input)),
            bound)
            << name << " " << input;
    }
}

TEST_F(RecordedLosses, LeaveOutTargetsThatAreNoNumbers) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp64", "");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  LayerHarness harness(
      {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
      {{"n", "mse", {"x", "t"}, {}}}, {},
      {{"x", {2, 2}, DType::kF64, {1, 2, 3, 4}}, {"t", {2, 2}, DType::kF64, {0, nan, 5, nan}}});
  EXPECT_EQ(harness.forward(), 1.0 + 4.0);
  EXPECT_EQ(harness.executor().losses()[0].count, 2);
  harness.backward(1.0, true);
  EXPECT_EQ(harness.input_gradient("x"), (std::vector<double>{2, 0, -4, 0}));
}

class RecordedRunningValues : public RecordedLayers {};

TEST_F(RecordedRunningValues, AreStagedPublishedAndUsedInEvaluation) {
  for (const std::string name : {"batch_norm", "batch_norm_rows"}) {
    for (const Setting& setting : kSettings) {
      Bench bench("cpu", setting.kernels, 1);
      const auto precision = bench.make_component<Precision>(setting.precision, "");
      const double bound = precision->activations() == DType::kF64 ? 1e-12 : 2e-6;
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          {{"n", "batch_norm", {"x"}, {{"eps", 1e-3}, {"momentum", 0.3}}}}, {"n"}, {field(name + ".x", "x")});
      harness.set_parameter("n.weight", recorded_.values(name + ".w"));
      harness.set_parameter("n.bias", recorded_.values(name + ".b"));
      for (const std::string member : {"mean", "var"})
        harness.set_parameter("n.running_" + member, recorded_.values(name + ".before_" + member));
      harness.forward();
      EXPECT_EQ(harness.parameter("n.running_mean"), recorded_.values(name + ".before_mean"))
          << "a slot that is not applied changes nothing";
      harness.executor().publish(harness.weights());
      for (const std::string member : {"mean", "var"}) {
        EXPECT_LT(relative_error(harness.parameter("n.running_" + member),
                                 recorded_.values(name + ".after_" + member)),
                  bound)
            << setting.precision << member;
      }
      harness.forward({.training = false});
      EXPECT_LT(relative_error(harness.value("n"), recorded_.values(name + ".y_eval")), bound);
    }
  }
}

}  // namespace
}  // namespace tenon::testing
