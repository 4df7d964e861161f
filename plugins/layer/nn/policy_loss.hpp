// Layer `policy_loss`: the clipped objective of policy gradients (Schulman et al. 2017, arXiv 1707.06347, eq.
// 7) over the tokens that a policy drew:
//
//     rho = exp(log_probs - drawn)
//     L = -sum over counted places of min(rho A, clip(rho, 1 - clip, 1 + clip) A)
//
// The host computes it: places are few beside the logits that they come from.
#pragma once

#include "layer_common/options.hpp"
#include "losses.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tenon::nn {

class PolicyLoss final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("clip", "0.2")
          .between(0, 1000)
          .doc_text("a ratio beyond 1 - clip or 1 + clip earns nothing more"),
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("log_probs", "[...]").of("f32 f64 activations"),
      port::input("drawn", "[...]")
          .of("i64 f32 f64 activations")
          .doc_text("log-probabilities when the tokens were drawn; i64: the bits of f64, whose digits the "
                    "activations' type does not cut"),
      port::input("advantages", "[...]").of("i64 f32 f64 activations").doc_text("i64: as in drawn"),
      port::input("targets", "[...]").of("i32").doc_text("places with a negative number do not count"),
      port::output("loss", "[2]").of("f64").doc_text("sum over places that count, and their number")};
  static constexpr ComponentInfo kInfo{.id = "policy_loss",
                                       .summary = "loss: clipped ratio of probabilities times advantage",
                                       .options = kOptions,
                                       .ports = kPorts};

  PolicyLoss(const Options& options, Host& host)
      : host_(host), clip_(options.real("clip")), metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  /// Reads the inputs into the vectors below.
  void read(RunContext& context);
  void read(RunContext& context, int input, std::vector<double>& to);
  /// Distances of the ratios from 1, for the run's metrics: once for each micro-batch.
  void record(RunContext& context);
  /// Writes host values, rounded, to the workspace `rounded_` and returns it.
  TensorView rounded(RunContext& context, const std::vector<double>& values);
  /// Adds the terms to a gradient.
  void pass(RunContext& context, const GradientSink& sink);

  Host& host_;
  double clip_;
  std::string metric_;
  double seed_ = 1;
  std::int64_t elements_ = 0;
  DType type_ = DType::kF32;  ///< of the terms
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  LossSum sum_;
  WorkspaceRef wide_, rounded_, narrow_;
  HostStage stage_, targets_stage_, rounded_stage_;
  std::vector<double> ratios_, advantages_, terms_;
  std::vector<bool> counts_;
  std::pair<std::int64_t, int> recorded_{-1, -1};  ///< slot and micro-batch
};

}  // namespace tenon::nn
