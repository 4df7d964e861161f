// Layer `add_losses`: one trained loss of several loss nodes, each of which stays a metric of its own. The
// parts begin their backward with the gradient that this layer passes to their output.
#pragma once

#include "common.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"

#include <array>
#include <vector>

namespace tenon::nn {

class AddLosses final : public layer_common::Loss {
 public:
  static constexpr auto kBalances = option::choice<bool>({{"none", false}, {"equal", true}});
  static constexpr OptionSpec kOptions[] = {
      option::reals("weights", nullptr).doc_text("factor of each input's mean; absent: 1 for all"),
      option::text("balance", "\"none\"")
          .one_of(kBalances)
          .doc_text(
              "equal: every mean is multiplied by first mean / its own, a factor without a gradient, so "
              "that all parts are as large as the first"),
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("losses", "[2]").of("f64").repeated().doc_text("outputs of loss nodes"),
      port::output("loss", "[2]")
          .of("f64")
          .doc_text("sum of the means times the first's count, and that count")};
  static constexpr ComponentInfo kInfo{.id = "add_losses",
                                       .summary = "one trained loss of several, with weights or balanced",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit AddLosses(const Options& options)
      : Loss(options), options_(options), balanced_(options.choice("balance", kBalances)) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  /// {sum, count} of an input.
  std::array<double, 2> part(RunContext& context, int input);
  void write(TensorView to, double first, double second);

  const Options& options_;
  bool balanced_;
  Device* device_ = nullptr;
  std::vector<double> weights_;  ///< of the means
  std::vector<double> factors_;  ///< of the sums, in the newest forward
};

}  // namespace tenon::nn
