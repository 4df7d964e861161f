// Evaluation as training does it: batches in order, sums of losses over their counts.
#include "evaluation.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

namespace tenon::cli {
namespace {

class Report final : public MetricReport {
 public:
  explicit Report(std::vector<Measured>& values) : values_(values) {}
  void value(std::string_view metric, double value) override {
    values_.push_back({std::string(metric), value});
  }
  void undefined(std::string_view metric, std::string_view reason) override {
    std::cerr << "tenon: " << metric << " is undefined and not printed: " << reason << "\n";
  }

 private:
  std::vector<Measured>& values_;
};

/// Host memory for one batch of every field.
class Batch {
 public:
  explicit Batch(Executor& executor) {
    for (const TensorView& input : executor.inputs()) {
      memory_.emplace_back(static_cast<std::size_t>(input.bytes()));
      fields_.push_back({memory_.back().data(), input.shape, input.dtype, MemorySpace::kHost});
    }
  }
  std::span<const TensorView> fields() const { return fields_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<TensorView> fields_;
};

class Evaluation {
 public:
  Evaluation(TrainedGraph& graph, std::vector<Output>& outputs)
      : graph_(graph), outputs_(outputs), batch_(graph.executor()) {}

  std::vector<Measured> run() {
    const std::int64_t samples = graph_.data().info().val_samples, batch = graph_.data().batch();
    if (samples == 0)
      fail_config(
          "tenon evaluate: the data has no samples to validate on; raise val_fraction, or name files of "
          "their own");
    Executor& executor = graph_.executor();
    executor.begin_metrics();
    for (std::int64_t first = 0; first < samples; first += batch) {
      const std::int64_t count = std::min(batch, samples - first);
      graph_.data().read({Split::kVal, first, count}, batch_.fields());
      for (std::size_t i = 0; i < batch_.fields().size(); ++i)
        graph_.device().copy(batch_.fields()[i], executor.inputs()[i]);
      graph_.forward(first);
      sums_.resize(executor.losses().size());
      for (std::size_t i = 0; i < sums_.size(); ++i) {
        sums_[i].metric = executor.losses()[i].metric;
        sums_[i].sum += executor.losses()[i].sum;
        sums_[i].count += executor.losses()[i].count;
      }
      for (Output& output : outputs_) keep(output, count);
    }
    std::vector<Measured> values;
    for (const LossValue& sum : sums_) {
      if (sum.count > 0) values.push_back({sum.metric, sum.sum / sum.count});
    }
    Report report(values);
    executor.finish_metrics(nullptr, report);
    return values;
  }

 private:
  void keep(Output& output, std::int64_t count) {
    const TensorView value = graph_.executor().value(output.node);
    if (value.data == nullptr)
      fail_config(fmt::format("tenon evaluate: --write: the graph has no node '{}'; it has {}", output.node,
                              fmt::join(graph_.nodes(), ", ")));
    if (value.shape.rank() == 0 || value.shape[0] != graph_.data().batch())
      fail_config(
          fmt::format("tenon evaluate: --write: node '{}' has a value of shape {}, not one per sample",
                      output.node, value.shape.text()));
    output.shape = Shape(value.shape.extents().subspan(1));
    const std::vector<double> rows = real_values(graph_.host_copy(value, count));
    for (const double row : rows) output.values.push_back(static_cast<float>(row));
  }

  TrainedGraph& graph_;
  std::vector<Output>& outputs_;
  Batch batch_;
  std::vector<LossValue> sums_;
};

}  // namespace

std::vector<Measured> evaluate(TrainedGraph& graph, std::vector<Output>& outputs) {
  return Evaluation(graph, outputs).run();
}

std::map<std::string, double> evaluate_run(const std::string& run, const std::vector<std::string>& sets) {
  StoredRun stored("evaluate", run, sets);
  CheckpointReader reader = stored.checkpoint(std::nullopt);
  TrainedGraph graph(stored, reader, 0, [](Model& model, const DataInfo& data) { return model.build(data); });
  std::vector<Output> none;
  std::map<std::string, double> metrics;
  for (const Measured& value : evaluate(graph, none)) metrics["val/" + value.metric] = value.value;
  return metrics;
}

}  // namespace tenon::cli
