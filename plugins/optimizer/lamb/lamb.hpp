// Optimizer `lamb` (You et al., ICLR 2020, Algorithm 2): Adam's step, rescaled per tensor to the size of its
// weights:
//   m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
//   r = m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps) + decay w
//   w <- w - lr phi(|w|) / |r| r          phi(z) = z within norm_range; the ratio is 1 where |w| or |r| is 0
// Norms cover whole tensors: the squares of a sharded tensor are summed over the model grid.
#pragma once

#include <tenon/ops/formula.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <vector>

namespace tenon::lamb {

class Lamb final : public OptimizerBase, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-3").at_least(0).doc_text("learning rate before the schedule"),
      option::reals("betas", "[0.9, 0.999]")
          .between(0, 0.9999999)
          .doc_text("decay of the mean and of the mean square"),
      option::real("eps", "1e-6").at_least(0).doc_text("added to the root of the mean square"),
      option::real("weight_decay", "0.01")
          .at_least(0)
          .doc_text("times the weight, added to the direction; biases and norms are left alone"),
      option::reals("norm_range", nullptr)
          .at_least(0)
          .doc_text("lowest and highest norm of the weights that phi passes on; absent: any"),
      option::reals("trust_range", nullptr)
          .at_least(0)
          .doc_text("lowest and highest trust ratio phi(|w|) / |r|; absent: any"),
      option::boolean("adapt_undecayed", "true")
          .doc_text("use the trust ratio for tensors without weight decay (biases, norms) too"),
  };
  static constexpr ComponentInfo kInfo{.id = "lamb",
                                       .summary = "Adam with a trust ratio per tensor",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Lamb(const Options& options);
  std::span<const StateSlot> slots() const override;
  bool elementwise() const override { return false; }
  void bind(const OptimizerSetup& setup) override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

 private:
  struct Range {
    double low = 0, high = 0;
    bool given = false;
    double clamp(double value) const;
  };
  static Range range(const Options& options, const char* name);
  /// Runs on the device, with its own summation order.
  void update(FormulaOps& formulas, const UpdateContext& context, const ParameterSlice& slice);
  /// Returns the rate times the trust ratio, from this rank's squares.
  double scaled_rate(const UpdateContext& context, const ParameterSlice& slice, double squares[2]) const;
  template <typename T>
  void update(const UpdateContext& context, const ParameterSlice& slice);
  /// Sums the squares of a sharded tensor over the grid.
  void join(int parameter, double squares[2]) const;

  double beta1_, beta2_, eps_, decay_;
  Range norm_range_, trust_range_;
  bool adapt_undecayed_;
  OptimizerSetup setup_;
  std::vector<double> partial_;  ///< squares of weights and directions, two per block
};

}  // namespace tenon::lamb
