// Kernel bodies of divergences between a teacher's and a student's distribution, and of distances between
// their states. A block has one row at a time; threads stride over its columns, and a tree joins what they
// found.
#pragma once

#include <tenon/kernels/cuda/softmax.hpp>
#include <tenon/kernels/divergence.hpp>

namespace tenon::kernels::cuda {

/// Losses and statistics of all rows.
template <class A>
struct DivergenceLosses {
  using State = LossState<A>;
  static constexpr std::size_t kShared = sizeof(State);  ///< per thread

  DivergenceArgs<A> args;

  TENON_BOTH void operator()(const Block& block) const {
    const DivergenceLosses& self = *this;
    for_rows(block, args.rows, [&](std::int64_t r) { self.row(block, r); });
  }

 private:
  TENON_BOTH void row(const Block& block, std::int64_t r) const {
    const DivergenceLosses& self = *this;
    const A *const student = args.student + r * args.columns, *const teacher =
                                                                  args.teacher + r * args.columns;
    DivergenceRow<A> of{};
    if (args.targets[r] < 0) {
      block.each([&](int thread) {
        if (thread != 0) return;
        self.args.loss[r] = 0;
        of.write(self.args.statistics + r * kDivergenceStatistics);
      });
      return;
    }
    if (args.top_k > 0) choose(block, teacher, of);
    const auto all = [](std::int64_t) { return true; };
    of.student_lse = lse(block, student, all);
    of.teacher_lse = lse(block, teacher, all);
    const A factor = args.inverse_temperature;
    double value = static_cast<double>(sum_over(block, block.shared<A>(), args.columns, [&](std::int64_t j) {
      if (self.args.top_k > 0 && !of.chosen(teacher[j], j)) return A{0};
      const A a = factor * teacher[j] - of.teacher_lse, b = factor * student[j] - of.student_lse;
      return self.args.reverse ? divergence_term(std::exp(b), b, a) : divergence_term(std::exp(a), a, b);
    }));
    block.each([](int) {});  // the sum is read before it is written again
    if (args.top_k > 0) {
      const auto others = [&](std::int64_t j) { return !of.chosen(teacher[j], j); };
      const A a = lse(block, teacher, others) - of.teacher_lse,
              b = lse(block, student, others) - of.student_lse;
      of.rest = a - b;
      value += static_cast<double>(divergence_rest(a, b));
    }
    of.value = static_cast<A>(value);
    block.each([&](int thread) {
      if (thread != 0) return;
      self.args.loss[r] = of.value;
      of.write(self.args.statistics + r * kDivergenceStatistics);
    });
  }

  /// Logarithm of the sum of exp(x / T) over the columns that `counts` takes.
  template <class Counts>
  TENON_BOTH A lse(const Block& block, const A* x, Counts counts) const {
    State* const states = block.shared<State>();
    const DivergenceArgs<A>& a = args;
    block.each([&](int thread) {
      State own{-std::numeric_limits<A>::infinity(), 0, 0};
      for (std::int64_t j = thread; j < a.columns; j += block.threads())
        if (counts(j)) own.see(a.inverse_temperature * x[j]);
      states[thread] = own;
    });
    reduce_block(block, states, JoinLossStates{});
    const A result = State::base(states[0].most) + std::log(states[0].sum);
    block.each([](int) {});  // it is read before it is written again
    return result;
  }

  /// How many columns meet `holds`.
  template <class Holds>
  TENON_BOTH std::int64_t count(const Block& block, Holds holds) const {
    const std::int64_t result = sum_over(block, block.shared<std::int64_t>(), args.columns,
                                         [&](std::int64_t j) { return std::int64_t{holds(j) ? 1 : 0}; });
    block.each([](int) {});
    return result;
  }

  TENON_BOTH void choose(const Block& block, const A* teacher, DivergenceRow<A>& of) const {
    using Key = OrderKey<A>;
    const DivergenceLosses& self = *this;
    const Key key = kth_largest<Key>(args.top_k, [&](Key least) {
      return self.count(block, [&](std::int64_t j) { return order_key(teacher[j]) >= least; });
    });
    of.threshold = of_order_key(key);
    const std::int64_t left =
        args.top_k - count(block, [&](std::int64_t j) { return order_key(teacher[j]) > key; });
    // The smallest column up to which so many are equal to the threshold, bit by bit as well.
    std::int64_t before = 0;  // columns known to come before it
    for (std::int64_t bit = std::int64_t{1} << 24; bit != 0; bit >>= 1) {
      const std::int64_t tried = before + bit;
      const std::int64_t ties =
          count(block, [&](std::int64_t j) { return j < tried && order_key(teacher[j]) == key; });
      if (ties < left) before = tried;
    }
    of.last_tie = static_cast<A>(before);
  }
};

/// dstudent: a map of elementwise.hpp over the whole matrix.
template <class A>
struct DivergenceGradient {
  DivergenceArgs<A> args;

  TENON_BOTH A operator()(std::int64_t i) const {
    const Divided at = divided(i, args.columns);
    if (args.targets[at.quotient] < 0) return 0;
    const auto of = DivergenceRow<A>::read(args.statistics + at.quotient * kDivergenceStatistics);
    const A factor = args.inverse_temperature, scale = args.scale * factor;
    const A a = factor * args.teacher[i] - of.teacher_lse, b = factor * args.student[i] - of.student_lse;
    const A q = std::exp(b);
    if (args.reverse) return (q == 0 ? A{0} : q * (b - a - of.value)) * scale;
    if (args.top_k == 0 || of.chosen(args.teacher[i], at.remainder)) return (q - std::exp(a)) * scale;
    return q * divergence_rest_slope(of.rest) * scale;
  }
};

/// Losses and statistics of pairs of states.
template <class S>
struct StateDistances {
  using A = Arith<S>;
  static constexpr std::size_t kShared = sizeof(DistanceSums);  ///< per thread

  Distance form;
  std::int64_t rows, columns;
  const S *student, *teacher;
  const std::int32_t* targets;
  A *loss, *statistics;

  TENON_BOTH void operator()(const Block& block) const {
    DistanceSums* const sums = block.shared<DistanceSums>();
    const StateDistances& a = *this;
    for_rows(block, rows, [&](std::int64_t row) {
      block.each([&](int thread) {
        DistanceSums own;
        for (std::int64_t j = row * a.columns + thread; j < (row + 1) * a.columns; j += block.threads())
          own.see(static_cast<double>(get(a.student[j])), static_cast<double>(get(a.teacher[j])));
        sums[thread] = own;
      });
      reduce_block(block, sums, Add{});
      block.each([&](int thread) {
        if (thread != 0) return;
        const DistanceRow of = a.targets[row] < 0 ? DistanceRow{} : distance_row(a.form, sums[0], a.columns);
        a.loss[row] = static_cast<A>(of.loss);
        a.statistics[2 * row] = static_cast<A>(of.of_difference);
        a.statistics[2 * row + 1] = static_cast<A>(of.of_teacher);
      });
    });
  }
};

/// dstudent (+)=: a map of elementwise.hpp over the whole matrix.
template <class S>
struct StateDistanceGradient {
  using A = Arith<S>;
  std::int64_t columns;
  const S *student, *teacher;
  const A* statistics;
  A scale;
  const S* before;  ///< null: nothing is added to

  TENON_BOTH A operator()(std::int64_t i) const {
    const std::int64_t row = divided(i, columns).quotient;
    const A difference = statistics[2 * row] * scale, level = statistics[2 * row + 1] * scale;
    A gradient = 0;
    if (difference != 0 || level != 0) {
      const A y = get(student[i]), t = get(teacher[i]);
      gradient = difference * (y - t) + level * t;
    }
    return before == nullptr ? gradient : get(before[i]) + gradient;
  }
};

}  // namespace tenon::kernels::cuda
