// For authors of strategies with an anchor: the outer optimizer of DiLoCo (arXiv 2311.08105), a step of the
// anchor along the mean pseudo-gradient g = mean(anchor - x), and the options that choose it.
#pragma once

#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/options.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>
#include <tenon/sync.hpp>

#include <string>

TENON_ABI_BEGIN

enum class OuterRule { kNesterov, kSgd, kAdam };
inline constexpr auto kOuterRules = option::choice<OuterRule>(
    {{"nesterov", OuterRule::kNesterov}, {"sgd", OuterRule::kSgd}, {"adam", OuterRule::kAdam}});
inline constexpr OptionSpec kOuterRule =
    option::text("outer", "\"nesterov\"")
        .one_of(kOuterRules)
        .doc_text("outer optimizer, which updates the anchor: nesterov or sgd with outer_momentum, or adam");
constexpr OptionSpec outer_lr_option(const char* fallback) {
  return option::real("outer_lr", fallback)
      .between(1e-9, 1e3)
      .doc_text("learning rate of the outer optimizer");
}
inline constexpr OptionSpec kOuterMomentum =
    option::real("outer_momentum", "0.9").between(0, 0.999999).doc_text("momentum of nesterov and sgd");
inline constexpr OptionSpec kOuterBetas = option::reals("outer_betas", "[0.9, 0.95]")
                                              .between(0, 0.999999)
                                              .doc_text("decay rates of adam's moments");
inline constexpr OptionSpec kOuterEps =
    option::real("outer_eps", "0.1").between(1e-12, 1e3).doc_text("eps of adam; the default is the paper's");

class OuterUpdate {
 public:
  /// Reads the options above, all of which the strategy declares.
  explicit OuterUpdate(const Options& options)
      : rule_(options.choice("outer", kOuterRules)),
        lr_(options.real("outer_lr")),
        momentum_(options.real("outer_momentum")),
        eps_(options.real("outer_eps")) {
    const std::span<const double> betas = options.reals("outer_betas");
    if (betas.size() != 2)
      fail_config("outer_betas has " + std::to_string(betas.size()) +
                  " numbers; expected two, e.g. [0.9, 0.95]");
    beta1_ = betas[0];
    beta2_ = betas[1];
  }

  /// Creates the parameter sets of its state, which the core saves and restores.
  void start(Replica& replica) {
    device_ = &replica.device();
    if (rule_ == OuterRule::kAdam) {
      first_ = &replica.create_set("outer_exp_avg");
      second_ = &replica.create_set("outer_exp_avg_sq");
    } else if (momentum_ > 0) {
      first_ = &replica.create_set("outer_momentum");
    }
  }

  /// Returns true if the anchor simply becomes the mean of the weights.
  bool assigns() const { return rule_ == OuterRule::kSgd && lr_ == 1 && momentum_ == 0; }

  /// anchor: elements from `begin` of arena `arena`, updated in place with the pseudo-gradient g. count:
  /// number of this step for these elements, from 1. g is only read.
  void step(int arena, std::int64_t begin, TensorView anchor, TensorView g, std::int64_t count) {
    const auto state = [&](ParameterSet* set) {
      if (set == nullptr) return TensorView{};
      TensorView view = set->arena(arena);
      view.data = static_cast<std::byte*>(view.data) + dtype_bytes(view.dtype, begin);
      view.shape = anchor.shape;
      return flat_reals(view);
    };
    if (rule_ == OuterRule::kAdam) {
      AdamWStep step;
      step.lr = lr_, step.beta1 = beta1_, step.beta2 = beta2_, step.eps = eps_;
      step.count = count;
      const TensorView moments[] = {state(first_), state(second_)};
      return update(anchor, g, moments, AdamWRule(step));
    }
    SgdStep step;
    step.lr = lr_, step.momentum = momentum_;
    step.nesterov = rule_ == OuterRule::kNesterov && momentum_ > 0;
    const TensorView momentum[] = {state(first_)};
    with_sgd_rule(step, [&](const auto& rule) { update(anchor, g, momentum, rule); });
  }

 private:
  template <class Rule>
  void update(TensorView anchor, TensorView g, std::span<const TensorView> state, const Rule& rule) const {
    update_slice(*device_, {.weights = flat_reals(anchor), .gradients = flat_reals(g), .state = state}, rule);
  }

  OuterRule rule_;
  double lr_, momentum_, beta1_ = 0, beta2_ = 0, eps_;
  Device* device_ = nullptr;
  ParameterSet *first_ = nullptr, *second_ = nullptr;  ///< momentum, or Adam's two moments
};

TENON_ABI_END
