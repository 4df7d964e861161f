// The graph of a run that was trained, in evaluation mode on one rank: on the weights of a checkpoint, fed by
// the reader that training uses; and its validation samples, or those of other data that fits its weights,
// once through it. Serves evaluate and reproduce.
#pragma once

#include "trained_model.hpp"

#include "loop/batch_reader.hpp"
#include "loop/evaluation.hpp"

#include <tenon/executor.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::cli {

class TrainedGraph {
 public:
  /// Starts with the weights of replica 0. run and stored outlive this.
  TrainedGraph(TrainedRun& run, models::StoredRun& stored, const TrainedModel::Build& build);

  Dataset& data() { return *model_.data(); }
  Device& device() { return model_.device(); }
  Executor& executor() { return *executor_; }
  ParameterSet& weights() { return *weights_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  std::int64_t slot() const { return model_.slot(); }
  int replicas() const { return model_.replicas(); }
  /// Loads the weights of replica `replica`, and the state of its sites.
  void use(int replica);
  /// Copy in host memory of a node's value after forward, of its first `rows` rows; kept until the next call.
  TensorView host_copy(const TensorView& value, std::int64_t rows);

 private:
  int used_ = -1;
  TrainedModel model_;
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
