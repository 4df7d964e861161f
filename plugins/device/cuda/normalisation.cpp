// RMS and batch normalisation (family NormalisationOps). Channels are the sets of part_norm.hpp, with all
// elements on this rank.
#include "common.hpp"
#include "sums.hpp"

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaNormalisationOps final : public NormalisationOps {
 public:
  explicit CudaNormalisationOps(Queue& queue) : queue_(queue) {}

  void rms_norm(TensorView x, TensorView gain, double eps, TensorView y, TensorView rstd) override {
    constexpr const char* kWhere = "rms_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      normalise_rows(queue_, device_arguments::row_norm<S>(x, gain, {}, eps, y, {}, rstd, kWhere), false,
                     kWhere);
    });
  }

  void rms_norm_backward(TensorView x, TensorView gain, TensorView rstd, TensorView dy, TensorView dx,
                         bool accumulate, TensorView dgain, bool accumulate_parameters) override {
    constexpr const char* kWhere = "rms_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const TensorView none;
      const device_arguments::RowNormGradient of{x,  gain,       nullptr, rstd, dy,
                                                 dx, accumulate, dgain,   none, accumulate_parameters};
      normalise_rows_backward(queue_, device_arguments::row_norm_backward<S>(of, kWhere), kWhere);
    });
  }

  void batch_norm(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                  TensorView running_mean, TensorView running_variance, TensorView y, TensorView mean,
                  TensorView rstd) override {
    constexpr const char* kWhere = "batch_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const bodies::Sets of = channels_of(x, kWhere);
      const double count = static_cast<double>(of.outer * of.inner);
      const auto norm = norm_of<S>(of, x, gain, bias, mean, rstd, kWhere);
      A* const old_mean = checked_or_null<A>(running_mean, of.sets, kWhere, "running_mean");
      A* const old_variance = checked_or_null<A>(running_variance, of.sets, kWhere, "running_variance");
      S* const out = checked<S>(y, x.elements(), kWhere, "y");
      if (of.sets == 0) return;
      const Temporary memory(queue_, 2 * of.sets * sizeof(double), kPartialBytes);
      auto* const sums = memory.at<double>();
      double* const squares = sums + of.sets;
      sum_sets<1>(queue_, kWhere, of, bodies::SetElements<S>{norm.x}, {{sums}, false});
      sum_sets<1>(queue_, kWhere, of, bodies::SetSquares<S>{norm.x, sums, count}, {{squares}, false});
      queue_.launch(kWhere, grid_for(of.sets),
                    bodies::SetStatistics<A>{of.sets, count, spec.eps, spec.momentum, sums, squares,
                                             mean.as<A>(), rstd.as<A>(), old_mean, old_variance});
      map_sets(queue_, kWhere, of, out, bodies::Normalised<S>{norm});
    });
  }

  void batch_norm_fixed(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                        TensorView mean, TensorView variance, TensorView y) override {
    constexpr const char* kWhere = "batch_norm_fixed";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const bodies::Sets of = channels_of(x, kWhere);
      const Temporary memory(queue_, of.sets * sizeof(A));
      auto norm = norm_of<S>(of, x, gain, bias, mean, variance, kWhere);
      S* const out = checked<S>(y, x.elements(), kWhere, "y");
      if (of.sets == 0) return;
      auto* const deviations = memory.at<A>();
      const bodies::FixedDeviations<A> map{norm.rstd, static_cast<A>(spec.eps)};
      queue_.launch(kWhere, grid_for(of.sets),
                    bodies::MapElements<A, bodies::FixedDeviations<A>>{deviations, of.sets, map});
      norm.rstd = deviations;
      map_sets(queue_, kWhere, of, out, bodies::Normalised<S>{norm});
    });
  }

  void batch_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd, TensorView dy,
                           TensorView dx, bool accumulate, TensorView dgain, TensorView dbias,
                           bool accumulate_parameters) override {
    constexpr const char* kWhere = "batch_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const bodies::Sets of = channels_of(x, kWhere);
      const auto norm = norm_of<S>(of, x, gain, {}, mean, rstd, kWhere);
      const S* const above = checked<S>(dy, x.elements(), kWhere, "dy");
      S* const out = checked_or_null<S>(dx, x.elements(), kWhere, "dx");
      A* const gains = checked_or_null<A>(dgain, of.sets, kWhere, "dgain");
      A* const biases = checked_or_null<A>(dbias, of.sets, kWhere, "dbias");
      if (of.sets == 0) return;
      const Temporary memory(queue_, 2 * of.sets * sizeof(double), kPartialBytes);
      auto* const sums = memory.at<double>();
      double* const products = sums + of.sets;
      sum_sets<2>(queue_, kWhere, of, bodies::SetGradients<S>{norm, above}, {{sums, products}, false});
      if (gains != nullptr)
        sums_to_parameters(queue_, kWhere, products, gains, of.sets, accumulate_parameters);
      if (biases != nullptr) sums_to_parameters(queue_, kWhere, sums, biases, of.sets, accumulate_parameters);
      if (out == nullptr) return;
      map_sets(queue_, kWhere, of, out,
               bodies::NormalisedBackward<S>{norm, static_cast<double>(of.outer * of.inner), above, sums,
                                             products, accumulate ? out : nullptr});
    });
  }

 private:
  template <class S>
  static bodies::PartNorm<S> norm_of(const bodies::Sets& of, const TensorView& x, const TensorView& gain,
                                     const TensorView& bias, const TensorView& mean, const TensorView& rstd,
                                     const char* where) {
    using A = Arith<S>;
    return {of,
            true,
            checked<S>(x, x.elements(), where, "x"),
            checked_or_null<A>(gain, of.sets, where, "gain"),
            checked_or_null<A>(bias, of.sets, where, "bias"),
            checked<A>(mean, of.sets, where, "mean"),
            checked<A>(rstd, of.sets, where, "rstd")};
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<NormalisationOps> make_normalisation_ops(Queue& queue) {
  return std::make_unique<CudaNormalisationOps>(queue);
}

}  // namespace tenon::cuda
