// The interaction layers: PyTorch's outputs and gradients (tests/reference/recsys.safetensors), finite
// differences, kept tensors, and refusals.
#include "reference/recorded.hpp"
#include "testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

struct Kind {
  const char *recorded, *type;
  std::vector<NamedOption> options = {};
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.recorded;
}
const Kind kKinds[] = {{"dot", "dot_interaction"},
                       {"itself", "dot_interaction", {{"itself", true}}},
                       {"cat", "cat_interaction"},
                       {"sum", "sum_interaction"}};

class Interactions : public ::testing::TestWithParam<Kind> {
 protected:
  TestField field(const std::string& tensor, const std::string& name) const {
    const std::string full = std::string(GetParam().recorded) + "." + tensor;
    return {name, recorded_.shape(full), DType::kF64, recorded_.values(full)};
  }
  std::vector<double> recorded(const std::string& tensor) const {
    return recorded_.values(std::string(GetParam().recorded) + "." + tensor);
  }
  NodeSpec node(const std::string& z0, const std::string& z) const {
    return {"n", GetParam().type, {z0, z}, GetParam().options};
  }
  Recorded recorded_{"recsys"};
};

TEST_P(Interactions, GiveTheRecordedOutputsAndGradients) {
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting);
    auto harness =
        graphs.make({node("z0", "z")}, {"n"}, {field("z0", "z0"), field("z", "z"), field("d_y", "d_n")});
    harness->forward();
    harness->backward(1.0, true);
    // A few dozen roundings at most; PyTorch's own float32 loses 1e-7.
    const double bound = graphs.exact() ? 1e-14 : 1e-6;
    EXPECT_LT(relative_error(harness->value("n"), recorded("y")), bound) << setting.name();
    for (const char* name : {"z0", "z"}) {
      EXPECT_LT(relative_error(harness->input_gradient(name), recorded("d_" + std::string(name))), bound)
          << setting.name() << " " << name;
    }
  }
}

// With z0 and z pulled as well, their gradients accumulate.
TEST_P(Interactions, MatchFiniteDifferencesAlsoWhereGradientsAreAdded) {
  Graphs graphs({"fp64", "reference"});
  for (const std::vector<std::string>& pulled : {std::vector<std::string>{"n"}, {"n", "z0", "z"}}) {
    auto harness = graphs.make({node("z0", "z")}, pulled, {field("z0", "z0"), field("z", "z")});
    std::string where;
    EXPECT_LT(harness->finite_difference_error(where), 1e-9) << where;
  }
}

TEST_P(Interactions, NeedOnlyWhatTheyDeclaredToKeep) {
  Graphs graphs({"fp32", "auto"});
  std::map<std::string, std::vector<double>> gradients[2];
  for (const bool keep_values : {false, true}) {
    std::vector<NodeSpec> nodes = {
        {"a", "residual", {"z0", "z0"}, {}}, {"b", "residual", {"z", "z"}, {}}, node("a", "b")};
    std::string last = "n";
    for (int i = 0; i < 6; ++i) {
      const std::string name = "after" + std::to_string(i);
      nodes.push_back({name, "residual", {last, last}, {}});
      last = name;
    }
    auto harness = graphs.make(nodes, {last}, {field("z0", "z0"), field("z", "z")}, keep_values);
    harness->forward();
    harness->backward(1.0, true);
    gradients[keep_values] = harness->all_gradients();
  }
  EXPECT_EQ(gradients[false], gradients[true]);
}

INSTANTIATE_TEST_SUITE_P(Layers, Interactions, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.recorded); });

TEST(InteractionLayers, RefuseWhatCannotWork) {
  Graphs graphs({"fp32", "auto"});
  const TestField z0 = real_field("z0", {2, 3}), z = real_field("z", {2, 4, 3}),
                  wide = real_field("z", {2, 4, 5});
  const struct {
    const char* type;
    std::vector<std::string> inputs;
    std::vector<TestField> fields;
    const char* says;
  } cases[] = {
      {"dot_interaction", {"z0"}, {z0}, "layer 'n': expected 2 inputs (z0, z), found 1"},
      {"dot_interaction",
       {"z0", "z"},
       {z0, wide},
       "layer 'n': expected z0 [batch, width] and z [batch, tables, width] of one width, found [2, 3] and "
       "[2, 4, 5]; "
       "the last bottom layer and the tables must agree"},
      {"sum_interaction", {"z0", "z"}, {z0, wide}, "of one width, found [2, 3] and [2, 4, 5]"},
      {"dot_interaction",
       {"z", "z"},
       {z},
       "layer 'n': expected input 'z0' to be f32 [batch, width], found f32 [2, 4, 3]"},
      {"cat_interaction",
       {"z0", "z0"},
       {z0},
       "layer 'n': expected input 'z' to be f32 [batch, tables, width], found f32 [2, 3]"},
      {"dot_interaction",
       {"ids", "z"},
       {{"ids", {2, 3}, DType::kI32, std::vector<double>(6)}, z},
       "found i32 [2, 3]"},
  };
  for (const auto& c : cases)
    expect_refused(
        [&] {
          graphs.make({{"n", c.type, c.inputs, {}}}, {"n"}, c.fields);
        },
        ErrorKind::kConfig, c.says);
  graphs.make({{"n", "cat_interaction", {"z0", "z"}, {}}}, {"n"}, {z0, wide});
}

}  // namespace
}  // namespace tenon::testing
