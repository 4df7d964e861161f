// The graph says which weight a head reads: a node that is no embedding and has the weight of one. How the
// result says that it is untied depends on the model. One with an option `tied` gets tied = false, and is
// expected to name the weight after the head's node. Any other one gets [[model.override]] of the head's
// option `weight`, as a user would write it.
#include "untie.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <variant>

namespace tenon::transform_basic {
namespace {

struct TiedHead {
  std::vector<std::string> nodes;  ///< that read the embedding's weight, and are none
  std::string shared;              ///< name of that weight
  std::string own;                 ///< name that it gets for the heads
};

std::string text_option(const NodeSpec& node, std::string_view name) {
  for (const NamedOption& option : node.options) {
    const std::string* text = std::get_if<std::string>(&option.value);
    if (option.name == name && text != nullptr) return *text;
  }
  return {};
}

const StoredTensor* find(const StoredModel& source, std::string_view name) {
  for (const StoredTensor& tensor : source.parameters())
    if (tensor.name == name) return &tensor;
  return nullptr;
}

std::string type_of(const StoredModel& source) {
  const Value* type = source.description().model.find("type");
  return type != nullptr && type->is_text() ? type->text() : "without a type";
}

/// The graph of a language model for one token; its length changes no head.
GraphSpec language_graph(StoredModel& source) {
  DataInfo data;
  for (const char* name : {"tokens", "targets"}) data.fields.push_back({name, DType::kI32, Shape{1}});
  data.attributes = source.description().attributes;
  try {
    return source.graph(data);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    fail_config(fmt::format(
        "transform untie: model {} of {} gives no graph for tokens and targets, so it has no head "
        "to untie: {}",
        type_of(source), source.folder(), error.what()));
  }
}

TiedHead tied_head(StoredModel& source) {
  const GraphSpec graph = language_graph(source);
  std::vector<std::string> embeddings;
  for (const NodeSpec& node : graph.nodes) {
    if (node.type != "embedding") continue;
    const std::string weight = text_option(node, "weight");
    embeddings.push_back(weight.empty() ? node.name + ".weight" : weight);
  }
  TiedHead head;
  for (const NodeSpec& node : graph.nodes) {
    const std::string weight = text_option(node, "weight");
    if (node.type == "embedding" || std::ranges::find(embeddings, weight) == embeddings.end()) continue;
    if (!head.shared.empty() && head.shared != weight)
      fail_config(
          fmt::format("transform untie: model {} of {} has heads that share two embeddings, '{}' and '{}'; "
                      "expected one",
                      type_of(source), source.folder(), head.shared, weight));
    head.shared = weight;
    head.nodes.push_back(node.name);
  }
  if (head.nodes.empty())
    fail_config(fmt::format(
        "transform untie: model {} of {} has no tied head: no node but embeddings has a weight of "
        "those of its embeddings ({})",
        type_of(source), source.folder(),
        embeddings.empty() ? "none" : fmt::format("{}", fmt::join(embeddings, ", "))));
  head.own = head.nodes[0] + ".weight";
  if (find(source, head.shared) == nullptr)
    fail_config(fmt::format("transform untie: {} has no parameter '{}', which node '{}' of its model reads",
                            source.folder(), head.shared, head.nodes[0]));
  if (find(source, head.own) != nullptr)
    fail_config(fmt::format("transform untie: {} already has a parameter '{}'", source.folder(), head.own));
  return head;
}

void untie_in(Value& model, const TiedHead& head) {
  if (Value* tied = model.find("tied")) {
    *tied = Value(false);
    return;
  }
  Value::Array overrides;
  if (const Value* before = model.find("override")) overrides = before->array();
  for (const std::string& node : head.nodes) {
    Value edit;
    edit.set("match", Value(node), {});
    edit.set("weight", Value(head.own), {});
    overrides.push_back(std::move(edit));
  }
  model.set("override", Value(std::move(overrides)), {});
}

/// By name ascending, as the parameters of a stored model are.
std::vector<StoredTensor> with_own(const StoredModel& source, const TiedHead& head) {
  std::vector<StoredTensor> parameters = parameters_of(source);
  StoredTensor own = *find(source, head.shared);
  own.name = head.own;
  const auto before = std::ranges::upper_bound(parameters, own.name, {}, &StoredTensor::name);
  parameters.insert(before, std::move(own));
  return parameters;
}

}  // namespace

TransformedModel Untie::describe(std::span<StoredModel* const> sources) {
  StoredModel& source = only_source(sources, kInfo.id);
  const TiedHead head = tied_head(source);
  TransformedModel result{source.description(), with_own(source, head)};
  untie_in(result.description.model, head);
  return result;
}

void Untie::run(std::span<StoredModel* const> sources, TensorWriter& out) {
  StoredModel& source = only_source(sources, kInfo.id);
  const TiedHead head = tied_head(source);
  for (const StoredTensor& tensor : with_own(source, head))
    copy_stored(source, tensor.name == head.own ? head.shared : tensor.name, tensor, out);
}

}  // namespace tenon::transform_basic
