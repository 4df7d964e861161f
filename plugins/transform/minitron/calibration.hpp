// Forward passes of stored models over calibration data: the data set, device and policy that they share, and
// the pass of one graph with its weights, of which single layers can be silenced.
#pragma once

#include "importance.hpp"

#include <tenon/dataset.hpp>
#include <tenon/device.hpp>
#include <tenon/executor.hpp>
#include <tenon/host.hpp>
#include <tenon/precision.hpp>
#include <tenon/stored_model.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::minitron {

/// Components of passes, opened. They outlive every Pass.
class Calibration {
 public:
  /// `samples`: of the training split, in its order; all of them where there are fewer. Null `device`: the
  /// host's. Null `precision`: every product in the type of the weights. Throws Error(kConfig) for data
  /// without samples.
  Calibration(Host& host, Dataset& data, Device* device, Precision* precision, std::int64_t samples,
              std::int64_t threads);

  const DataInfo& data() const { return data_.info(); }
  std::int64_t samples() const { return samples_; }
  std::int64_t batches() const { return (samples_ + data_.batch() - 1) / data_.batch(); }
  std::int64_t samples_of(std::int64_t batch) const;

 private:
  friend class Pass;
  Host& host_;
  Dataset& data_;
  Device* device_;
  Precision* precision_;
  std::int64_t samples_;
};

/// A graph of a stored model with its weights.
class Pass {
 public:
  struct Loss {
    double sum = 0, count = 0;
    double mean() const { return count > 0 ? sum / count : 0; }
  };

  /// `keep`: values that value() has after a pass. Throws Error(kConfig) for data of another vocabulary, and
  /// where parameters of the graph are not those that are stored.
  Pass(Calibration& calibration, const GraphSpec& graph, StoredModel& source, std::vector<std::string> keep);

  /// One batch. `see` gets outputs of nodes that it `wants`, in host memory; null: none are looked at.
  Loss forward(std::int64_t batch, Collector* see);
  /// The mean loss over all batches.
  double loss();
  /// A kept value as real numbers, of the samples that count.
  std::vector<double> value(std::string_view name);
  /// Sets what ends the layer to zero, so that it adds nothing to the residual stream; false: as stored.
  void silence(const LayerShape& layer, bool silent);

 private:
  void load(StoredModel& source);
  TensorView on_host(const TensorView& view, std::vector<std::byte>& memory) const;

  Calibration& calibration_;
  std::unique_ptr<Precision> plain_;
  std::unique_ptr<ParameterSet> weights_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::vector<std::byte>> staging_;  ///< data fields in host memory
  std::vector<std::pair<int, std::vector<std::byte>>> silenced_;
  std::vector<std::byte> copy_;
  std::int64_t samples_ = 0;  ///< that count in the last batch
};

/// The trained graph; where training has added to it, that of the language model with the plain loss.
GraphSpec plain_graph(StoredModel& source, const DataInfo& data);

/// The graph for calibration: plain_graph() with a product for each Mamba layer whose in_proj is looked at.
/// `logits`: name of a value of logits to add; "": none.
GraphSpec calibration_graph(StoredModel& source, const DataInfo& data, const DecoderShape& shape,
                            const std::string& logits);

/// Throws Error(kConfig) where the model predicts calibration data so much worse than a uniform guess that
/// they cannot be of its tokenizer.
void require_known_tokens(double loss, const DataInfo& data, std::string_view folder);

/// Measures what layers cost, by `method` ("loss", "logit_mse", "contiguous"): for a count of layers that go.
/// `iterative`: one goes, and all others are measured again.
Importance::Depth measure_depth(Pass& pass, const Calibration& calibration, const DecoderShape& shape,
                                const std::string& method, std::int64_t count, bool iterative,
                                const std::string& logits);

}  // namespace tenon::minitron
