// Importance: how much each part of a model does on calibration data. Scores of channels, neurons, heads and
// layers, and the collector that adds them up from the outputs of a forward pass.
#pragma once

#include "shape.hpp"

#include <tenon/tensor.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::minitron {

/// Scores over the calibration data. More is more important; nothing is negative but a depth score, which is
/// what a removal costs.
struct Importance {
  using ByLayer = std::map<std::int64_t, std::vector<double>>;

  std::vector<double> width;  ///< of channels of the residual stream; empty: not measured
  ByLayer hidden;             ///< neurons of an FFN, by number of the layer
  ByLayer heads;              ///< query heads
  ByLayer mamba;              ///< channels of a Mamba layer: heads x head_width

  /// What it costs to leave layers out, by a method: "bi", "loss", "logit_mse", "contiguous".
  struct Depth {
    std::vector<std::int64_t> numbers;  ///< layers, or for "contiguous" the first layers of runs
    std::vector<double> scores;
    std::vector<std::int64_t> removed;  ///< in this order, where each was measured without those before it
    std::int64_t run = 0;               ///< layers of a run ("contiguous")
  };
  std::map<std::string, Depth> depth;
};

/// How a score sums |a|: over the positions of a sample, then over samples.
enum class Sum : std::uint8_t { kMean, kL2 };

/// Scores from the outputs of nodes. One thread.
class Collector {
 public:
  Collector(const DecoderShape& shape, Sum over_sequence, Sum over_batch);

  /// The next outputs are of a batch whose first `samples` samples count.
  void begin(std::int64_t samples) { samples_ = samples; }
  /// Whether the values of this node are needed.
  bool wants(std::string_view node) const { return hooks_.contains(node) || streams_.contains(node); }
  /// `value`: [batch, time, columns] in host memory.
  void see(std::string_view node, const TensorView& value);
  /// Scores of all that was seen. Throws Error(kRun) that names node, layer and element of a score that is
  /// not finite.
  Importance scores() const;

 private:
  enum class Unit : std::uint8_t { kChannels, kNeurons, kHeads, kMamba };
  struct Hook {
    Unit unit = Unit::kChannels;
    const LayerShape* layer = nullptr;  ///< null: the norm before the head
    std::vector<double> sum;
  };

  std::vector<double> magnitudes(const Hook& hook, const double* row, std::int64_t columns) const;
  void add(Hook& hook, const TensorView& value, const std::vector<double>& values) const;
  void compare_stream(const LayerShape* layer, const TensorView& value, std::vector<double> values);
  double score(double sum) const;

  DecoderShape shape_;
  Sum over_sequence_, over_batch_;
  std::map<std::string, Hook, std::less<>> hooks_;
  /// Nodes whose value is the residual stream: after a layer, or null for the embedding.
  std::map<std::string, const LayerShape*, std::less<>> streams_;
  std::vector<double> stream_;  ///< before the layer that runs
  std::map<std::int64_t, double> cosines_;
  std::int64_t samples_ = 0, seen_samples_ = 0, positions_ = 0;
};

/// Name of the node that repeats the in_proj of a Mamba layer, whose products are no output of a node.
std::string in_proj_node(const LayerShape& layer);

}  // namespace tenon::minitron
