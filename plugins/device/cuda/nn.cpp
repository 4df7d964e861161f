// Normalisation, pointwise maps, dropout and softmax cross-entropy (family NeuralOps).
#include "common.hpp"
#include "device_common/dropout.hpp"
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
      const std::int64_t n = x.elements();
      this->map(kWhere, checked<S>(y, n, kWhere, "y"), n,
                bodies::Activation<S>{checked<S>(x, n, kWhere, "x"), map_of(map)});
    });
  }

  void activation_backward(Epilogue map, TensorView x, TensorView dy, TensorView dx,
                           bool accumulate) override {
    constexpr const char* kWhere = "activation_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const std::int64_t n = x.elements();
      S* const out = checked<S>(dx, n, kWhere, "dx");
      this->map(kWhere, out, n,
                bodies::ActivationBackward<S>{checked<S>(x, n, kWhere, "x"), checked<S>(dy, n, kWhere, "dy"),
                                              accumulate ? out : nullptr, map_of(map)});
    });
  }

  void dropout(TensorView x, TensorView y, double p, RandomKey key, std::uint64_t step, std::uint64_t first,
               bool accumulate) override {
    device_arguments::check_dropout(p);
    with_storage(x.dtype, "dropout", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const std::int64_t n = x.elements();
      const bodies::Dropout<S> body{checked<S>(x, n, "dropout", "x"),
                                    checked<S>(y, n, "dropout", "y"),
                                    n,
                                    device_arguments::step_key(key, step),
                                    first,
                                    kernels::dropout_threshold(p),
                                    static_cast<Arith<S>>(1.0 / (1.0 - p)),
                                    accumulate};
      if (n > 0) queue_.launch("dropout", grid_for(body.blocks()), body);
    });
  }

  void softmax_cross_entropy(TensorView logits, TensorView targets, double smoothing, TensorView loss,
                             TensorView lse) override {
    constexpr const char* kWhere = "softmax_cross_entropy";
    with_storage(logits.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const auto [rows, columns] = as_matrix(logits);
      const bodies::CrossEntropy<S> body{.rows = rows,
                                         .columns = columns,
                                         .logits = checked<S>(logits, rows * columns, kWhere, "logits"),
                                         .targets = checked<std::int32_t>(targets, rows, kWhere, "targets"),
                                         .smoothing = smoothing,
                                         .loss = checked_or_null<A>(loss, rows, kWhere, "loss"),
                                         .lse = checked_or_null<A>(lse, rows, kWhere, "lse")};
      check_indices(queue_, body.targets, rows, std::numeric_limits<std::int32_t>::min(), columns, kWhere,
                    "targets");
      if (rows > 0) queue_.launch(kWhere, bodies::grid_for_rows(rows, columns, body.kShared), body);
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
  template <class S, class Map>
  void map(const char* where, S* y, std::int64_t n, const Map& map) {
    if (n > 0) queue_.launch(where, grid_for(n), bodies::MapElements<S, Map>{y, n, map});
  }

  template <class S, class To>
  void loss_gradient(const TensorView& logits, const TensorView& targets, double smoothing,
                     const TensorView& lse, double scale, const TensorView& dlogits, const char* where) {
    using A = Arith<S>;
    const auto [rows, columns] = as_matrix(logits);
    const auto* const wanted = checked<std::int32_t>(targets, rows, where, "targets");
    check_indices(queue_, wanted, rows, std::numeric_limits<std::int32_t>::min(), columns, where, "targets");
    map(where, checked<To>(dlogits, rows * columns, where, "dlogits"), rows * columns,
        bodies::CrossEntropyGradient<S, To>{
            .columns = columns,
            .logits = checked<S>(logits, rows * columns, where, "logits"),
            .targets = wanted,
            .lse = checked<A>(lse, rows, where, "lse"),
            .scale = static_cast<A>(scale),
            .peak = static_cast<A>(1 - smoothing),
            .floor = static_cast<A>(columns == 0 ? 0 : smoothing / static_cast<double>(columns))});
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<NeuralOps> make_neural_ops(Queue& queue) {
  return std::make_unique<CudaNeuralOps>(queue);
}

}  // namespace tenon::cuda
