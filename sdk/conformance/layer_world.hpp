// A layer under test in a small graph on the real executor: its inputs are data fields "in0", "in1", ..., its
// outputs go to a random pull-back, or it is the graph's own loss, or (metrics) it is beside one.
#pragma once

#include "subject.hpp"

#include <tenon/testing/layer_harness.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::conformance {

/// One way to build the graph.
struct LayerBuild {
  std::string precision = "fp64";
  std::string kernels = "reference";
  bool training = true;
  bool keep_values = true;
  bool surrounded = false;     ///< copies before real inputs and after outputs, whose memory is reused
  bool shared_inputs = false;  ///< the pull-back reads the real inputs, too
  std::int64_t batch = 0;      ///< 0: as the inputs say
  std::int64_t positions = 0;  ///< more: of a sequence of a stepwise graph, not for training
  std::int64_t time = 0;       ///< second extent of the inputs; 0: as they say
  int draw = 0;                ///< which random inputs
  Device* device = nullptr;    ///< null: the subject's
};

using Numbers = std::vector<double>;
using NamedNumbers = std::map<std::string, Numbers>;

class LayerWorld {
 public:
  /// Finds inputs that the layer takes; fail() with every refusal if there are none.
  explicit LayerWorld(Subject& subject);

  /// Trains an objective of its own.
  bool is_loss() const { return ending_ == Ending::kLoss; }
  /// Its outputs have gradients: neither a loss nor a metric.
  bool has_outputs() const { return ending_ == Ending::kPulled; }
  /// A MetricLayer.
  bool is_metric() const { return metric_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  /// Whether the layer of the newest build answers to `interface_id`. The harness still exists.
  bool offers(std::string_view interface_id) const;
  std::string field(std::size_t input) const { return "in" + std::to_string(input); }

  std::unique_ptr<testing::LayerHarness> build(const LayerBuild& how);
  /// As build(), for untried inputs. Throws Error(kConfig) if the layer refuses them.
  void try_inputs(const std::vector<Input>& inputs);
  /// Reproducible values for one input.
  Numbers draw(const Input& input, std::size_t number, int draw) const;
  void load(testing::LayerHarness& harness, int draw) const;

  /// All results of a forward: outputs, losses and measured values.
  Numbers look(testing::LayerHarness& harness, const RunSpec& run);
  /// One forward and one backward, and every gradient.
  static NamedNumbers gradients(testing::LayerHarness& harness, const RunSpec& run);

 private:
  enum class Ending { kPulled, kLoss, kBeside };
  class Factory;
  std::unique_ptr<testing::LayerHarness> build(const LayerBuild& how, const std::vector<Input>& inputs,
                                               const std::vector<std::string>& outputs);
  bool takes_in_f32(const std::vector<Input>& inputs);
  void find_outputs();

  Subject& subject_;
  std::unique_ptr<LayerFactory> factory_;
  std::vector<testing::Made<Precision>> precisions_;
  Ending ending_ = Ending::kPulled;
  bool metric_ = false;
  std::vector<Input> inputs_;
  std::vector<std::string> outputs_{"subject"};
};

/// Fails unless both hold the same names and the same bits.
void same_gradients(const NamedNumbers& found, const NamedNumbers& expected, const std::string& what);

}  // namespace tenon::conformance
