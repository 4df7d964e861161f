// RMS and batch normalisation (family NormalisationOps). Rows, columns or channels are shared among threads,
// and one thread sums each of them whole.
#include "common.hpp"
#include "device_common/norms.hpp"

namespace tenon::cpu {
namespace {

using kernels::Arith;

class CpuNormalisationOps final : public NormalisationOps {
 public:
  explicit CpuNormalisationOps(const Kernels& kernels) : kernels_(kernels) {}

  void rms_norm(TensorView x, TensorView gain, double eps, TensorView y, TensorView rstd) override {
    constexpr const char* kWhere = "rms_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args = device_arguments::row_norm<S>(x, gain, {}, eps, y, {}, rstd, kWhere);
      parallel_for(args.rows, row_block(args.cols), [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<S>().norm.rms_norm_forward(args, begin, end);
      });
    });
  }

  void rms_norm_backward(TensorView x, TensorView gain, TensorView rstd, TensorView dy, TensorView dx,
                         bool accumulate, TensorView dgain, bool accumulate_parameters) override {
    constexpr const char* kWhere = "rms_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const TensorView none;
      const auto args = device_arguments::row_norm_backward<S>(
          {x, gain, nullptr, rstd, dy, dx, accumulate, dgain, none, accumulate_parameters}, kWhere);
      const auto& ops = kernels_.ops<S>().norm;
      // Parameters first: dx may be dy's own memory.
      if (args.dgain != nullptr) {
        parallel_for(args.cols, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
          ops.rms_norm_backward_params(args, begin, end);
        });
      }
      if (args.dx == nullptr) return;
      parallel_for(args.rows, row_block(args.cols), [&](std::int64_t begin, std::int64_t end) {
        ops.rms_norm_backward_input(args, begin, end);
      });
    });
  }

  void batch_norm(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                  TensorView running_mean, TensorView running_variance, TensorView y, TensorView mean,
                  TensorView rstd) override {
    constexpr const char* kWhere = "batch_norm";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      auto args = forward_args<S>(spec, x, gain, bias, y, kWhere);
      args.mean = checked<A>(mean, args.channels, kWhere, "mean");
      args.rstd = checked<A>(rstd, args.channels, kWhere, "rstd");
      args.running_mean = checked_or_null<A>(running_mean, args.channels, kWhere, "running_mean");
      args.running_variance = checked_or_null<A>(running_variance, args.channels, kWhere, "running_variance");
      for_channels(args, kernels_.ops<S>().batch_norm.forward);
    });
  }

  void batch_norm_fixed(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                        TensorView mean, TensorView variance, TensorView y) override {
    constexpr const char* kWhere = "batch_norm_fixed";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      auto args = forward_args<S>(spec, x, gain, bias, y, kWhere);
      args.running_mean = checked<A>(mean, args.channels, kWhere, "mean");
      args.running_variance = checked<A>(variance, args.channels, kWhere, "variance");
      for_channels(args, kernels_.ops<S>().batch_norm.fixed);
    });
  }

  void batch_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd, TensorView dy,
                           TensorView dx, bool accumulate, TensorView dgain, TensorView dbias,
                           bool accumulate_parameters) override {
    constexpr const char* kWhere = "batch_norm_backward";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const auto [batch, channels, places] = device_arguments::channels_as_sets(x, kWhere);
      kernels::BatchNormBackwardArgs<S> args;
      args.batch = batch;
      args.channels = channels;
      args.places = places;
      args.x = checked<S>(x, x.elements(), kWhere, "x");
      args.dy = checked<S>(dy, x.elements(), kWhere, "dy");
      args.gain = checked_or_null<A>(gain, channels, kWhere, "gain");
      args.mean = checked<A>(mean, channels, kWhere, "mean");
      args.rstd = checked<A>(rstd, channels, kWhere, "rstd");
      args.dx = checked_or_null<S>(dx, x.elements(), kWhere, "dx");
      args.accumulate_dx = accumulate;
      args.dgain = checked_or_null<A>(dgain, channels, kWhere, "dgain");
      args.dbias = checked_or_null<A>(dbias, channels, kWhere, "dbias");
      args.accumulate_params = accumulate_parameters;
      for_channels(args, kernels_.ops<S>().batch_norm.backward);
    });
  }

 private:
  template <class S>
  static kernels::BatchNormForwardArgs<S> forward_args(const BatchNormSpec& spec, const TensorView& x,
                                                       const TensorView& gain, const TensorView& bias,
                                                       const TensorView& y, const char* where) {
    using A = Arith<S>;
    const auto [batch, channels, places] = device_arguments::channels_as_sets(x, where);
    kernels::BatchNormForwardArgs<S> args;
    args.batch = batch;
    args.channels = channels;
    args.places = places;
    args.eps = static_cast<A>(spec.eps);
    args.momentum = spec.momentum;
    args.x = checked<S>(x, x.elements(), where, "x");
    args.gain = checked_or_null<A>(gain, channels, where, "gain");
    args.bias = checked_or_null<A>(bias, channels, where, "bias");
    args.y = checked<S>(y, x.elements(), where, "y");
    return args;
  }

  template <class Args, class Kernel>
  static void for_channels(const Args& args, Kernel kernel) {
    parallel_for(args.channels, row_block(args.batch * args.places),
                 [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<NormalisationOps> make_normalisation_ops(const Kernels& kernels) {
  return std::make_unique<CpuNormalisationOps>(kernels);
}

}  // namespace tenon::cpu
