// The run's configuration decides everything here but the mesh, which has one rank.
#include "trained_model.hpp"

#include "graph/row_table.hpp"
#include "loop/parts.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tenon::cli {

TrainedModel::TrainedModel(TrainedRun& run, models::StoredRun& stored)
    : run_(run),
      stored_(stored),
      model_(run.make<Model>("model")),
      data_(run.make<Dataset>("data")),
      device_(run.make<Device>("device")),
      plain_(train::make_plain_precision()) {
  const config::CoreSettings& settings = run.checked().core;
  device_->open(
      {0, static_cast<int>(std::max<std::int64_t>(1, settings.device.threads)), settings.device.kernels});
  data_->open(settings.run.seed_order);
  if (run.checked().component("precision") != nullptr) precision_ = run.make<Precision>("precision");
  layers_ = make_registry_layers(run.registry(), run.host());
  run.host().set_layers(layers_.get());
  places_.set_precision(run.checked().resolved.root().find("precision"));
  run.host().set_places(&places_);
  // As many axes as the layers' options name, each of one rank.
  const std::size_t axes = settings.parallel.grid.size();
  mesh_ = Mesh(std::vector<int>(axes, 1), 0, nullptr, std::vector<Communicator*>(axes, nullptr));
}

ExecutorSpec TrainedModel::spec() {
  const config::CoreSettings& settings = run_.checked().core;
  ExecutorSpec spec;
  spec.layers = layers_.get();
  spec.device = device_.get();
  spec.host = &run_.host();
  spec.precision = precision_ ? precision_.get() : plain_.get();
  spec.mesh = &mesh_;
  spec.seed = settings.run.seed;
  spec.seed_rounding = settings.run.seed_rounding;
  spec.batch = data_->batch();
  spec.steps = settings.run.steps;
  spec.training = false;
  return spec;
}

GraphSpec TrainedModel::graph(const DataInfo& data, const Build& build) {
  return train::edit_graph([&] { return build(model_, data); }, data, run_.checked().model_edits);
}

LanguageGraph TrainedModel::language_graph(const char* command, const DataInfo& data) {
  LanguageGraph result;
  result.graph = graph(data, [&](train::NamedComponent<Model>& model, const DataInfo& seen) {
    auto* language = static_cast<LanguageModel*>(model->query(LanguageModel::kId));
    if (language == nullptr) {
      fail_config(
          fmt::format("{}: run {} trains the model '{}', which is no language model (it does not "
                      "offer {})",
                      command, run_.folder(), run_.type("model"), LanguageModel::kId));
    }
    LanguageGraph found = model.guarded(*language)->language_graph(seen);
    result.logits = found.logits;
    return std::move(found.graph);
  });
  return result;
}

void TrainedModel::load(ParameterSet& weights, int replica) {
  const train::StoredWeights& from = stored_.weights().at(replica);
  for (const ParameterInfo& info : weights.parameters()) load(weights, from.tensor(info.spec.name), info);
  weights.touch(-1);
}

void TrainedModel::load(ParameterSet& weights, const std::string& name, const ParameterInfo& info) {
  if (RowTable* table = weights.table(info.index)) {
    graph::for_each_chunk(*table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      stored_.checkpoint().read_slice(name, Shape{ids.front(), 0}, rows);
      table->fill(ids, rows);
    });
    return;
  }
  std::vector<std::byte> bytes(dtype_bytes(info.spec.dtype, info.spec.shape.elements()));
  const TensorView host{bytes.data(), info.spec.shape, info.spec.dtype, MemorySpace::kHost};
  stored_.checkpoint().read(name, host);
  device_->copy(host, weights.tensor(info.index));
}

void TrainedModel::restore_sites(Executor& executor, int replica) {
  const auto visit = [&](StateVisitor& visitor) {
    if (precision_) {
      visitor.enter("precision");
      precision_->state(visitor);
      visitor.leave();
    }
    visitor.enter("sites0");
    executor.state(visitor);
    visitor.leave();
  };
  train::CheckpointSource source(
      stored_.checkpoint(), *device_,
      fmt::format("rank{}/", replica * run_.checked().core.parallel.ranks_per_replica()));
  train::StateCollector kept;
  visit(kept);
  if (!source.holds(kept)) return;
  train::StateRestorer restorer(source);
  visit(restorer);
}

}  // namespace tenon::cli
