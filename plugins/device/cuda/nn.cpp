// Normalisation, pointwise maps, dropout and softmax cross-entropy (family NeuralOps).
#include "arguments.hpp"
#include "column_sums.hpp"
#include "epilogue_map.hpp"
#include "families.hpp"
#include "indices.hpp"

#include <tenon/kernels/cuda/dropout.hpp>
#include <tenon/kernels/cuda/norm.hpp>
#include <tenon/kernels/cuda/pointwise.hpp>
#include <tenon/kernels/cuda/softmax.hpp>
#include <tenon/kernels/elementwise.hpp>
#include <tenon/random.hpp>

#include <limits>
#include <string>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Kernels count elements within one key: the step goes into a key of its own, drawn where no element's index
/// lies. The same on every device.
std::uint64_t step_key(RandomKey key, std::uint64_t step) {
  const auto words = random_words(key, step, std::numeric_limits<std::uint64_t>::max());
  return words[0] | (std::uint64_t{words[1]} << 32);
}

class CudaNeuralOps final : public NeuralOps {
 public:
  explicit CudaNeuralOps(Queue& queue) : queue_(queue) {}

  void layer_norm(TensorView x, TensorView gain, TensorView bias, double eps, TensorView y, TensorView mean,
                  TensorView rstd) override {
    constexpr const char* kWhere = "layer_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const auto [rows, columns] = as_matrix(x);
      const bodies::NormaliseRows<S> body{.rows = rows,
                                          .columns = columns,
                                          .centred = true,
                                          .eps = static_cast<A>(eps),
                                          .x = checked<S>(x, rows * columns, kWhere, "x"),
                                          .gain = checked_or_null<A>(gain, columns, kWhere, "gain"),
                                          .bias = checked_or_null<A>(bias, columns, kWhere, "bias"),
                                          .y = checked<S>(y, rows * columns, kWhere, "y"),
                                          .mean = checked_or_null<A>(mean, rows, kWhere, "mean"),
                                          .rstd = checked_or_null<A>(rstd, rows, kWhere, "rstd")};
      if (rows > 0) queue_.launch(kWhere, bodies::grid_for_rows(rows, columns, body.kShared), body);
    });
  }

  void layer_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd, TensorView dy,
                           TensorView dx, bool accumulate, TensorView dgain, TensorView dbias,
                           bool accumulate_parameters, TensorView) override {
    constexpr const char* kWhere = "layer_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const auto [rows, columns] = as_matrix(x);
      const bodies::NormaliseRowsBackward<S> body{.rows = rows,
                                                  .columns = columns,
                                                  .x = checked<S>(x, rows * columns, kWhere, "x"),
                                                  .dy = checked<S>(dy, rows * columns, kWhere, "dy"),
                                                  .gain = checked_or_null<A>(gain, columns, kWhere, "gain"),
                                                  .mean = checked<A>(mean, rows, kWhere, "mean"),
                                                  .rstd = checked<A>(rstd, rows, kWhere, "rstd"),
                                                  .dx = checked_or_null<S>(dx, rows * columns, kWhere, "dx"),
                                                  .accumulate = accumulate};
      const bodies::ColumnOutputs<A, 2> parameters{{checked_or_null<A>(dgain, columns, kWhere, "dgain"),
                                                    checked_or_null<A>(dbias, columns, kWhere, "dbias")},
                                                   accumulate_parameters};
      // Parameters first: dx may be dy's own memory.
      if (parameters.out[0] != nullptr || parameters.out[1] != nullptr) {
        sum_columns<A, 2>(queue_, kWhere, rows, columns,
                          bodies::NormParameterTerms<S>{columns, body.x, body.dy, body.mean, body.rstd},
                          parameters);
      }
      if (body.dx != nullptr && rows > 0)
        queue_.launch(kWhere, bodies::grid_for_rows(rows, columns, body.kShared), body);
    });
  }

  /// Partial sums lie in the queue's own scratch.
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
    if (!(p >= 0 && p < 1)) {
      fail_config(std::string("device ") + kDeviceName + ": dropout: p is " + std::to_string(p) +
                  ", expected 0 <= p < 1");
    }
    with_storage(x.dtype, "dropout", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const std::int64_t n = x.elements();
      const bodies::Dropout<S> body{checked<S>(x, n, "dropout", "x"),
                                    checked<S>(y, n, "dropout", "y"),
                                    n,
                                    step_key(key, step),
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
