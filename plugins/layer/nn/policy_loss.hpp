// Layer `policy_loss`: the clipped objective of policy gradients (Schulman et al. 2017, arXiv 1707.06347, eq.
// 7) over the tokens that a policy drew:
//
//     rho = exp(log_probs - drawn)
//     L = -sum over counted places of min(rho A, clip(rho, 1 - clip, 1 + clip) A)
//
// The host computes it: places are few beside the logits that they come from.
#pragma once

#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"
#include "losses.hpp"

#include <utility>
#include <vector>

namespace tenon::nn {

class PolicyLoss final : public layer_common::Loss {
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

  PolicyLoss(const Options& options, Host& host) : Loss(options), host_(host), clip_(options.real("clip")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  /// Reads the inputs into the vectors below.
  void read(RunContext& context);
  void read(RunContext& context, int input, std::vector<double>& to);
  /// Distances of the ratios from 1, for the run's metrics: once for each micro-batch.
  void record(RunContext& context);

  Host& host_;
  double clip_;
  Device* device_ = nullptr;
  HostTerms host_terms_;
  HostStage stage_, targets_stage_;
  std::vector<double> ratios_, advantages_, terms_;
  std::vector<bool> counts_;
  std::pair<std::int64_t, int> recorded_{-1, -1};  ///< slot and micro-batch
};

}  // namespace tenon::nn
