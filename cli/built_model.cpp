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

ab::ModelSize model_size(const Config& config) {
  Runtime runtime;
  runtime.discover(config::plugin_paths(config));
  config::CheckedRun checked = config::check_run(config, runtime.registry(), {});
  const ModelGraph graph = read_model_graph(runtime.registry(), checked);
  const std::int64_t samples = checked.core.run.accumulate * graph.batch * checked.core.parallel.ranks;
  return {graph.trained, samples, samples * graph.tokens_per_sample};
}

}  // namespace tenon::cli
