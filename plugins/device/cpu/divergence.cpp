// Divergences of distributions and distances of states (families DivergenceOps, StateDistanceOps). A row
// belongs to one thread. Logarithms of sums and exponentials are those of the kernel set, on blocks of
// columns; the sums around them run in lanes that compilers keep in vectors, so their order depends on the
// columns alone.
#include "common.hpp"
#include "device_common/divergences.hpp"

#include <algorithm>
#include <functional>

namespace tenon::cpu {
namespace {

using kernels::DivergenceArgs;
using kernels::DivergenceRow;

constexpr std::int64_t kTermLanes = 8;
constexpr int kBinBits = 11;  ///< of keys: sign, exponent and, in f32, two bits of the significand

/// Sum of term(j) over [0, n).
template <class A, class Term>
double sum_of_terms(std::int64_t n, Term term) {
  A lanes[kTermLanes] = {};
  std::int64_t j = 0;
  for (; j + kTermLanes <= n; j += kTermLanes)
    for (std::int64_t lane = 0; lane < kTermLanes; ++lane) lanes[lane] += term(j + lane);
  for (std::int64_t lane = 0; j < n; ++j, ++lane) lanes[lane] += term(j);
  double sum = 0;
  for (const A lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

/// The rows of one call, one at a time.
template <class A>
class DivergenceRows {
 public:
  DivergenceRows(const kernels::Ops<A>& ops, const DivergenceArgs<A>& args) : ops_(ops), args_(args) {}

  void forward(std::int64_t r) {
    begin(r);
    if (args_.targets[r] < 0) {
      args_.loss[r] = 0;
      DivergenceRow<A>{}.write(statistics_);
      return;
    }
    DivergenceRow<A> row{};
    if (args_.top_k > 0) choose(row);
    row.student_lse = lse(student_, [](A, std::int64_t) { return true; });
    row.teacher_lse = lse(teacher_, [](A, std::int64_t) { return true; });
    double sum = 0;
    for (std::int64_t at = 0; at < args_.columns; at += kStackElements) {
      const std::int64_t n = logs(row, at);
      ops_.elementwise.exp(args_.reverse ? b_ : a_, p_, n);
      sum += terms(row, at, n);
    }
    if (args_.top_k > 0) {
      const auto others = [&row](A logit, std::int64_t j) { return !row.chosen(logit, j); };
      const A a = lse(teacher_, others) - row.teacher_lse, b = lse(student_, others) - row.student_lse;
      row.rest = a - b;
      sum += static_cast<double>(kernels::divergence_rest(a, b));
    }
    row.value = static_cast<A>(sum);
    args_.loss[r] = row.value;
    row.write(statistics_);
  }

  void backward(std::int64_t r) {
    begin(r);
    A* const to = args_.dstudent + r * args_.columns;
    if (args_.targets[r] < 0) {
      std::fill_n(to, args_.columns, A{0});
      return;
    }
    const auto row = DivergenceRow<A>::read(statistics_);
    const A scale = args_.scale * args_.inverse_temperature;
    const A slope = args_.top_k > 0 ? kernels::divergence_rest_slope(row.rest) : A{0};
    for (std::int64_t at = 0; at < args_.columns; at += kStackElements) {
      const std::int64_t n = logs(row, at);
      A q[kStackElements];
      ops_.elementwise.exp(b_, q, n);
      if (args_.reverse) {
        for (std::int64_t j = 0; j < n; ++j)
          to[at + j] = (q[j] == 0 ? A{0} : q[j] * (b_[j] - a_[j] - row.value)) * scale;
        continue;
      }
      ops_.elementwise.exp(a_, p_, n);
      if (args_.top_k == 0) {
        for (std::int64_t j = 0; j < n; ++j) to[at + j] = (q[j] - p_[j]) * scale;
        continue;
      }
      for (std::int64_t j = 0; j < n; ++j) {
        const A gradient = row.chosen(teacher_[at + j], at + j) ? q[j] - p_[j] : q[j] * slope;
        to[at + j] = gradient * scale;
      }
    }
  }

 private:
  void begin(std::int64_t r) {
    student_ = args_.student + r * args_.columns;
    teacher_ = args_.teacher + r * args_.columns;
    statistics_ = args_.statistics + r * kDivergenceStatistics;
  }

  /// a_ and b_ become the log-probabilities from column `at` on, of teacher and student; returns how many.
  std::int64_t logs(const DivergenceRow<A>& row, std::int64_t at) {
    const std::int64_t n = std::min(kStackElements, args_.columns - at);
    const A factor = args_.inverse_temperature;
    for (std::int64_t j = 0; j < n; ++j) a_[j] = factor * teacher_[at + j] - row.teacher_lse;
    for (std::int64_t j = 0; j < n; ++j) b_[j] = factor * student_[at + j] - row.student_lse;
    return n;
  }

  /// The terms of the columns that logs() has read, of which p_ has the weights.
  double terms(const DivergenceRow<A>& row, std::int64_t at, std::int64_t n) const {
    using kernels::divergence_term;
    if (args_.reverse)
      return sum_of_terms<A>(n, [this](std::int64_t j) { return divergence_term(p_[j], b_[j], a_[j]); });
    if (args_.top_k == 0)
      return sum_of_terms<A>(n, [this](std::int64_t j) { return divergence_term(p_[j], a_[j], b_[j]); });
    return sum_of_terms<A>(n, [this, &row, at](std::int64_t j) {
      return row.chosen(teacher_[at + j], at + j) ? divergence_term(p_[j], a_[j], b_[j]) : A{0};
    });
  }

  /// Logarithm of the sum of exp(x / T) over the columns that `counts` takes, by the teacher's logit.
  template <class Counts>
  A lse(const A* x, Counts counts) const {
    A most = 0, sum = 0, none = 0, result = 0;
    const std::int32_t target = -1;
    kernels::CrossEntropyArgs<A> of;
    of.rows = 1;
    of.targets = &target;
    of.running_max = &most, of.running_sum = &sum, of.target_logit = &none, of.lse = &result;
    ops_.softmax.cross_entropy_begin(of, 0, 1);
    A scaled[kStackElements];
    for (std::int64_t at = 0; at < args_.columns; at += kStackElements) {
      of.cols = of.ld = std::min(kStackElements, args_.columns - at);
      of.col_begin = at;
      for (std::int64_t j = 0; j < of.cols; ++j) {
        const A value = args_.inverse_temperature * x[at + j];
        scaled[j] = counts(teacher_[at + j], at + j) ? value : -std::numeric_limits<A>::infinity();
      }
      of.logits = scaled;
      ops_.softmax.cross_entropy_chunk(of, 0, 1);
    }
    ops_.softmax.cross_entropy_finish(of, 0, 1);
    return result;
  }

  void choose(DivergenceRow<A>& row) const {
    using Key = kernels::OrderKey<A>;
    const Key key = kth_key();
    row.threshold = kernels::of_order_key(key);
    std::int64_t above = 0;
    for (std::int64_t j = 0; j < args_.columns; ++j)
      above += static_cast<std::int64_t>(kernels::order_key(teacher_[j]) > key);
    std::int64_t left = args_.top_k - above;
    for (std::int64_t j = 0; j < args_.columns && left > 0; ++j) {
      if (kernels::order_key(teacher_[j]) != key) continue;
      --left;
      row.last_tie = static_cast<A>(j);
    }
  }

  /// The key of the k-th largest logit. Counting keys by their first bits leaves those of one bin, which
  /// mostly fit a buffer; else every bit of the key is found by counting again.
  kernels::OrderKey<A> kth_key() const {
    using Key = kernels::OrderKey<A>;
    constexpr int kShift = sizeof(Key) * 8 - kBinBits;
    std::int32_t bins[1 << kBinBits] = {};
    for (std::int64_t j = 0; j < args_.columns; ++j) ++bins[kernels::order_key(teacher_[j]) >> kShift];
    std::int64_t wanted = args_.top_k, bin = (1 << kBinBits) - 1;
    for (; bins[bin] < wanted; --bin) wanted -= bins[bin];
    if (bins[bin] > kStackElements) {
      return kernels::kth_largest<Key>(args_.top_k, [this](Key key) {
        std::int64_t count = 0;
        for (std::int64_t j = 0; j < args_.columns; ++j)
          count += static_cast<std::int64_t>(kernels::order_key(teacher_[j]) >= key);
        return count;
      });
    }
    Key keys[kStackElements];
    std::int64_t found = 0;
    for (std::int64_t j = 0; j < args_.columns; ++j) {
      const Key key = kernels::order_key(teacher_[j]);
      if (static_cast<std::int64_t>(key >> kShift) == bin) keys[found++] = key;
    }
    std::nth_element(keys, keys + wanted - 1, keys + found, std::greater<>());
    return keys[wanted - 1];
  }

  const kernels::Ops<A>& ops_;
  const DivergenceArgs<A>& args_;
  const A *student_ = nullptr, *teacher_ = nullptr;
  A* statistics_ = nullptr;
  A a_[kStackElements], b_[kStackElements], p_[kStackElements];
};

class CpuDivergenceOps final : public DivergenceOps {
 public:
  explicit CpuDivergenceOps(const Kernels& kernels) : kernels_(kernels) {}

  void divergence(const DivergenceSpec& spec, TensorView student, TensorView teacher, TensorView targets,
                  TensorView loss, TensorView statistics) override {
    constexpr const char* kWhere = "divergence";
    with_arithmetic(student.dtype, kWhere, [&](auto tag) {
      using A = typename decltype(tag)::type;
      auto args = device_arguments::divergence<A>(spec, student, teacher, targets, statistics, kWhere);
      args.loss = checked<A>(loss, args.rows, kWhere, "loss");
      parallel_for(args.rows, row_block(4 * args.columns), [&](std::int64_t begin, std::int64_t end) {
        DivergenceRows<A> rows(kernels_.ops<A>(), args);
        for (std::int64_t r = begin; r < end; ++r) rows.forward(r);
      });
    });
  }

  void divergence_backward(const DivergenceSpec& spec, TensorView student, TensorView teacher,
                           TensorView targets, TensorView statistics, double scale,
                           TensorView dstudent) override {
    constexpr const char* kWhere = "divergence_backward";
    with_arithmetic(student.dtype, kWhere, [&](auto tag) {
      using A = typename decltype(tag)::type;
      auto args = device_arguments::divergence<A>(spec, student, teacher, targets, statistics, kWhere);
      args.dstudent = checked<A>(dstudent, args.rows * args.columns, kWhere, "dstudent");
      args.scale = static_cast<A>(scale);
      parallel_for(args.rows, row_block(4 * args.columns), [&](std::int64_t begin, std::int64_t end) {
        DivergenceRows<A> rows(kernels_.ops<A>(), args);
        for (std::int64_t r = begin; r < end; ++r) rows.backward(r);
      });
    });
  }

 private:
  Kernels kernels_;
};

class CpuStateDistanceOps final : public StateDistanceOps {
 public:
  void distance(StateDistance form, TensorView student, TensorView teacher, TensorView targets,
                TensorView loss, TensorView statistics) override {
    constexpr const char* kWhere = "distance";
    with_storage(student.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = kernels::Arith<S>;
      const auto of = device_arguments::distance<S>(student, teacher, statistics, kWhere);
      const auto* const counts = checked<std::int32_t>(targets, of.rows, kWhere, "targets");
      A* const losses = checked<A>(loss, of.rows, kWhere, "loss");
      parallel_for(of.rows, row_block(of.columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          kernels::DistanceRow row;
          if (counts[r] >= 0) {
            const auto sums =
                distance_sums(of.student + r * of.columns, of.teacher + r * of.columns, of.columns);
            row = kernels::distance_row(device_arguments::distance_form(form), sums, of.columns);
          }
          losses[r] = static_cast<A>(row.loss);
          of.statistics[r * kDistanceStatistics] = static_cast<A>(row.of_difference);
          of.statistics[r * kDistanceStatistics + 1] = static_cast<A>(row.of_teacher);
        }
      });
    });
  }

  void distance_backward(TensorView student, TensorView teacher, TensorView statistics, double scale,
                         TensorView dstudent, bool accumulate) override {
    constexpr const char* kWhere = "distance_backward";
    with_storage(student.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = kernels::Arith<S>;
      const auto of = device_arguments::distance<S>(student, teacher, statistics, kWhere);
      S* const to = checked<S>(dstudent, of.rows * of.columns, kWhere, "dstudent");
      parallel_for(of.rows, row_block(of.columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const A difference = of.statistics[r * kDistanceStatistics] * static_cast<A>(scale),
                  level = of.statistics[r * kDistanceStatistics + 1] * static_cast<A>(scale);
          const bool counts = difference != 0 || level != 0;
          if (!counts && accumulate) continue;
          for (std::int64_t j = r * of.columns; j < (r + 1) * of.columns; ++j) {
            const A y = widen(of.student[j]), t = widen(of.teacher[j]);
            const A gradient = counts ? difference * (y - t) + level * t : A{0};
            to[j] = narrow<S>(accumulate ? widen(to[j]) + gradient : gradient);
          }
        }
      });
    });
  }

 private:
  template <class S>
  static kernels::DistanceSums distance_sums(const S* student, const S* teacher, std::int64_t n) {
    kernels::DistanceSums lanes[kTermLanes];
    std::int64_t j = 0;
    for (; j + kTermLanes <= n; j += kTermLanes)
      for (std::int64_t lane = 0; lane < kTermLanes; ++lane)
        lanes[lane].see(static_cast<double>(widen(student[j + lane])),
                        static_cast<double>(widen(teacher[j + lane])));
    for (std::int64_t lane = 0; j < n; ++j, ++lane)
      lanes[lane].see(static_cast<double>(widen(student[j])), static_cast<double>(widen(teacher[j])));
    kernels::DistanceSums sum;
    for (const kernels::DistanceSums& lane : lanes) sum = sum + lane;
    return sum;
  }
};

}  // namespace

std::unique_ptr<StateDistanceOps> make_state_distance_ops() {
  return std::make_unique<CpuStateDistanceOps>();
}

std::unique_ptr<DivergenceOps> make_divergence_ops(const Kernels& kernels) {
  return std::make_unique<CpuDivergenceOps>(kernels);
}

}  // namespace tenon::cpu
