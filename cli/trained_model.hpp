// Components of a stored run that compute, created and opened as in training, on one rank, and the weights of
// its checkpoint. A run over a mesh is computed with whole tensors. Serves graphs of commands, which it does
// not build.
#pragma once

#include "trained_run.hpp"

#include "loop/graph_edits.hpp"
#include "loop/named_component.hpp"

#include <tenon/dataset.hpp>
#include <tenon/device.hpp>
#include <tenon/executor.hpp>
#include <tenon/language_model.hpp>
#include <tenon/model.hpp>
#include <tenon/precision.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::cli {

class TrainedModel {
 public:
  using Build = std::function<GraphSpec(train::NamedComponent<Model>& model, const DataInfo& data)>;

  /// run and stored outlive this.
  TrainedModel(TrainedRun& run, models::StoredRun& stored);

  train::NamedComponent<Model>& model() { return model_; }
  train::NamedComponent<Dataset>& data() { return data_; }
  Device& device() { return *device_; }
  std::int64_t slot() const { return stored_.step(); }
  /// Replicas with weights in the checkpoint.
  int replicas() const { return static_cast<int>(stored_.weights().size()); }
  /// For a graph that is not trained, in batches of the data set.
  ExecutorSpec spec();
  /// What `build` returns for `data`, with the run's edits of the model.
  GraphSpec graph(const DataInfo& data, const Build& build);
  /// The graph from tokens to logits, with the run's edits of the model. Throws Error(kConfig) that begins
  /// with `command` where the model is no language model.
  LanguageGraph language_graph(const char* command, const DataInfo& data);
  /// Fills `weights` with those of replica `replica`.
  void load(ParameterSet& weights, int replica);
  /// The state of the graph's sites and of the policy (histories of largest values, decisions), which
  /// determines the rounding of operands. Under settings other than the run's there is none, and sites start
  /// as in a first slot.
  void restore_sites(Executor& executor, int replica);

 private:
  void load(ParameterSet& weights, const std::string& name, const ParameterInfo& info);

  TrainedRun& run_;
  models::StoredRun& stored_;
  Mesh mesh_;
  train::NodePlaces places_;
  train::NamedComponent<Model> model_;
  train::NamedComponent<Dataset> data_;
  train::NamedComponent<Device> device_;
  train::NamedComponent<Precision> precision_;
  std::unique_ptr<Precision> plain_;
  std::unique_ptr<LayerFactory> layers_;
};

}  // namespace tenon::cli
