// Cache, state and FLOPs are those of `tenon check --shapes`, so that both commands say the same of a model.
#include "transform_costs.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "built_model.hpp"
#include "report/model_graph.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace tenon::cli {
namespace {

/// A configuration of the model alone, with the context and vocabulary that its data had.
Config config_of(const ModelDescription& model, std::int64_t context) {
  const Origin origin{"tenon transform --dry-run", 0, 0};
  Value table = model.model, root;
  if (table.find("vocabulary") == nullptr)
    for (const DataAttribute& attribute : model.attributes)
      if (attribute.name == "vocabulary") table.set("vocabulary", Value(attribute.value), origin);
  table.set("context", Value(context), origin);
  root.set("model", std::move(table), origin);
  return Config::parse("", origin.file, {}).with_root(std::move(root));
}

std::string ratio_of(double after, double before) {
  return before > 0 ? fmt::format("{:.3f}", after / before) : "";
}

}  // namespace

ModelCosts costs_of(Registry& registry, const ModelDescription& model,
                    std::span<const StoredTensor> parameters, std::optional<std::int64_t> context) {
  ModelCosts costs;
  for (const StoredTensor& tensor : parameters) {
    costs.parameters += tensor.shape.elements();
    costs.weight_bytes += dtype_bytes(tensor.dtype, tensor.shape.elements());
  }
  if (const Value* own = model.model.find("context"); own != nullptr && !context) context = own->integer();
  if (!context) {
    costs.unknown = "the model has no context of its own; give --context N for cache, state and FLOPs";
    return costs;
  }
  try {
    const report::ModelShapes shapes = model_shapes(registry, config_of(model, *context));
    const report::ModelShapes::Part total = shapes.total();
    costs.context = shapes.context;
    costs.cache_bytes = total.context_cache_bytes;
    costs.state_bytes = total.state_bytes;
    costs.flops = total.flops;
    costs.activations = shapes.activations;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    costs.unknown =
        fmt::format("cache, state and FLOPs are counted for language models alone: {}", error.what());
  }
  return costs;
}

std::string costs_text(const ModelCosts& before, const ModelCosts& after) {
  std::vector<std::vector<std::string>> rows{{"", "before", "after", "after / before"}};
  const auto add = [&](std::string what, std::int64_t from, std::int64_t to) {
    rows.push_back({std::move(what), report::grouped_digits(from), report::grouped_digits(to),
                    ratio_of(static_cast<double>(to), static_cast<double>(from))});
  };
  add("parameters", before.parameters, after.parameters);
  add("bytes of weights", before.weight_bytes, after.weight_bytes);
  const bool known = before.context > 0 && after.context > 0;
  if (known) {
    add(fmt::format("bytes of keys and values, {} tokens in {}", report::grouped_digits(after.context),
                    after.activations),
        before.cache_bytes, after.cache_bytes);
    add("bytes of recurrent state", before.state_bytes, after.state_bytes);
    rows.push_back({"forward FLOPs per token", fmt::format("{:.4g}", before.flops),
                    fmt::format("{:.4g}", after.flops), ratio_of(after.flops, before.flops)});
  }
  std::string text = ab::text_table(rows, "  ");
  const std::string& unknown = before.context > 0 ? after.unknown : before.unknown;
  return known ? text : text + unknown + "\n";
}

void add_costs(JsonWriter& json, const ModelCosts& costs) {
  json.member("parameters", costs.parameters);
  json.member("weight_bytes", costs.weight_bytes);
  if (costs.context == 0) return;
  json.member("context", costs.context);
  json.member("activations", costs.activations);
  json.member("cache_bytes", costs.cache_bytes);
  json.member("state_bytes", costs.state_bytes);
  json.member("forward_flops_per_token", costs.flops);
}

}  // namespace tenon::cli
