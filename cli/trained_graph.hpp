// The graph of a run that was trained, in evaluation mode on one rank: on the weights of a checkpoint, fed by
// the reader that training uses; and its validation samples, or those of other data that fits its weights,
// once through it. A run over a mesh is computed with whole tensors. Serves generate, evaluate and
// reproduce.
#pragma once

#include "trained_run.hpp"

#include "loop/batch_reader.hpp"
#include "loop/evaluation.hpp"
#include "loop/graph_edits.hpp"
#include "loop/named_component.hpp"

#include <tenon/executor.hpp>
#include <tenon/transport.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::cli {

/// Elements of a host tensor of real numbers as double.
std::vector<double> real_values(const TensorView& view);

class TrainedGraph {
 public:
  /// Builds the graph; the run's edits of the model are applied to it.
  using Build = std::function<GraphSpec(train::NamedComponent<Model>& model, const DataInfo& data)>;

  /// batch: samples of one forward; 0 = as the data set sets it. Starts with the weights of replica 0. run
  /// and stored outlive this.
  TrainedGraph(TrainedRun& run, models::StoredRun& stored, std::int64_t batch, const Build& build);

  Dataset& data() { return *data_; }
  Device& device() { return *device_; }
  Executor& executor() { return *executor_; }
  ParameterSet& weights() { return *weights_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  std::int64_t slot() const { return stored_.step(); }
  /// Replicas with weights in the checkpoint.
  int replicas() const { return static_cast<int>(stored_.weights().size()); }
  /// Loads the weights of replica `replica`, and the state of its sites.
  void use(int replica);
  void forward(std::int64_t first_sample);
  /// Copy in host memory of a node's value after forward, of its first `rows` rows; kept until the next call.
  TensorView host_copy(const TensorView& value, std::int64_t rows);

 private:
  void load(const std::string& name, const ParameterInfo& info);
  void restore_sites(int replica);

  TrainedRun& run_;
  models::StoredRun& stored_;
  int used_ = -1;
  Mesh mesh_;
  train::NodePlaces places_;
  train::NamedComponent<Model> model_;
  train::NamedComponent<Dataset> data_;
  train::NamedComponent<Device> device_;
  train::NamedComponent<Precision> precision_;
  std::unique_ptr<Precision> plain_;
  std::unique_ptr<LayerFactory> layers_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParameterSet> weights_;
  std::vector<std::string> nodes_;
  std::vector<std::byte> copy_;
};

using Measured = train::EvaluationValue;

/// A node whose value is kept for every sample.
struct Output {
  std::string node, file;
  Shape shape;  ///< of one sample
  std::vector<float> values;
};

/// Losses and metrics over all validation samples; fills `outputs`. Throws Error(kConfig) if there are no
/// such samples, or for nodes that the graph does not have.
std::vector<Measured> evaluate(TrainedGraph& graph, std::vector<Output>& outputs);

/// The metrics of the newest checkpoint of a run under `sets`, by name: "val/loss".
std::map<std::string, double> evaluate_run(const std::string& run, const std::vector<std::string>& sets);

}  // namespace tenon::cli
