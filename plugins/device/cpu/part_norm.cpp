// Normalisations over elements of several ranks (family PartNormOps). Sets are shared among threads, and one
// thread sums each of them whole, in eight sums by the place within `inner`, which are added by halves.
#include "common.hpp"
#include "device_common/norms.hpp"

#include <tenon/kernels/reduce.hpp>

#include <cmath>

namespace tenon::cpu {
namespace {

using kernels::Arith;

constexpr std::int64_t kSumLanes = 8;

using Sets = device_arguments::NormSets;

/// Calls fn(i, j) for every element i of a set and its place j within inner.
template <class Fn>
void for_set(const Sets& of, std::int64_t set, Fn fn) {
  for (std::int64_t o = 0; o < of.outer; ++o) {
    const std::int64_t first = (o * of.sets + set) * of.inner;
    for (std::int64_t j = 0; j < of.inner; ++j) fn(first + j, j);
  }
}

/// The sum of term(i, j) over a set.
template <class Term>
double set_sum(const Sets& of, std::int64_t set, Term term) {
  double lanes[kSumLanes] = {};
  for (std::int64_t o = 0; o < of.outer; ++o) {
    const std::int64_t first = (o * of.sets + set) * of.inner;
    std::int64_t j = 0;
    for (; j + kSumLanes <= of.inner; j += kSumLanes)
      for (std::int64_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += term(first + j + lane, j + lane);
    for (std::int64_t lane = 0; j < of.inner; ++lane, ++j) lanes[lane] += term(first + j, j);
  }
  return kernels::pairwise_sum(lanes, kSumLanes);
}

/// Calls fn(set) for all sets.
template <class Fn>
void for_sets(const Sets& of, Fn fn) {
  parallel_for(of.sets, row_block(of.outer * of.inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t set = begin; set < end; ++set) fn(set);
  });
}

/// The inputs of a normalisation as pointers; null for empty ones.
template <class S>
struct PartNormArgs : device_arguments::PartNormInputs<S> {
  using Inputs = device_arguments::PartNormInputs<S>;
  using Inputs::gain, Inputs::mean, Inputs::per_set;
  using Inputs::Inputs;

  Arith<S> mean_of(std::int64_t set) const { return mean == nullptr ? 0 : mean[set]; }
  /// The vector's element at a place; the compiler hoists the choice out of loops.
  Arith<S> at(const Arith<S>* vector, std::int64_t set, std::int64_t j, Arith<S> otherwise) const {
    return vector == nullptr ? otherwise : vector[per_set ? set : j];
  }
  /// Gain of elements that have gains of their own; otherwise 1.
  Arith<S> own_gain(std::int64_t j) const { return gain == nullptr || per_set ? 1 : gain[j]; }
};

class CpuPartNormOps final : public PartNormOps {
 public:
  void sums(TensorView x, TensorView sums) override {
    constexpr const char* kWhere = "part norm sums";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const device_arguments::PartNormSums<S> args(x, sums, kWhere);
      for_sets(args.of, [&](std::int64_t set) {
        const S* in = args.x;
        args.out[set] = set_sum(
            args.of, set, [&](std::int64_t i, std::int64_t) { return static_cast<double>(widen(in[i])); });
      });
    });
  }

  void squares(const PartNormSpec& spec, TensorView x, TensorView sums, TensorView squares) override {
    constexpr const char* kWhere = "part norm squares";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const device_arguments::PartNormSums<S> args(x, sums, squares, kWhere);
      for_sets(args.of, [&](std::int64_t set) {
        const S* in = args.x;
        const double mean = args.sums == nullptr ? 0 : args.sums[set] / spec.count;
        args.out[set] = set_sum(args.of, set, [&](std::int64_t i, std::int64_t) {
          const double d = static_cast<double>(widen(in[i])) - mean;
          return d * d;
        });
      });
    });
  }

  void statistics(const PartNormSpec& spec, TensorView sums, TensorView squares, TensorView mean,
                  TensorView rstd, TensorView running_mean, TensorView running_variance) override {
    constexpr const char* kWhere = "part norm statistics";
    with_arithmetic(rstd.dtype, kWhere, [&](auto tag) {
      using A = typename decltype(tag)::type;
      const device_arguments::PartNormStatistics<A> of(sums, squares, mean, rstd, running_mean,
                                                       running_variance, kWhere);
      const auto blend = [&](A& running, double value) {
        running = static_cast<A>((1 - spec.momentum) * static_cast<double>(running) + spec.momentum * value);
      };
      for (std::int64_t s = 0; s < of.sets; ++s) {
        const double centre = of.sums == nullptr ? 0 : of.sums[s] / spec.count;
        if (of.mean != nullptr) of.mean[s] = static_cast<A>(centre);
        of.rstd[s] = static_cast<A>(1 / std::sqrt(of.squares[s] / spec.count + spec.eps));
        if (of.running_mean != nullptr) blend(of.running_mean[s], centre);
        if (of.running_variance != nullptr)
          blend(of.running_variance[s], of.squares[s] / (spec.count > 1 ? spec.count - 1 : 1));
      }
    });
  }

  void normalise(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView bias, TensorView mean,
                 TensorView rstd, TensorView y) override {
    constexpr const char* kWhere = "part norm normalise";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const PartNormArgs<S> args(spec, x, gain, bias, mean, rstd, kWhere);
      S* out = checked<S>(y, x.elements(), kWhere, "y");
      for_sets(args.of, [&](std::int64_t set) {
        const A centre = args.mean_of(set), scale = args.rstd[set];
        for_set(args.of, set, [&](std::int64_t i, std::int64_t j) {
          const A h = (widen(args.x[i]) - centre) * scale;
          out[i] = narrow<S>(h * args.at(args.gain, set, j, 1) + args.at(args.bias, set, j, 0));
        });
      });
    });
  }

  void backward_sums(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView mean,
                     TensorView rstd, TensorView dy, TensorView sums) override {
    constexpr const char* kWhere = "part norm backward_sums";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const PartNormArgs<S> args(spec, x, gain, {}, mean, rstd, kWhere);
      const S* above = checked<S>(dy, x.elements(), kWhere, "dy");
      auto* out = checked<double>(sums, 2 * args.of.sets, kWhere, "sums");
      for_sets(args.of, [&](std::int64_t set) {
        const double centre = args.mean_of(set), scale = args.rstd[set];
        const auto g = [&](std::int64_t i, std::int64_t j) {
          return static_cast<double>(widen(above[i])) * static_cast<double>(args.own_gain(j));
        };
        out[set] = set_sum(args.of, set, g);
        out[args.of.sets + set] = set_sum(args.of, set, [&](std::int64_t i, std::int64_t j) {
          return g(i, j) * ((static_cast<double>(widen(args.x[i])) - centre) * scale);
        });
      });
    });
  }

  void backward(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView mean, TensorView rstd,
                TensorView dy, TensorView sums, TensorView dx, bool accumulate) override {
    constexpr const char* kWhere = "part norm backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const PartNormArgs<S> args(spec, x, gain, {}, mean, rstd, kWhere);
      const S* above = checked<S>(dy, x.elements(), kWhere, "dy");
      const auto* totals = checked<double>(sums, 2 * args.of.sets, kWhere, "sums");
      S* out = checked<S>(dx, x.elements(), kWhere, "dx");
      for_sets(args.of, [&](std::int64_t set) {
        const A centre = args.mean_of(set), scale = args.rstd[set];
        const A mean_g = args.mean == nullptr ? 0 : static_cast<A>(totals[set] / spec.count);
        const A mean_gh = static_cast<A>(totals[args.of.sets + set] / spec.count);
        const A factor = args.per_set ? scale * args.at(args.gain, set, 0, 1) : scale;
        for_set(args.of, set, [&](std::int64_t i, std::int64_t j) {
          const A h = (widen(args.x[i]) - centre) * scale;
          const A d = factor * (widen(above[i]) * args.own_gain(j) - mean_g - h * mean_gh);
          out[i] = narrow<S>(accumulate ? widen(out[i]) + d : d);
        });
      });
    });
  }
};

}  // namespace

std::unique_ptr<PartNormOps> make_part_norm_ops() {
  return std::make_unique<CpuPartNormOps>();
}

}  // namespace tenon::cpu
