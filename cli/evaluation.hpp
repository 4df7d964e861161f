// The validation samples of a trained run, or of other data that fits its weights, once through its graph.
// Serves evaluate and reproduce.
#pragma once

#include "loop/evaluation.hpp"
#include "trained_graph.hpp"

#include <map>
#include <string>
#include <vector>

namespace tenon::cli {

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
