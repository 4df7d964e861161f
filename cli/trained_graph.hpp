// The graph of a run that was trained, in evaluation mode on the weights of a checkpoint. Serves generate and
// evaluate.
#pragma once

#include "stored_run.hpp"

#include <tenon/executor.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::cli {

/// Elements of a host tensor of real numbers as double.
std::vector<double> real_values(const TensorView& view);

class TrainedGraph {
 public:
  /// Writes down the graph; the run's edits of the model come on top.
  using Build = std::function<GraphSpec(Model& model, const DataInfo& data)>;

  /// batch: samples of one forward; 0 = as the data set gives them.
  TrainedGraph(StoredRun& run, CheckpointReader& reader, std::int64_t batch, const Build& build);

  Dataset& data() { return *data_; }
  Device& device() { return *device_; }
  Executor& executor() { return *executor_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  void forward(std::int64_t first_sample);
  /// Copy in host memory of a node's value after forward, of its first `rows` rows; kept until the next call.
  TensorView host_copy(const TensorView& value, std::int64_t rows);

 private:
  void load(CheckpointReader& reader);

  Component<Model> model_;
  Component<Dataset> data_;
  Component<Device> device_;
  Component<Precision> precision_;
  std::unique_ptr<Precision> plain_;
  std::unique_ptr<LayerFactory> layers_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParameterSet> weights_;
  std::vector<std::string> nodes_;
  std::vector<std::byte> copy_;
};

}  // namespace tenon::cli
