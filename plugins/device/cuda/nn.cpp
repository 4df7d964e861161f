// Normalisation, pointwise maps, dropout and softmax cross-entropy (family NeuralOps).
#include "common.hpp"
#include "device_common/neural.hpp"
#include "sums.hpp"

#include <tenon/kernels/cuda/pointwise.hpp>
#include <tenon/kernels/cuda/softmax.hpp>
#include <tenon/kernels/elementwise.hpp>

#include <limits>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaNeuralOps final : public NeuralOps {
 public:
  explicit CudaNeuralOps(Queue& queue) : queue_(queue) {}

  void layer_norm(TensorView x, TensorView gain, TensorView bias, double eps, TensorView y, TensorView mean,
                  TensorView rstd) override {
    constexpr const char* kWhere = "layer_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      normalise_rows(queue_, device_arguments::row_norm<S>(x, gain, bias, eps, y, mean, rstd, kWhere), true,
                     kWhere);
    });
  }

  void layer_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd, TensorView dy,
                           TensorView dx, bool accumulate, TensorView dgain, TensorView dbias,
                           bool accumulate_parameters, TensorView) override {
    constexpr const char* kWhere = "layer_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const device_arguments::RowNormGradient of{x,  gain,       &mean, rstd,  dy,
                                                 dx, accumulate, dgain, dbias, accumulate_parameters};
      normalise_rows_backward(queue_, device_arguments::row_norm_backward<S>(of, kWhere), kWhere);
    });
  }

  /// Partial sums are in the queue's own scratch.
  std::size_t layer_norm_scratch(std::int64_t, std::int64_t, DType) const override { return 0; }

  void activation(Epilogue map, TensorView x, TensorView y) override {
    constexpr const char* kWhere = "activation";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto of = device_arguments::pointwise<S>(x, y, kWhere);
      this->map(kWhere, of.out, of.n, bodies::Activation<S>{of.x, map_of(map)});
    });
  }

  void activation_backward(Epilogue map, TensorView x, TensorView dy, TensorView dx,
                           bool accumulate) override {
    constexpr const char* kWhere = "activation_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto of = device_arguments::pointwise_backward<S>(x, dy, dx, kWhere);
      this->map(kWhere, of.out, of.n,
                bodies::ActivationBackward<S>{of.x, of.dy, accumulate ? of.out : nullptr, map_of(map)});
    });
  }

  void dropout(TensorView x, TensorView y, double p, RandomKey key, std::uint64_t step, std::uint64_t first,
               bool accumulate) override {
    device_arguments::check_dropout(p);
    with_storage(x.dtype, "dropout", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto of = device_arguments::pointwise<S>(x, y, "dropout");
      const bodies::Dropout<S> body{of.x,
                                    of.out,
                                    of.n,
                                    device_arguments::step_key(key, step),
                                    first,
                                    kernels::dropout_threshold(p),
                                    static_cast<Arith<S>>(1.0 / (1.0 - p)),
                                    accumulate};
      if (of.n > 0) queue_.launch("dropout", grid_for(body.blocks()), body);
    });
  }

  void softmax_cross_entropy(TensorView logits, TensorView targets, double smoothing, TensorView loss,
                             TensorView lse) override {
    constexpr const char* kWhere = "softmax_cross_entropy";
    with_storage(logits.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto args = loss_args<S>(logits, targets, kWhere);
      device_arguments::cross_entropy_outputs(args, loss, lse, kWhere);
      const bodies::CrossEntropy<S> body{.rows = args.rows,
                                         .columns = args.cols,
                                         .logits = args.logits,
                                         .targets = args.targets,
                                         .smoothing = smoothing,
                                         .loss = args.loss,
                                         .lse = args.lse};
      if (args.rows > 0)
        queue_.launch(kWhere, bodies::grid_for_rows(args.rows, args.cols, body.kShared), body);
    });
  }

  void softmax_cross_entropy_backward(TensorView logits, TensorView targets, double smoothing, TensorView lse,
                                      double scale, TensorView dlogits) override {
    constexpr const char* kWhere = "softmax_cross_entropy_backward";
    with_storage(logits.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      if (dlogits.dtype == logits.dtype) {
        loss_gradient<S, S>(logits, targets, smoothing, lse, scale, dlogits, kWhere);
      } else {
        loss_gradient<S, Bf16>(logits, targets, smoothing, lse, scale, dlogits, kWhere);
      }
    });
  }

 private:
  template <class S>
  kernels::CrossEntropyArgs<S> loss_args(const TensorView& logits, const TensorView& targets,
                                         const char* where) {
    const auto check = [&](const std::int32_t* wanted, std::int64_t rows, std::int64_t columns) {
      check_indices(queue_, wanted, rows, std::numeric_limits<std::int32_t>::min(), columns, where,
                    "targets");
    };
    return device_arguments::cross_entropy_inputs<S>(logits, targets, where, check);
  }

  template <class S, class Map>
  void map(const char* where, S* y, std::int64_t n, const Map& map) {
    if (n > 0) queue_.launch(where, grid_for(n), bodies::MapElements<S, Map>{y, n, map});
  }

  template <class S, class To>
  void loss_gradient(const TensorView& logits, const TensorView& targets, double smoothing,
                     const TensorView& lse, double scale, const TensorView& dlogits, const char* where) {
    auto args = loss_args<S>(logits, targets, where);
    device_arguments::cross_entropy_gradient(args, lse, smoothing, scale, where);
    To* const out = checked<To>(dlogits, args.rows * args.cols, where, "dlogits");
    const bodies::CrossEntropyGradient<S, To> body{.rows = args.rows,
                                                   .columns = args.cols,
                                                   .logits = args.logits,
                                                   .targets = args.targets,
                                                   .lse = args.lse,
                                                   .scale = args.scale,
                                                   .peak = args.peak,
                                                   .floor = args.floor,
                                                   .dlogits = out};
    if (args.rows > 0 && args.cols > 0)
      queue_.launch(where, bodies::grid_for_rows(args.rows, args.cols, 0), body);
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<NeuralOps> make_neural_ops(Queue& queue) {
  return std::make_unique<CudaNeuralOps>(queue);
}

}  // namespace tenon::cuda
