// RMS and batch normalisation (family NormalisationOps). Rows, columns or channels are shared among threads,
// and one thread sums each of them whole.
#include "common.hpp"
#include "device_common/norms.hpp"

namespace tenon::cpu {
namespace {

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
      const auto args = device_arguments::batch_norm<S>(spec, x, gain, bias, running_mean, running_variance,
                                                        y, mean, rstd, kWhere);
      for_channels(args, kernels_.ops<S>().batch_norm.forward);
    });
  }

  void batch_norm_fixed(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                        TensorView mean, TensorView variance, TensorView y) override {
    constexpr const char* kWhere = "batch_norm_fixed";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args = device_arguments::batch_norm_fixed<S>(spec, x, gain, bias, mean, variance, y, kWhere);
      for_channels(args, kernels_.ops<S>().batch_norm.fixed);
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
      for_channels(args, kernels_.ops<S>().batch_norm.backward);
    });
  }

 private:
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
