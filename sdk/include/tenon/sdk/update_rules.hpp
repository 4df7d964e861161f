// The rules of the optimizers of this tree, each written once (<tenon/sdk/update_rule.hpp>), in the order of
// operations of torch.optim. Every operation is rounded once. No expression has two operands
// that compute, so that every compiler records the same steps: devices recognise them.
#pragma once

#include <tenon/abi.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

TENON_ABI_BEGIN

/// Hyper-parameters of one AdamW update (Loshchilov and Hutter, ICLR 2019: decoupled decay).
struct AdamWStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  std::int64_t count = 1;     ///< this update is number `count`, from 1
  double gradient_scale = 1;  ///< multiplies the gradient as it is read (unscaling and clipping)
};

///   g = grad_scale grad          m = m + (1 - beta1) (g - m)          v = beta2 v + (1 - beta2) g g
///   w = w (1 - lr decay) - lr / (1 - beta1^n) m / (sqrt(v) / sqrt(1 - beta2^n) + eps)
struct AdamWRule {
  static constexpr int kTensors = 4, kSums = 0;  ///< weights, gradients, m, v
  double grad_scale = 0, kept = 0, rest1 = 0, beta2 = 0, rest2 = 0, rate = 0, root_correction = 0, eps = 0;

  AdamWRule() = default;
  explicit AdamWRule(const AdamWStep& step)
      : grad_scale(step.gradient_scale),
        kept(1.0 - step.lr * step.decay),
        rest1(1.0 - step.beta1),
        beta2(step.beta2),
        rest2(1.0 - step.beta2),
        rate(step.lr / (1.0 - std::pow(step.beta1, static_cast<double>(step.count)))),
        root_correction(std::sqrt(1.0 - std::pow(step.beta2, static_cast<double>(step.count)))),
        eps(step.eps) {}

  template <class F>
  constexpr void write(F& f) const {
    const auto scale = f.constant(grad_scale), keep = f.constant(kept), mean_rest = f.constant(rest1),
               square_kept = f.constant(beta2), square_rest = f.constant(rest2), size = f.constant(rate),
               correction = f.constant(root_correction), least = f.constant(eps);
    const auto g = scale * f.load(1);
    const auto decayed = keep * f.load(0);
    const auto before = f.load(2);
    const auto m = before + mean_rest * (g - before);
    const auto square = square_rest * g * g;
    const auto v = square_kept * f.load(3) + square;
    f.store(2, m);
    f.store(3, v);
    const auto denominator = sqrt(v) / correction + least;
    f.store(0, decayed - size * m / denominator);
  }
};

/// Hyper-parameters of one SGD update with momentum, as PyTorch defines it.
struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, decay = 0;
  bool nesterov = false;
  bool first = false;  ///< the momentum buffer is set, not blended
  double gradient_scale = 1;
};

///   g = grad_scale grad + decay w          b = first ? g : momentum b + (1 - dampening) g
///   w = w - lr (nesterov ? g + momentum b : b)          without momentum: w = w - lr g, no buffer
template <bool kMomentum, bool kFirst = false, bool kNesterov = false>
struct SgdRule {
  static constexpr int kTensors = kMomentum ? 3 : 2, kSums = 0;  ///< weights, gradients, b
  double grad_scale = 0, lr = 0, decay = 0, momentum = 0, rest = 0;

  SgdRule() = default;
  explicit SgdRule(const SgdStep& step)
      : grad_scale(step.gradient_scale),
        lr(step.lr),
        decay(step.decay),
        momentum(step.momentum),
        rest(1.0 - step.dampening) {}

  template <class F>
  constexpr void write(F& f) const {
    const auto scale = f.constant(grad_scale), rate = f.constant(lr), decayed = f.constant(decay);
    const auto w = f.load(0);
    const auto scaled = scale * f.load(1);
    const auto g = scaled + decayed * w;
    if constexpr (!kMomentum) {
      f.store(0, w - rate * g);
    } else {
      [[maybe_unused]] const auto kept = f.constant(momentum), added = f.constant(rest);
      const auto b = [&] {
        if constexpr (kFirst) {
          return g;
        } else {
          const auto fresh = added * g;
          return kept * f.load(2) + fresh;
        }
      }();
      f.store(2, b);
      if constexpr (kNesterov) {
        f.store(0, w - rate * (g + kept * b));
      } else {
        f.store(0, w - rate * b);
      }
    }
  }
};

/// Calls visit(rule) with the SgdRule that the settings ask for.
template <class Visit>
void with_sgd_rule(const SgdStep& step, Visit&& visit) {
  if (step.momentum == 0) return visit(SgdRule<false>(step));
  if (step.nesterov)
    return step.first ? visit(SgdRule<true, true, true>(step)) : visit(SgdRule<true, false, true>(step));
  return step.first ? visit(SgdRule<true, true>(step)) : visit(SgdRule<true>(step));
}

/// A sum of Adagrad that is still zero was never used: its first update, in any order, begins with `initial`.
template <class V>
constexpr V adagrad_sum(V before, V initial, V square) {
  return select(before, before, initial) + square;
}

/// Adagrad (Duchi, Hazan and Singer, JMLR 2011):
///   g = grad_scale grad + decay w          s = s + g^2          w = w - lr (g / (sqrt(s) + eps))
struct AdagradRule {
  static constexpr int kTensors = 3, kSums = 0;  ///< weights, gradients, s
  double grad_scale = 1, lr = 0, decay = 0, eps = 0, initial = 0;

  template <class F>
  constexpr void write(F& f) const {
    const auto scale = f.constant(grad_scale), rate = f.constant(lr), decayed = f.constant(decay),
               least = f.constant(eps), start = f.constant(initial);
    const auto w = f.load(0), before = f.load(2);
    const auto scaled = f.load(1) * scale;
    const auto g = scaled + decayed * w;
    const auto square = g * g;
    const auto sum = adagrad_sum(before, start, square);
    f.store(2, sum);
    f.store(0, w - rate * (g / (sqrt(sum) + least)));
  }
};

/// Adagrad with one sum per row of a table (Naumov et al., arXiv 1906.00091), over rows, whose weights then
/// move by w = w - rate g:          s = s + mean(g^2)          rate = lr / (sqrt(s) + eps)
struct RowwiseAdagradRule {
  static constexpr int kTensors = 2, kSums = 0;  ///< s, means of squares, which become rates
  double lr = 0, eps = 0, initial = 0;

  template <class F>
  constexpr void write(F& f) const {
    const auto size = f.constant(lr), least = f.constant(eps), start = f.constant(initial);
    const auto before = f.load(0), mean = f.load(1);
    const auto sum = adagrad_sum(before, start, mean);
    f.store(0, sum);
    f.store(1, size / (sqrt(sum) + least));
  }
};

/// Adam's direction, as LAMB scales it:  r = m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps) + decay w
struct LambDirection {
  double mean_correction = 0, square_correction = 0, eps = 0, decay = 0;

  template <class F, class V>
  constexpr auto write(F& f, V w, V m, V v) const {
    const auto mean = f.constant(mean_correction), square = f.constant(square_correction),
               least = f.constant(eps), decayed = f.constant(decay);
    const auto denominator = sqrt(v / square) + least;
    const auto adam = m / mean / denominator;
    return adam + decayed * w;
  }
};

/// First pass of LAMB (You et al., ICLR 2020): the moments, and the squares of weights and directions.
///   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2          sums: w w, r r
struct LambMomentsRule {
  static constexpr int kTensors = 4, kSums = 2;  ///< weights, gradients, m, v
  double grad_scale = 0, beta1 = 0, beta2 = 0;
  LambDirection direction{};

  template <class F>
  constexpr void write(F& f) const {
    const auto scale = f.constant(grad_scale), mean_kept = f.constant(beta1),
               mean_rest = f.constant(1 - beta1), square_kept = f.constant(beta2),
               square_rest = f.constant(1 - beta2);
    const auto w = f.load(0);
    const auto g = f.load(1) * scale;
    const auto fresh = mean_rest * g;
    const auto m = mean_kept * f.load(2) + fresh;
    const auto square = square_rest * (g * g);
    const auto v = square_kept * f.load(3) + square;
    f.store(2, m);
    f.store(3, v);
    const auto r = direction.write(f, w, m, v);
    f.sum(0, w, w);
    f.sum(1, r, r);
  }
};

/// Second pass:  w = w - rate r
struct LambWeightsRule {
  static constexpr int kTensors = 4, kSums = 0;  ///< the same
  LambDirection direction{};
  double rate = 0;

  template <class F>
  constexpr void write(F& f) const {
    const auto size = f.constant(rate);
    const auto w = f.load(0), m = f.load(2), v = f.load(3);
    const auto r = direction.write(f, w, m, v);
    f.store(0, w - size * r);
  }
};

template <class... Rules>
struct RuleList {
  static constexpr std::size_t kCount = sizeof...(Rules);
};
/// The rules above, for devices that compile them ahead.
using UpdateRules =
    RuleList<AdamWRule, SgdRule<false>, SgdRule<true>, SgdRule<true, true>, SgdRule<true, false, true>,
             SgdRule<true, true, true>, AdagradRule, LambMomentsRule, LambWeightsRule>;

TENON_ABI_END
