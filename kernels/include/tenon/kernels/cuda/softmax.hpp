// Kernel bodies of softmax cross-entropy. Rows may be vocabularies of any length: threads stride over the
// columns, each with a running maximum and the sum of exponentials below it, which a tree joins.
#pragma once

#include <cmath>
#include <limits>
#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/elementwise.hpp>
#include <tenon/kernels/cuda/rows.hpp>

namespace tenon::kernels::cuda {

/// State of some columns of a row: their largest logit, sum of exp(logit - most), and sum of the logits where
/// labels are smoothed. A NaN or +infinity makes `sum` a NaN once states were joined.
template <class A>
struct LossState {
  A most, sum;
  double logits;

  /// Offset that exponents are relative to: 0 where all logits are -infinity.
  TENON_BOTH static A base(A most) { return most == -std::numeric_limits<A>::infinity() ? A{0} : most; }
  TENON_BOTH void see(A x) {
    if (x > most) {
      sum = sum * std::exp(most - x) + 1;
      most = x;
    } else {
      sum += std::exp(x - base(most));
    }
  }
  /// Several at once, which are rescaled once. -infinity counts as none.
  template <int N>
  TENON_BOTH void see(const A (&x)[N]) {
    A now = most;
    TENON_UNROLL
    for (int e = 0; e < N; ++e) now = x[e] > now ? x[e] : now;
    if (now > most) {
      sum = sum * std::exp(most - now);
      most = now;
    }
    const A below = base(most);
    TENON_UNROLL
    for (int e = 0; e < N; ++e) sum += std::exp(x[e] - below);
  }
};
struct JoinLossStates {
  template <class A>
  TENON_BOTH LossState<A> operator()(const LossState<A>& a, const LossState<A>& b) const {
    const A most = a.most < b.most ? b.most : a.most, base = LossState<A>::base(most);
    return {most, a.sum * std::exp(a.most - base) + b.sum * std::exp(b.most - base), a.logits + b.logits};
  }
};

/// lse = log sum exp(logits) of a row; loss = lse - logit of the target, 0 where that is negative, and with
/// smoothing: + smoothing (logit of the target - mean of the logits). Either output may be null.
template <class S>
struct CrossEntropy {
  using A = Arith<S>;
  using State = LossState<A>;
  static constexpr std::size_t kShared = sizeof(State);  ///< per thread

  std::int64_t rows, columns;
  const S* logits;
  const std::int32_t* targets;
  double smoothing;
  A *loss, *lse;

  TENON_BOTH void operator()(const Block& block) const {
    State* const states = block.shared<State>();
    const CrossEntropy& a = *this;
    for_rows(block, rows, [&](std::int64_t row) {
      const S* const x = a.logits + row * a.columns;
      block.each([&](int thread) {
        constexpr int kTogether = 4;
        State own{-std::numeric_limits<A>::infinity(), 0, 0};
        for (std::int64_t first = thread; first < a.columns; first += kTogether * block.threads()) {
          A logits[kTogether];
          TENON_UNROLL
          for (int e = 0; e < kTogether; ++e) {
            const std::int64_t j = first + e * block.threads();
            logits[e] = j < a.columns ? get(x[j]) : -std::numeric_limits<A>::infinity();
            if (a.smoothing > 0 && j < a.columns) own.logits += static_cast<double>(logits[e]);
          }
          own.see(logits);
        }
        states[thread] = own;
      });
      reduce_block(block, states, JoinLossStates{});
      block.each([&](int thread) {
        if (thread == 0) a.finish(row, states[0]);
      });
    });
  }

 private:
  TENON_BOTH void finish(std::int64_t row, const State& state) const {
    const A all = State::base(state.most) + std::log(state.sum);
    if (lse != nullptr) lse[row] = all;
    if (loss == nullptr) return;
    const std::int32_t target = targets[row];
    if (target < 0) {
      loss[row] = 0;
      return;
    }
    const A wanted = get(logits[row * columns + target]);
    A value = all - wanted;
    if (smoothing > 0) {
      const double mean = state.logits / static_cast<double>(columns);
      value = static_cast<A>(static_cast<double>(value) + smoothing * (static_cast<double>(wanted) - mean));
    }
    loss[row] = value;
  }
};

/// dlogits = (exp(logit - lse) - floor - peak [target]) scale, 0 in rows whose target is negative.
template <class S, class To>
struct CrossEntropyGradient {
  using A = Arith<S>;
  std::int64_t rows, columns;
  const S* logits;
  const std::int32_t* targets;
  const A* lse;
  A scale, peak, floor;
  To* dlogits;

  TENON_BOTH void operator()(const Block& block) const {
    const CrossEntropyGradient& a = *this;
    for_rows(block, rows, [&](std::int64_t row) {
      const std::int64_t target = a.targets[row], begin = row * a.columns;
      const A all = a.lse[row];
      block.each_apart([&](int thread) {
        for (std::int64_t j = thread; j < a.columns; j += block.threads())
          a.dlogits[begin + j] = put<To>(target < 0 ? Arith<To>{0} : a.gradient(begin + j, all, j == target));
      });
    });
  }

 private:
  TENON_BOTH Arith<To> gradient(std::int64_t i, A all, bool wanted) const {
    const A result = (std::exp(get(logits[i]) - all) - (floor + (wanted ? peak : A{0}))) * scale;
    if constexpr (sizeof(A) > sizeof(Arith<To>)) {
      return to_odd(result);
    } else {
      return result;
    }
  }
};

}  // namespace tenon::kernels::cuda
