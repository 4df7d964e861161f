// Normalisations over elements of several ranks (family PartNormOps).
#include "common.hpp"
#include "device_common/norms.hpp"
#include "sums.hpp"

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

bodies::Sets sets_of(const device_arguments::NormSets& of) {
  return {of.outer, of.sets, of.inner};
}

template <class S>
bodies::PartNorm<S> norm_of(const PartNormSpec& spec, const TensorView& x, const TensorView& gain,
                            const TensorView& bias, const TensorView& mean, const TensorView& rstd,
                            const char* where) {
  const device_arguments::PartNormInputs<S> in(spec, x, gain, bias, mean, rstd, where);
  return {sets_of(in.of), in.per_set, in.x, in.gain, in.bias, in.mean, in.rstd};
}

class CudaPartNormOps final : public PartNormOps {
 public:
  explicit CudaPartNormOps(Queue& queue) : queue_(queue) {}

  void sums(TensorView x, TensorView sums) override {
    constexpr const char* kWhere = "part norm sums";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const device_arguments::PartNormSums<S> args(x, sums, kWhere);
      sum_sets<1>(queue_, kWhere, sets_of(args.of), bodies::SetElements<S>{args.x}, {{args.out}, false});
    });
  }

  void squares(const PartNormSpec& spec, TensorView x, TensorView sums, TensorView squares) override {
    constexpr const char* kWhere = "part norm squares";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const device_arguments::PartNormSums<S> args(x, sums, squares, kWhere);
      const bodies::SetSquares<S> terms{args.x, args.sums, spec.count};
      sum_sets<1>(queue_, kWhere, sets_of(args.of), terms, {{args.out}, false});
    });
  }

  void statistics(const PartNormSpec& spec, TensorView sums, TensorView squares, TensorView mean,
                  TensorView rstd, TensorView running_mean, TensorView running_variance) override {
    constexpr const char* kWhere = "part norm statistics";
    with_arithmetic(rstd.dtype, kWhere, [&](auto tag) {
      using A = typename decltype(tag)::type;
      const device_arguments::PartNormStatistics<A> of(sums, squares, mean, rstd, running_mean,
                                                       running_variance, kWhere);
      const bodies::SetStatistics<A> body{of.sets,         spec.count,         spec.eps, spec.momentum,
                                          of.sums,         of.squares,         of.mean,  of.rstd,
                                          of.running_mean, of.running_variance};
      if (of.sets > 0) queue_.launch(kWhere, grid_for(of.sets), body);
    });
  }

  void normalise(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView bias, TensorView mean,
                 TensorView rstd, TensorView y) override {
    constexpr const char* kWhere = "part norm normalise";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto norm = norm_of<S>(spec, x, gain, bias, mean, rstd, kWhere);
      map_sets(queue_, kWhere, norm.of, checked<S>(y, x.elements(), kWhere, "y"),
               bodies::Normalised<S>{norm});
    });
  }

  void backward_sums(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView mean,
                     TensorView rstd, TensorView dy, TensorView sums) override {
    constexpr const char* kWhere = "part norm backward_sums";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto norm = norm_of<S>(spec, x, gain, {}, mean, rstd, kWhere);
      const bodies::SetGradients<S> terms{norm, checked<S>(dy, x.elements(), kWhere, "dy")};
      auto* const out = checked<double>(sums, 2 * norm.of.sets, kWhere, "sums");
      sum_sets<2>(queue_, kWhere, norm.of, terms, {{out, out + norm.of.sets}, false});
    });
  }

  void backward(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView mean, TensorView rstd,
                TensorView dy, TensorView sums, TensorView dx, bool accumulate) override {
    constexpr const char* kWhere = "part norm backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto norm = norm_of<S>(spec, x, gain, {}, mean, rstd, kWhere);
      const auto* const totals = checked<double>(sums, 2 * norm.of.sets, kWhere, "sums");
      S* const out = checked<S>(dx, x.elements(), kWhere, "dx");
      map_sets(queue_, kWhere, norm.of, out,
               bodies::NormalisedBackward<S>{norm, spec.count, checked<S>(dy, x.elements(), kWhere, "dy"),
                                             totals, totals + norm.of.sets, accumulate ? out : nullptr});
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<PartNormOps> make_part_norm_ops(Queue& queue) {
  return std::make_unique<CudaPartNormOps>(queue);
}

}  // namespace tenon::cuda
