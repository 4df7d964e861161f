// Small graphs of one `mamba2` layer "n" for the tests of this folder, with sizes that are no multiples of
// each other and weights large enough to leave the linear range of every map.
#pragma once

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// A layer of so many heads in groups on x [batch, time, width], with documents unless there are no lengths.
struct MambaCase {
  std::string name;
  std::int64_t heads = 4, groups = 2, head_width = 3, state = 5, conv = 4, chunk = 3;
  std::int64_t batch = 2, time = 8, width = 6;
  std::vector<std::int64_t> lengths = {};
  std::vector<double> dt_limits = {0, 0};
  double norm_eps = 0.3;  ///< groups of a few small values bend within the steps of differences below it

  std::vector<NamedOption> options() const {
    return {{"heads", heads},        {"groups", groups},    {"head_width", head_width}, {"state", state},
            {"conv", conv},          {"chunk", chunk},      {"dt_limits", dt_limits},   {"init_scale", 0.4},
            {"out_init_scale", 0.4}, {"norm_eps", norm_eps}};
  }
  std::vector<TestField> fields() const {
    const Shape x{batch, time, width};
    std::vector<TestField> all = {{"x", x, DType::kF64, normals(x.elements(), "x")}};
    if (lengths.empty()) return all;
    TestField documents{"documents", {batch, time}, DType::kI32, {}};
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::size_t i = 0; i < lengths.size(); ++i)
        documents.values.insert(documents.values.end(), lengths[i], static_cast<double>(i * i + b));
    all.push_back(documents);
    return all;
  }
  std::vector<NodeSpec> nodes() const {
    NodeSpec node{"n", "mamba2", {"x"}, options()};
    if (!lengths.empty()) node.inputs.push_back("documents");
    return {node};
  }
};
inline std::ostream& operator<<(std::ostream& out, const MambaCase& c) {
  return out << c.name;
}

inline std::vector<MambaCase> mamba_cases() {
  return {{.name = "groups"},
          {.name = "one_group", .heads = 3, .groups = 1, .head_width = 2, .chunk = 64},
          {.name = "a_group_per_head", .heads = 3, .groups = 3, .chunk = 1},
          {.name = "documents", .chunk = 4, .time = 11, .lengths = {4, 1, 2, 4}},
          {.name = "bounded_steps", .time = 6, .dt_limits = {0.02, 0.04}},
          {.name = "no_reach", .heads = 2, .groups = 1, .conv = 1, .time = 5, .lengths = {3, 2}}};
}

/// Parameters that start at one value get others, so that no gradient is right by chance.
inline void spread_parameters(LayerHarness& harness) {
  for (const auto& [name, centre, width] :
       {std::tuple{"n.D", 0.8, 0.3}, {"n.norm.weight", 1.0, 0.3}, {"n.conv1d.bias", 0.1, 0.3}}) {
    std::vector<double> values = normals(static_cast<std::int64_t>(harness.parameter(name).size()), name);
    for (double& value : values) value = centre + width * value;
    harness.set_parameter(name, values);
  }
  // Decays between 0.3 and 1, so that states matter and pass through chunks.
  std::vector<double> rates = harness.parameter("n.A_log");
  for (std::size_t i = 0; i < rates.size(); ++i) rates[i] = 0.4 * static_cast<double>(i % 5);
  harness.set_parameter("n.A_log", rates);
  std::vector<double> steps = harness.parameter("n.dt_bias");
  for (double& step : steps) step += 2.5;
  harness.set_parameter("n.dt_bias", steps);
}

}  // namespace tenon::testing
