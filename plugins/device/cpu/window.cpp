// Sliding windows (family WindowOps): data movement of convolutions, pooling, and biases. Lines, planes or
// channels are shared among threads; each element is one chain of its own, so the split does not change a
// bit. The sum over a channel is in f64 over its samples; the points of a sample are added 16 side by side.
#include "common.hpp"
#include "device_common/windows.hpp"

namespace tenon::cpu {
namespace {

using device_arguments::WindowPlanes;

/// Points of one plane of [batch, channels, ...].
std::int64_t points_of(const TensorView& x) {
  const std::int64_t count = x.shape.rank() < 2 ? 0 : x.shape[0] * x.shape[1];
  return count == 0 ? 0 : x.elements() / count;
}

/// Items per block of a loop whose items cost `each` steps.
std::int64_t item_block(std::int64_t each) {
  return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, each));
}

template <class S>
kernels::Arith<S> sum_of(const S* values, std::int64_t count) {
  constexpr std::int64_t kChains = 16;
  kernels::Arith<S> sums[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (std::int64_t chain = 0; chain < kChains; ++chain) sums[chain] += widen(values[i + chain]);
  for (std::int64_t chain = 0; i < count; ++i, ++chain) sums[chain] += widen(values[i]);
  kernels::Arith<S> total = 0;
  for (const auto sum : sums) total += sum;
  return total;
}

class CpuWindowOps final : public WindowOps {
 public:
  explicit CpuWindowOps(const Kernels& kernels) : kernels_(kernels) {}

  void unfold(const WindowSpec& spec, TensorView x, std::int64_t first_channel, TensorView columns) override {
    with_storage(x.dtype, "unfold", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args =
          device_arguments::window_columns<kernels::UnfoldArgs, S>(spec, x, first_channel, columns, "unfold");
      parallel_for(
          args.batch * args.window.out[0] * args.window.out[1],
          item_block(args.window.out[2] * as_matrix(columns).columns),
          [&](std::int64_t begin, std::int64_t end) { kernels_.ops<S>().window.unfold(args, begin, end); });
    });
  }

  void fold(const WindowSpec& spec, TensorView columns, std::int64_t first_channel, TensorView x,
            bool accumulate) override {
    with_storage(x.dtype, "fold", [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto args =
          device_arguments::window_columns<kernels::FoldArgs, S>(spec, x, first_channel, columns, "fold");
      args.accumulate = accumulate;
      parallel_for(
          args.batch * args.channels, item_block(spec.places() * spec.offsets()),
          [&](std::int64_t begin, std::int64_t end) { kernels_.ops<S>().window.fold(args, begin, end); });
    });
  }

  void max_pool(const WindowSpec& spec, TensorView x, TensorView y, TensorView index) override {
    pool(spec, x, y, "max_pool", [&](auto& args, auto& ops, std::int64_t planes) {
      args.index = checked<std::int32_t>(index, planes * spec.places(), "max_pool", "index");
      return ops.max_pool_forward;
    });
  }

  void max_pool_backward(const WindowSpec& spec, TensorView index, TensorView dy, TensorView dx,
                         bool accumulate) override {
    pool_backward(
        spec, dy, dx, accumulate, "max_pool_backward", [&](auto& args, auto& ops, std::int64_t planes) {
          args.index = checked<std::int32_t>(index, planes * spec.places(), "max_pool_backward", "index");
          return ops.max_pool_backward;
        });
  }

  void average_pool(const WindowSpec& spec, TensorView x, bool count_padding, TensorView y) override {
    pool(spec, x, y, "average_pool", [&](auto& args, auto& ops, std::int64_t) {
      args.count_padding = count_padding;
      return ops.average_pool_forward;
    });
  }

  void average_pool_backward(const WindowSpec& spec, TensorView dy, bool count_padding, TensorView dx,
                             bool accumulate) override {
    pool_backward(spec, dy, dx, accumulate, "average_pool_backward",
                  [&](auto& args, auto& ops, std::int64_t) {
                    args.count_padding = count_padding;
                    return ops.average_pool_backward;
                  });
  }

  void fill_channels(TensorView values, TensorView x) override {
    constexpr const char* kWhere = "fill_channels";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const WindowPlanes planes = device_arguments::window_planes(x, points_of(x), kWhere, "x");
      const auto* from = checked<kernels::Arith<S>>(values, planes.channels, kWhere, "values");
      auto* to = checked<S>(x, x.elements(), kWhere, "x");
      parallel_for(planes.count(), item_block(planes.elements), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t plane = begin; plane < end; ++plane)
          std::fill_n(to + plane * planes.elements, planes.elements,
                      narrow<S>(from[plane % planes.channels]));
      });
    });
  }

  void sum_channels(TensorView x, TensorView sums, bool accumulate) override {
    constexpr const char* kWhere = "sum_channels";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = kernels::Arith<S>;
      const WindowPlanes planes = device_arguments::window_planes(x, points_of(x), kWhere, "x");
      const auto* from = checked<S>(x, x.elements(), kWhere, "x");
      auto* to = checked<A>(sums, planes.channels, kWhere, "sums");
      parallel_for(planes.channels, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c) {
          double total = accumulate ? static_cast<double>(to[c]) : 0.0;
          for (std::int64_t b = 0; b < planes.batch; ++b)
            total += static_cast<double>(
                sum_of(from + (b * planes.channels + c) * planes.elements, planes.elements));
          to[c] = static_cast<A>(total);
        }
      });
    });
  }

 private:
  /// choose(args, operators, planes) completes the arguments and returns the kernel.
  template <class Choose>
  void pool(const WindowSpec& spec, const TensorView& x, const TensorView& y, const char* where,
            Choose choose) {
    with_storage(x.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto pooling = device_arguments::pooling<S>(spec, x, y, where);
      run(spec, pooling, choose);
    });
  }

  template <class Choose>
  void pool_backward(const WindowSpec& spec, const TensorView& dy, const TensorView& dx, bool accumulate,
                     const char* where, Choose choose) {
    with_storage(dx.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto pooling = device_arguments::pooling_backward<S>(spec, dy, dx, accumulate, where);
      run(spec, pooling, choose);
    });
  }

  template <class S, class Choose>
  void run(const WindowSpec& spec, device_arguments::Pooling<S>& pooling, Choose choose) {
    const auto kernel = choose(pooling.args, kernels_.ops<S>().window, pooling.planes);
    parallel_for(pooling.planes, item_block(spec.places() * spec.offsets()),
                 [&](std::int64_t begin, std::int64_t end) { kernel(pooling.args, begin, end); });
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<WindowOps> make_window_ops(const Kernels& kernels) {
  return std::make_unique<CpuWindowOps>(kernels);
}

}  // namespace tenon::cpu
