// Normalisation, pointwise maps, dropout and softmax cross-entropy (family NeuralOps). Rows or elements are
// shared among threads; sums over rows belong to blocks of columns, each walked in row order.
#include "common.hpp"
#include "device_common/neural.hpp"
#include "device_common/norms.hpp"

#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/reference/scalar.hpp>

#include <limits>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::Bf16;

/// Rows of logits per call of a kernel; their running state is on the stack.
constexpr std::int64_t kLossRows = 16;

class CpuNeuralOps final : public NeuralOps {
 public:
  explicit CpuNeuralOps(const Kernels& kernels) : kernels_(kernels) {}

  void layer_norm(TensorView x, TensorView gain, TensorView bias, double eps, TensorView y, TensorView mean,
                  TensorView rstd) override {
    constexpr const char* kWhere = "layer_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args = device_arguments::row_norm<S>(x, gain, bias, eps, y, mean, rstd, kWhere);
      parallel_for(args.rows, row_block(args.cols), [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<S>().norm.layer_norm_forward(args, begin, end);
      });
    });
  }

  void layer_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd, TensorView dy,
                           TensorView dx, bool accumulate, TensorView dgain, TensorView dbias,
                           bool accumulate_parameters, TensorView) override {
    constexpr const char* kWhere = "layer_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args = device_arguments::row_norm_backward<S>(
          {x, gain, &mean, rstd, dy, dx, accumulate, dgain, dbias, accumulate_parameters}, kWhere);
      const auto& ops = kernels_.ops<S>().norm;
      // Parameters first: dx may be dy's own memory.
      if (args.dgain != nullptr || args.dbias != nullptr) {
        parallel_for(args.cols, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
          ops.layer_norm_backward_params(args, begin, end);
        });
      }
      if (args.dx != nullptr) {
        parallel_for(args.rows, row_block(args.cols), [&](std::int64_t begin, std::int64_t end) {
          ops.layer_norm_backward_input(args, begin, end);
        });
      }
    });
  }

  std::size_t layer_norm_scratch(std::int64_t, std::int64_t, DType) const override { return 0; }

  void activation(Epilogue map, TensorView x, TensorView y) override {
    with_storage(x.dtype, "activation", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto of = device_arguments::pointwise<S>(x, y, "activation");
      parallel_for(of.n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        map_forward(kernels_, map, of.x + begin, of.out + begin, end - begin);
      });
    });
  }

  void activation_backward(Epilogue map, TensorView x, TensorView dy, TensorView dx,
                           bool accumulate) override {
    constexpr const char* kWhere = "activation_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto of = device_arguments::pointwise_backward<S>(x, dy, dx, kWhere);
      parallel_for(of.n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        if (!accumulate) {
          map_backward(kernels_, map, of.x + begin, of.dy + begin, of.out + begin, end - begin);
          return;
        }
        // In the arithmetic type, so that bf16 is rounded once, after the sum.
        Arith<S> wide_x[kStackElements], slope[kStackElements];
        for (; begin < end; begin += kStackElements) {
          const std::int64_t count = std::min(kStackElements, end - begin);
          convert_block(kernels_, of.x + begin, wide_x, count);
          convert_block(kernels_, of.dy + begin, slope, count);
          map_backward(kernels_, map, wide_x, slope, slope, count);
          kernels_.ops<S>().elementwise.add_bias(of.out + begin, slope, of.out + begin, 1, count);
        }
      });
    });
  }

  void dropout(TensorView x, TensorView y, double p, RandomKey key, std::uint64_t step, std::uint64_t first,
               bool accumulate) override {
    device_arguments::check_dropout(p);
    const std::uint64_t stream = device_arguments::step_key(key, step);
    const std::uint32_t threshold = kernels::dropout_threshold(p);
    with_storage(x.dtype, "dropout", [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const auto of = device_arguments::pointwise<S>(x, y, "dropout");
      const A scale = static_cast<A>(1.0 / (1.0 - p));
      parallel_for(of.n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        const auto at = [&](std::int64_t i) { return first + static_cast<std::uint64_t>(i); };
        if (!accumulate) {
          kernels_.ops<S>().elementwise.dropout(stream, at(begin), threshold, scale, of.x + begin,
                                                of.out + begin, end - begin);
          return;
        }
        A kept[kStackElements];
        for (; begin < end; begin += kStackElements) {
          const std::int64_t count = std::min(kStackElements, end - begin);
          convert_block(kernels_, of.x + begin, kept, count);
          kernels_.ops<A>().elementwise.dropout(stream, at(begin), threshold, scale, kept, kept, count);
          kernels_.ops<S>().elementwise.add_bias(of.out + begin, kept, of.out + begin, 1, count);
        }
      });
    });
  }

  void softmax_cross_entropy(TensorView logits, TensorView targets, double smoothing, TensorView loss,
                             TensorView lse) override {
    constexpr const char* kWhere = "softmax_cross_entropy";
    with_storage(logits.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      kernels::CrossEntropyArgs<S> args = loss_args<S>(logits, targets, kWhere);
      device_arguments::cross_entropy_outputs(args, loss, lse, kWhere);
      const auto& ops = kernels_.ops<S>().softmax;
      parallel_for(args.rows, std::min(kLossRows, row_block(args.cols)),
                   [&](std::int64_t begin, std::int64_t end) {
                     A most[kLossRows], sum[kLossRows], target[kLossRows];
                     auto part = args;
                     part.rows = end - begin;
                     part.logits += begin * part.ld;
                     part.targets += begin;
                     if (part.loss != nullptr) part.loss += begin;
                     if (part.lse != nullptr) part.lse += begin;
                     part.running_max = most;
                     part.running_sum = sum;
                     part.target_logit = target;
                     ops.cross_entropy_begin(part, 0, part.rows);
                     ops.cross_entropy_chunk(part, 0, part.rows);
                     ops.cross_entropy_finish(part, 0, part.rows);
                     if (smoothing > 0 && part.loss != nullptr) smooth(part, smoothing);
                   });
    });
  }

  void softmax_cross_entropy_backward(TensorView logits, TensorView targets, double smoothing, TensorView lse,
                                      double scale, TensorView dlogits) override {
    constexpr const char* kWhere = "softmax_cross_entropy_backward";
    with_storage(logits.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      kernels::CrossEntropyArgs<S> args = loss_args<S>(logits, targets, kWhere);
      device_arguments::cross_entropy_gradient(args, lse, smoothing, scale, kWhere);
      const auto& ops = kernels_.ops<S>().softmax;
      const std::int64_t block = row_block(args.cols);
      if (dlogits.dtype == logits.dtype) {
        args.dlogits = checked<S>(dlogits, args.rows * args.cols, kWhere, "dlogits");
        parallel_for(args.rows, block, [&](std::int64_t begin, std::int64_t end) {
          ops.cross_entropy_backward(args, begin, end);
        });
        return;
      }
      Bf16* narrow = checked<Bf16>(dlogits, args.rows * args.cols, kWhere, "dlogits");
      parallel_for(args.rows, block, [&](std::int64_t begin, std::int64_t end) {
        S wide[kStackElements];
        for (std::int64_t row = begin; row < end; ++row) {
          for (std::int64_t column = 0; column < args.cols; column += kStackElements) {
            auto part = args;
            part.rows = 1;
            part.cols = std::min(kStackElements, args.cols - column);
            part.col_begin = column;
            part.logits += row * args.ld + column;
            part.targets += row;
            part.lse += row;
            part.dlogits = wide;
            ops.cross_entropy_backward(part, 0, 1);
            convert_block(kernels_, wide, narrow + row * args.ld + column, part.cols);
          }
        }
      });
    });
  }

 private:
  template <class S>
  kernels::CrossEntropyArgs<S> loss_args(const TensorView& logits, const TensorView& targets,
                                         const char* where) const {
    return device_arguments::cross_entropy_inputs<S>(
        logits, targets, where, [&](const std::int32_t* wanted, std::int64_t rows, std::int64_t columns) {
          check_indices(wanted, rows, std::numeric_limits<std::int32_t>::min(), columns, where, "targets");
        });
  }

  /// loss += smoothing (logit of the target - mean of the row's logits): lse has the weight 1 either way.
  template <class S>
  static void smooth(const kernels::CrossEntropyArgs<S>& args, double smoothing) {
    for (std::int64_t row = 0; row < args.rows; ++row) {
      if (args.targets[row] < 0) continue;
      const S* logits = args.logits + row * args.ld;
      double sum = 0;
      for (std::int64_t column = 0; column < args.cols; ++column)
        sum += static_cast<double>(kernels::reference::get(logits[column]));
      const auto target = static_cast<double>(kernels::reference::get(logits[args.targets[row]]));
      args.loss[row] = static_cast<Arith<S>>(static_cast<double>(args.loss[row]) +
                                             smoothing * (target - sum / static_cast<double>(args.cols)));
    }
  }

  Kernels kernels_;
};

/// y = max(x, 0) or its square; a NaN stays.
template <class S>
S rectify(S x, bool squared) {
  if constexpr (std::is_same_v<S, Bf16>) {
    // A NaN is above infinity in magnitude, whatever its sign.
    if (x.bits >= 0x8000u && x.bits <= 0xff80u) return Bf16{0};
    const float wide = kernels::to_float(x);
    return squared ? kernels::to_bf16(wide * wide) : x;
  } else {
    return x <= 0 ? S{0} : squared ? x * x : x;
  }
}

/// dx = dy or 2 x dy where x > 0, else 0.
template <class S>
S rectify_backward(S x, S dy, bool squared) {
  using A = Arith<S>;
  const A wide = kernels::reference::get(x);
  if (!(wide > 0)) return kernels::reference::put<S>(0);
  return squared ? kernels::reference::put<S>(2 * wide * kernels::reference::get(dy)) : dy;
}

}  // namespace

template <class S>
void map_forward(const Kernels& kernels, Epilogue map, const S* x, S* y, std::int64_t n) {
  const auto& ops = kernels.ops<S>().elementwise;
  switch (map) {
    case Epilogue::kNone:
      return convert_block(kernels, x, y, n);
    case Epilogue::kGeluTanh:
      return ops.gelu_tanh_forward(x, y, n);
    case Epilogue::kGeluExact:
      return ops.gelu_erf_forward(x, y, n);
    case Epilogue::kSilu:
      return ops.silu_forward(x, y, n);
    case Epilogue::kRelu:
      for (std::int64_t i = 0; i < n; ++i) y[i] = rectify(x[i], false);
      return;
    case Epilogue::kSquaredRelu:
      for (std::int64_t i = 0; i < n; ++i) y[i] = rectify(x[i], true);
      return;
  }
}

template <class S>
void map_backward(const Kernels& kernels, Epilogue map, const S* x, const S* dy, S* dx, std::int64_t n) {
  const auto& ops = kernels.ops<S>().elementwise;
  switch (map) {
    case Epilogue::kNone:
      return convert_block(kernels, dy, dx, n);
    case Epilogue::kGeluTanh:
      return ops.gelu_tanh_backward(x, dy, dx, n);
    case Epilogue::kGeluExact:
      return ops.gelu_erf_backward(x, dy, dx, n);
    case Epilogue::kSilu:
      return ops.silu_backward(x, dy, dx, n);
    case Epilogue::kRelu:
      for (std::int64_t i = 0; i < n; ++i) dx[i] = rectify_backward(x[i], dy[i], false);
      return;
    case Epilogue::kSquaredRelu:
      for (std::int64_t i = 0; i < n; ++i) dx[i] = rectify_backward(x[i], dy[i], true);
      return;
  }
}

template void map_forward(const Kernels&, Epilogue, const float*, float*, std::int64_t);
template void map_forward(const Kernels&, Epilogue, const double*, double*, std::int64_t);
template void map_forward(const Kernels&, Epilogue, const Bf16*, Bf16*, std::int64_t);
template void map_backward(const Kernels&, Epilogue, const float*, const float*, float*, std::int64_t);
template void map_backward(const Kernels&, Epilogue, const double*, const double*, double*, std::int64_t);
template void map_backward(const Kernels&, Epilogue, const Bf16*, const Bf16*, Bf16*, std::int64_t);

std::unique_ptr<NeuralOps> make_neural_ops(const Kernels& kernels) {
  return std::make_unique<CpuNeuralOps>(kernels);
}

}  // namespace tenon::cpu
