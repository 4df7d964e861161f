// One small graph of a layer and its inputs; makers of the usual ones.
#pragma once

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace tenon::testing {

struct LayerCase {
  std::string name;
  std::vector<NodeSpec> nodes;
  std::vector<std::string> pulled;  ///< empty: the graph ends in a loss
  std::vector<TestField> fields;
};
inline std::ostream& operator<<(std::ostream& out, const LayerCase& c) {
  return out << c.name;
}

inline TestField real_field(const std::string& name, const Shape& shape) {
  return {name, shape, DType::kF64, normals(shape.elements(), name)};
}
inline TestField id_field(const std::string& name, const Shape& shape, std::uint64_t bound) {
  return {name, shape, DType::kI32, integers(shape.elements(), bound, name)};
}
/// Targets, every third of which is ignored.
inline TestField masked_targets(const Shape& shape, std::uint64_t classes) {
  TestField field = id_field("targets", shape, classes);
  for (std::size_t i = 1; i < field.values.size(); i += 3) field.values[i] = -1;
  return field;
}
/// Values at least 0.1 away from the kink of ReLU, so that differences do not cross it.
inline TestField off_zero(TestField field) {
  for (double& value : field.values) value += value < 0 ? -0.1 : 0.1;
  return field;
}

/// One layer "n" between real inputs and a pull-back.
inline LayerCase single(std::string name, std::string type, std::vector<NamedOption> options,
                        std::vector<TestField> fields) {
  NodeSpec node{"n", std::move(type), {}, std::move(options)};
  for (const TestField& field : fields) node.inputs.push_back(field.name);
  return {std::move(name), {node}, {"n"}, std::move(fields)};
}

inline LayerCase attention_case(std::string name, std::int64_t time, std::int64_t heads, std::int64_t width,
                                std::int64_t window, bool scaled) {
  const Shape shape{2, time, width};
  return single(std::move(name), "attention", {{"heads", heads}, {"window", window}, {"scaled", scaled}},
                {real_field("q", shape), real_field("k", shape), real_field("v", shape)});
}

inline LayerCase head_case(std::string name, const Shape& x, std::int64_t chunk_rows, TestField targets) {
  return {std::move(name),
          {{"n",
            "head_cross_entropy",
            {"x", "targets"},
            {{"vocabulary", std::int64_t{11}}, {"chunk_rows", chunk_rows}, {"init_scale", 0.7}}}},
          {},
          {real_field("x", x), std::move(targets)}};
}

}  // namespace tenon::testing
