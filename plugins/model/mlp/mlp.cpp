// Model `mlp`: writes the chain of layers and checks that the data is for classification.
#include "mlp.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::mlp {
namespace {

const DataField& find_field(const DataInfo& data, std::string_view name) {
  std::string known;
  for (const DataField& field : data.fields) {
    if (field.name == name) return field;
    known += (known.empty() ? "" : ", ") + field.name;
  }
  fail_config(fmt::format("model mlp needs a data field '{}', the data offers: {}", name, known));
}

std::int64_t known_classes(const DataInfo& data) {
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == "classes") return attribute.value;
  }
  return 0;
}

NodeSpec activation(std::string name, std::string input, std::string_view kind) {
  if (kind == "relu") return {std::move(name), "relu", {std::move(input)}, {}};
  return {std::move(name),
          "gelu",
          {std::move(input)},
          {{"approximate", std::string(kind == "gelu_tanh" ? "tanh" : "none")}}};
}

}  // namespace

GraphSpec Mlp::build(const DataInfo& data) {
  const DataField& inputs = find_field(data, "inputs");
  if (!dtype_is_real(inputs.dtype)) {
    fail_config(
        fmt::format("model mlp: data field 'inputs' must be real, found {}", dtype_name(inputs.dtype)));
  }
  const DataField& targets = find_field(data, "targets");
  if (targets.dtype != DType::kI32 || targets.shape.elements() != 1) {
    fail_config(fmt::format("model mlp: data field 'targets' must be one i32 per sample, found {} {}",
                            dtype_name(targets.dtype), targets.shape.text()));
  }
  const std::int64_t known = known_classes(data);
  const std::int64_t classes = options_.has("classes") ? options_.integer("classes") : known;
  if (classes < 2 || classes < known) {
    fail_config(fmt::format("model mlp: option 'classes' must cover the data's {} classes, found {}", known,
                            classes));
  }

  GraphSpec graph;
  std::string value = "flat";
  graph.nodes.push_back({value, "flatten", {"inputs"}, {}});
  std::size_t number = 0;
  for (const std::int64_t width : options_.integers("hidden")) {
    const std::string name = fmt::format("layers.{}", number++);
    graph.nodes.push_back({name, "linear", {value}, {{"features", width}}});
    value = name + ".act";
    graph.nodes.push_back(activation(value, name, options_.text("activation")));
    if (options_.real("dropout") == 0) continue;
    graph.nodes.push_back({name + ".drop", "dropout", {value}, {{"p", options_.real("dropout")}}});
    value = name + ".drop";
  }
  graph.nodes.push_back(
      {"head", "linear", {value}, {{"features", classes}, {"module", std::string("head")}}});
  graph.nodes.push_back({"loss", "softmax_cross_entropy", {"head", "targets"}, {}});
  return graph;
}

}  // namespace tenon::mlp
