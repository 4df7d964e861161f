// Builds a model's graph and reads the facts from it; see built_model.hpp.
#include "built_model.hpp"

#include "base/at.hpp"
#include "graph/graph_build.hpp"
#include "loop/graph_edits.hpp"
#include "loop/named_component.hpp"
#include "loop/parts.hpp"
#include "offline_host.hpp"

#include <tenon/error.hpp>
#include <tenon/runtime.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

namespace tenon::cli {
namespace {

using report::ModelGraph;

/// Releases the memory of a graph that is only looked at.
class BuiltGraph {
 public:
  BuiltGraph(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data)
      : device_(*spec.device), build_(graph::build_graph(spec, graph, data)) {}
  ~BuiltGraph() { graph::release(*build_, device_); }
  BuiltGraph(const BuiltGraph&) = delete;
  BuiltGraph& operator=(const BuiltGraph&) = delete;
  const graph::Build& operator*() const { return *build_; }

 private:
  Device& device_;
  std::unique_ptr<graph::Build> build_;
};

ModelGraph::Value value_of(const graph::GraphValue& value) {
  return {value.name, value.spec.shape.text(), std::string(dtype_name(value.spec.dtype))};
}

ModelGraph::Parameter parameter_of(const ParameterInfo& info) {
  const ParameterSpec& spec = info.spec;
  const char* role = spec.role == Role::kRowTable ? "row table"
                     : spec.role == Role::kBuffer ? "buffer"
                     : spec.trainable             ? "trained"
                                                  : "frozen";
  return {spec.name, spec.shape.text(),     std::string(dtype_name(spec.dtype)),
          role,      spec.shape.elements(), info.users > 1};
}

ModelGraph facts_of(const graph::Build& build, bool has_policy) {
  ModelGraph facts;
  for (int i = 0; i < build.fields; ++i) facts.fields.push_back(value_of(base::at(build.values, i)));
  for (const graph::Node& node : build.nodes) {
    ModelGraph::Node& out = facts.nodes.emplace_back();
    out.name = node.spec.name;
    out.type = node.spec.type;
    out.inputs = node.spec.inputs;
    for (const int output : node.outputs) out.outputs.push_back(value_of(base::at(build.values, output)));
    for (const int p : node.parameters) out.parameters.push_back(parameter_of(base::at(build.parameters, p)));
    for (const auto& site : node.sites) {
      const SiteSpec& declared = site->declared;
      out.sites.push_back({site->module, base::at(build.parameters, site->parameter).spec.name, declared.m,
                           declared.n, declared.k, has_policy && site->kept});
    }
  }
  for (const ParameterInfo& info : build.parameters) {
    const std::int64_t elements = info.spec.shape.elements();
    facts.elements += elements;
    if (info.spec.role != Role::kBuffer && info.spec.trainable) facts.trained += elements;
  }
  return facts;
}

}  // namespace

ModelGraph read_model_graph(Registry& registry, config::CheckedRun& checked) {
  OfflineHost host;
  const std::unique_ptr<FileSystem> files = make_posix_files();
  models::StoredModelPaths stored("[model]", *files, registry, host);
  host.set_stored_models(&stored);
  const auto make = [&]<typename Interface>(std::string_view table) {
    config::CheckedComponent& found = *checked.component(table);
    registry.create_inner(*found.options, host);
    return train::NamedComponent<Interface>(registry.create<Interface>(found.type, *found.options, host));
  };
  const config::CoreSettings& settings = checked.core;
  const train::NamedComponent<Model> model = make.operator()<Model>("model");
  const train::NamedComponent<Dataset> dataset = make.operator()<Dataset>("data");
  const train::NamedComponent<Device> device = make.operator()<Device>("device");
  device->open(
      {0, static_cast<int>(std::max<std::int64_t>(1, settings.device.threads)), settings.device.kernels});
  dataset->open(settings.run.seed_order);
  const DataInfo& data = dataset->info();
  const bool has_policy = checked.component("precision") != nullptr;
  train::NamedComponent<Precision> policy;
  if (has_policy) policy = make.operator()<Precision>("precision");
  const std::unique_ptr<Precision> plain = train::make_plain_precision();
  const std::unique_ptr<LayerFactory> layers = make_registry_layers(registry, host);
  host.set_layers(layers.get());
  // As many axes as the layers' options name, each of one rank.
  const std::size_t axes = settings.parallel.grid.size();
  Mesh mesh(std::vector<int>(axes, 1), 0, nullptr, std::vector<Communicator*>(axes, nullptr));
  train::NodePlaces places;
  places.set_precision(checked.resolved.root().find("precision"));
  host.set_places(&places);
  const GraphSpec edited =
      train::edit_graph([&] { return model->build(data); }, data, checked.model_edits, &places);
  ExecutorSpec spec;
  spec.layers = layers.get();
  spec.device = device.get();
  spec.host = &host;
  spec.precision = has_policy ? policy.get() : plain.get();
  spec.mesh = &mesh;
  spec.seed = settings.run.seed;
  spec.seed_rounding = settings.run.seed_rounding;
  spec.batch = dataset->batch();
  spec.steps = settings.run.steps;
  const BuiltGraph built(spec, edited, data);
  ModelGraph facts = facts_of(*built, has_policy);
  facts.batch = spec.batch;
  facts.tokens_per_sample = data.tokens_per_sample;
  facts.model = checked.component("model")->type;
  if (const auto* precision = checked.component("precision")) facts.precision = precision->type;
  return facts;
}

namespace {

/// The configuration for shapes. With the context in [model], where only [data] has it: rows of learned
/// positions then do not depend on the one token per sample for which the graph is inferred. On the device
/// that is in every build: layers ask it for operators, and no tensor is made on it.
Config config_of_shapes(const Config& config, Registry& registry) {
  Value root = config.root();
  const Origin origin{"tenon check --shapes", 0, 0};
  Value device;
  device.set("type", Value(std::string("cpu")), origin);
  root.set("device", std::move(device), origin);
  const Value* type = config.find("model.type");
  const Value* context = config.find("data.context");
  if (type != nullptr && type->is_text() && context != nullptr && config.find("model.context") == nullptr) {
    for (const tenon_option_v1* option : registry.describe(Model::kKind, type->text()).options) {
      if (std::string_view(option->name) == "context")
        root.find("model")->set("context", *context, context->origin);
    }
  }
  return config.with_root(std::move(root));
}

std::int64_t integer_option(const NodeSpec& node, std::string_view name) {
  for (const NamedOption& option : node.options)
    if (option.name == name) return std::get<std::int64_t>(option.value);
  return 0;
}

/// A Mamba-2 layer beside its products: per token, its convolution, and the update of a state in f32 and the
/// sum over it; per sequence, that state and the inputs that the convolution still sees.
void add_recurrence(report::ModelShapes::Part& part, const graph::Build& build, const graph::Node& node) {
  const auto option = [&](const char* name) { return integer_option(node.spec, name); };
  const std::int64_t width = option("heads") * option("head_width"), states = width * option("state");
  const std::int64_t channels = width + 2 * option("groups") * option("state");
  const DType activations = base::at(build.values, node.inputs[0].value).spec.dtype;
  part.state_bytes +=
      dtype_bytes(DType::kF32, states) + dtype_bytes(activations, (option("conv") - 1) * channels);
  part.flops += 4.0 * static_cast<double>(states) + 2.0 * static_cast<double>(option("conv") * channels);
}

/// What nodes of one token per sample say of a context.
void add_node(report::ModelShapes& shapes, const graph::Build& build, const graph::Node& node,
              std::vector<bool>& counted, std::set<std::pair<std::string, std::string>>& layers) {
  const std::string name = report::part_of_node(node.spec.name);
  auto part = std::ranges::find(shapes.parts, name, &report::ModelShapes::Part::name);
  if (part == shapes.parts.end()) part = shapes.parts.insert(part, {.name = name});
  if (layers.emplace(name, report::layer_of_node(node.spec.name)).second) ++part->layers;
  for (const int p : node.parameters) {
    if (counted[p]) continue;
    counted[p] = true;
    const ParameterSpec& spec = build.declared[p].spec;
    part->parameters += spec.shape.elements();
    if (spec.trainable && spec.role != Role::kBuffer) shapes.trained += spec.shape.elements();
  }
  for (const auto& site : node.sites) {
    const SiteSpec& product = site->declared;
    part->flops += 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n * product.k);
  }
  if (node.spec.type == "mamba2") add_recurrence(*part, build, node);
  if (node.spec.type != "attention") return;
  const std::int64_t window = integer_option(node.spec, "window");
  const auto input = [&](int i) -> const ValueSpec& {
    return base::at(build.values, node.inputs[i].value).spec;
  };
  const std::int64_t bytes =
      dtype_bytes(input(1).dtype, input(1).shape.elements() + input(2).shape.elements());
  part->cache_bytes += bytes;
  part->context_cache_bytes += bytes * (window > 0 ? std::min(window, shapes.context) : shapes.context);
  // q k^T, and its softmax times v.
  part->flops +=
      4.0 * static_cast<double>(input(0).shape.elements()) * report::mean_keys(shapes.context, window);
}

}  // namespace

report::ModelShapes model_shapes(Registry& registry, const Config& written) {
  const Config config = config_of_shapes(written, registry);
  config::CheckedRun checked = config::check_model(config, registry);
  const auto required = [&](const char* key, const char* meaning) {
    const Value* found = config.find(key);
    if (found != nullptr) return found->integer();
    fail_config(fmt::format("tenon check --shapes does not read the data, so it needs {}, {}", key, meaning));
  };
  report::ModelShapes shapes;
  shapes.context = required("model.context", "the tokens of a sample");
  required("model.vocabulary", "the number of tokens that there are");
  OfflineHost host;
  const auto make = [&]<typename Interface>(config::CheckedComponent& found) {
    registry.create_inner(*found.options, host);
    return train::NamedComponent<Interface>(registry.create<Interface>(found.type, *found.options, host));
  };
  config::CheckedComponent& chosen = *checked.component("model");
  const train::NamedComponent<Model> model = make.operator()<Model>(chosen);
  train::NamedComponent<Precision> policy;
  if (auto* precision = checked.component("precision")) policy = make.operator()<Precision>(*precision);
  const std::unique_ptr<Precision> plain = train::make_plain_precision();
  const train::NamedComponent<Device> device = make.operator()<Device>(*checked.component("device"));
  device->open({0, 1, "reference"});
  const std::unique_ptr<LayerFactory> layers = make_registry_layers(registry, host);
  host.set_layers(layers.get());
  train::NodePlaces places;
  host.set_places(&places);
  // One token: parameters do not depend on the time, and products are then per token.
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {1}}, {"targets", DType::kI32, {1}}};
  const GraphSpec graph =
      train::edit_graph([&] { return model->build(data); }, data, checked.model_edits, &places);
  ExecutorSpec spec;
  spec.layers = layers.get();
  spec.device = device.get();
  spec.host = &host;
  spec.precision = policy ? policy.get() : plain.get();
  const std::unique_ptr<graph::Build> build = graph::infer_graph(spec, graph, data);
  shapes.model = chosen.type;
  shapes.activations = dtype_name(spec.precision->activations());
  std::vector<bool> counted(build->declared.size(), false);
  std::set<std::pair<std::string, std::string>> seen;
  for (const graph::Node& node : build->nodes) add_node(shapes, *build, node, counted, seen);
  std::erase_if(shapes.parts, [](const auto& part) { return part.parameters == 0 && part.flops == 0; });
  return shapes;
}

std::vector<StoredTensor> model_parameters(Registry& registry, OfflineHost& host, const GraphSpec& graph,
                                           const DataInfo& data) {
  // The device that is in every build: layers ask it for operators, and no tensor is made on it.
  Value table;
  table.set("type", Value(std::string("cpu")), {});
  const auto options =
      resolve_options(component_request(table, registry.describe(Device::kKind, "cpu"), &registry)).options;
  const train::NamedComponent<Device> device(registry.create<Device>("cpu", *options, host));
  device->open({0, 1, "reference"});
  const std::unique_ptr<Precision> plain = train::make_plain_precision();
  const std::unique_ptr<LayerFactory> layers = make_registry_layers(registry, host);
  host.set_layers(layers.get());
  ExecutorSpec spec;
  spec.layers = layers.get();
  spec.device = device.get();
  spec.host = &host;
  spec.precision = plain.get();
  std::vector<StoredTensor> parameters;
  {
    const std::unique_ptr<graph::Build> build = graph::infer_graph(spec, graph, data);
    for (const graph::Declared& declared : build->declared)
      parameters.push_back({declared.spec.name, declared.spec.dtype, declared.spec.shape});
  }
  host.set_layers(nullptr);
  std::ranges::sort(parameters, {}, &StoredTensor::name);
  return parameters;
}

ab::ModelSize model_size(const Config& config) {
  Runtime runtime;
  runtime.discover(config::plugin_paths(config));
  config::CheckedRun checked = config::check_run(config, runtime.registry(), {});
  const ModelGraph graph = read_model_graph(runtime.registry(), checked);
  const std::int64_t samples = checked.core.run.accumulate * graph.batch * checked.core.parallel.ranks;
  return {graph.trained, samples, samples * graph.tokens_per_sample};
}

}  // namespace tenon::cli
