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
      const auto args = device_arguments::batch_norm<S>(spec, x, gain, bias, running_mean, running_variance,
                                                        y, mean, rstd, kWhere);
      const auto norm = norm_of<S>(args, args.bias, args.mean, args.rstd);
      const bodies::Sets& of = norm.of;
      const double count = static_cast<double>(of.outer * of.inner);
      if (of.sets == 0) return;
      const Temporary memory(queue_, 2 * of.sets * sizeof(double), kPartialBytes);
      auto* const sums = memory.at<double>();
      double* const squares = sums + of.sets;
      sum_sets<1>(queue_, kWhere, of, bodies::SetElements<S>{norm.x}, {{sums}, false});
      sum_sets<1>(queue_, kWhere, of, bodies::SetSquares<S>{norm.x, sums, count}, {{squares}, false});
      queue_.launch(kWhere, grid_for(of.sets),
                    bodies::SetStatistics<A>{of.sets, count, spec.eps, spec.momentum, sums, squares,
                                             args.mean, args.rstd, args.running_mean, args.running_variance});
      map_sets(queue_, kWhere, of, args.y, bodies::Normalised<S>{norm});
    });
  }

  void batch_norm_fixed(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                        TensorView mean, TensorView variance, TensorView y) override {
    constexpr const char* kWhere = "batch_norm_fixed";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const auto args = device_arguments::batch_norm_fixed<S>(spec, x, gain, bias, mean, variance, y, kWhere);
      if (args.channels == 0) return;
      const Temporary memory(queue_, args.channels * sizeof(A));
      auto* const deviations = memory.at<A>();
      const auto norm = norm_of<S>(args, args.bias, args.running_mean, deviations);
      const bodies::Sets& of = norm.of;
      const bodies::FixedDeviations<A> map{args.running_variance, args.eps};
      queue_.launch(kWhere, grid_for(of.sets),
                    bodies::MapElements<A, bodies::FixedDeviations<A>>{deviations, of.sets, map});
      map_sets(queue_, kWhere, of, args.y, bodies::Normalised<S>{norm});
    });
  }

  void batch_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd, TensorView dy,
                           TensorView dx, bool accumulate, TensorView dgain, TensorView dbias,
                           bool accumulate_parameters) override {
    constexpr const char* kWhere = "batch_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args = device_arguments::batch_norm_backward<S>(
          {x, gain, mean, rstd, dy, dx, accumulate, dgain, dbias, accumulate_parameters}, kWhere);
      const auto norm = norm_of<S>(args, nullptr, args.mean, args.rstd);
      const bodies::Sets& of = norm.of;
      if (of.sets == 0) return;
      const Temporary memory(queue_, 2 * of.sets * sizeof(double), kPartialBytes);
      auto* const sums = memory.at<double>();
      double* const products = sums + of.sets;
      sum_sets<2>(queue_, kWhere, of, bodies::SetGradients<S>{norm, args.dy}, {{sums, products}, false});
      if (args.dgain != nullptr)
        sums_to_parameters(queue_, kWhere, products, args.dgain, of.sets, accumulate_parameters);
      if (args.dbias != nullptr)
        sums_to_parameters(queue_, kWhere, sums, args.dbias, of.sets, accumulate_parameters);
      if (args.dx == nullptr) return;
      map_sets(queue_, kWhere, of, args.dx,
               bodies::NormalisedBackward<S>{norm, static_cast<double>(of.outer * of.inner), args.dy, sums,
                                             products, accumulate ? args.dx : nullptr});
    });
  }

 private:
  template <class S, class Args>
  static bodies::PartNorm<S> norm_of(const Args& args, const Arith<S>* bias, const Arith<S>* mean,
                                     const Arith<S>* rstd) {
    return {{args.batch, args.channels, args.places}, true, args.x, args.gain, bias, mean, rstd};
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<NormalisationOps> make_normalisation_ops(Queue& queue) {
  return std::make_unique<CudaNormalisationOps>(queue);
}

}  // namespace tenon::cuda
