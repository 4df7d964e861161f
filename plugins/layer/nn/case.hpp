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

/// Documents of the given lengths in every sample, numbered with gaps.
inline TestField document_field(std::int64_t batch, const std::vector<std::int64_t>& lengths) {
  std::vector<double> row;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    row.insert(row.end(), lengths[i], static_cast<double>(i * i));
  TestField field{"documents", {batch, static_cast<std::int64_t>(row.size())}, DType::kI32, {}};
  for (std::int64_t b = 0; b < batch; ++b) field.values.insert(field.values.end(), row.begin(), row.end());
  return field;
}

/// Attention with `kv_heads` heads of k and v, and with documents unless there are no `lengths`.
inline LayerCase grouped_attention_case(std::string name, std::int64_t time, std::int64_t heads,
                                        std::int64_t kv_heads, std::int64_t head_width, std::int64_t window,
                                        const std::vector<std::int64_t>& lengths) {
  const Shape q{2, time, heads * head_width}, keys{2, time, kv_heads * head_width};
  std::vector<TestField> fields = {real_field("q", q), real_field("k", keys), real_field("v", keys)};
  if (!lengths.empty()) fields.push_back(document_field(2, lengths));
  return single(std::move(name), "attention", {{"heads", heads}, {"kv_heads", kv_heads}, {"window", window}},
                std::move(fields));
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

/// Log-probabilities of the ids, which are the pulled value.
inline LayerCase log_probs_case(std::string name, const Shape& x, std::int64_t chunk_rows, TestField ids) {
  LayerCase c = head_case(std::move(name), x, chunk_rows, std::move(ids));
  c.nodes[0].type = "head_log_probs";
  c.pulled = {"n"};
  return c;
}

/// Their sum over the ids that count, as a loss.
inline LayerCase log_probs_loss_case(std::string name, const Shape& x, std::int64_t chunk_rows,
                                     TestField ids) {
  LayerCase c = log_probs_case(std::move(name), x, chunk_rows, std::move(ids));
  c.nodes.push_back({"loss", "weighted_sum", {"n", "targets"}, {{"scale", -1.0}}});
  c.pulled.clear();
  return c;
}

/// A clipped objective whose ratios lie on both sides of both bounds.
inline LayerCase policy_case(std::string name, const Shape& shape, double clip) {
  return {std::move(name),
          {{"n", "policy_loss", {"log_probs", "drawn", "advantages", "targets"}, {{"clip", clip}}}},
          {},
          {real_field("log_probs", shape), real_field("drawn", shape), real_field("advantages", shape),
           masked_targets(shape, 7)}};
}

/// The sum of a cross-entropy and a squared error of the same x.
inline LayerCase two_losses_case(std::string name, std::vector<NamedOption> options) {
  return {std::move(name),
          {{"ce", "softmax_cross_entropy", {"x", "targets"}, {{"metric", std::string("ce")}}},
           {"error", "mse", {"x", "t"}, {{"metric", std::string("error")}}},
           {"n", "add_losses", {"ce", "error"}, std::move(options)}},
          {},
          {real_field("x", {6, 7}), real_field("t", {6, 7}), masked_targets({6}, 7)}};
}

}  // namespace tenon::testing
