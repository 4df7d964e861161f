// Layer `weighted_sum`: the loss scale * sum of values * weights over the places that a mask counts, for
// losses of values that the graph has for every token, such as log-probabilities. The host computes it:
// values are few beside the logits that they come from.
#pragma once

#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"
#include "losses.hpp"

#include <span>
#include <vector>

namespace tenon::nn {

class WeightedSum final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("scale", "1").doc_text("factor of every term; -1 makes a loss of log-probabilities"),
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("values", "[...]").of("f32 f64 activations"),
      port::input("mask", "[...]")
          .of("i32 f32 f64 activations")
          .optional()
          .doc_text("i32, as targets are: places with a negative number do not count; absent: all count"),
      port::input("weights", "[...]")
          .of("i32 f32 f64 activations")
          .optional()
          .doc_text("real; absent: 1. Mask and weights are told apart by their type"),
      port::output("loss", "[2]").of("f64").doc_text("sum over places that count, and their number")};
  static constexpr ComponentInfo kInfo{.id = "weighted_sum",
                                       .summary = "loss: weighted sum of values where a mask counts them",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit WeightedSum(const Options& options) : Loss(options), scale_(options.real("scale")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  /// The mask in host memory; empty: all count.
  std::span<const std::int32_t> mask(RunContext& context);

  double scale_;
  int mask_ = -1, weights_ = -1;  ///< inputs
  Device* device_ = nullptr;
  HostTerms terms_;
  HostStage mask_stage_;
  std::vector<double> values_, factors_;
};

}  // namespace tenon::nn
