// Sliding windows (family WindowOps): data movement of convolutions, pooling, and biases. Lines, planes or
// channels are shared among threads; each element is one chain of its own, so no sharing changes a bit. The
// sum over a channel is in f64 over its samples, each of whose points are added 16 side by side.
#include "arith.hpp"
#include "families.hpp"

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

/// Planes of a tensor [batch, channels, extent...].
struct Planes {
  std::int64_t batch = 0, channels = 0, elements = 0;
  std::int64_t count() const { return batch * channels; }
};

Planes planes_of(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  if (view.shape.rank() < 2 || view.elements() != view.shape[0] * view.shape[1] * elements) {
    fail_run(fmt::format("device cpu: {}: {} must be [batch, channels, {} elements], found {}", where, name,
                         elements, view.shape.text()));
  }
  return {view.shape[0], view.shape[1], elements};
}

kernels::Window window_of(const WindowSpec& spec) {
  if (spec.spatial < 1 || spec.spatial > 3)
    fail_config(fmt::format("device cpu: windows have 1 to 3 dimensions, found {}", spec.spatial));
  kernels::Window window;
  for (int i = 0; i < spec.spatial; ++i) {
    const int d = 3 - spec.spatial + i;
    window.in[d] = spec.extent[i];
    window.out[d] = spec.places(i);
    window.kernel[d] = spec.kernel[i];
    window.stride[d] = spec.stride[i];
    window.dilation[d] = spec.dilation[i];
    window.pad[d] = spec.pad_low[i];
  }
  return window;
}

/// Of one plane of [batch, channels, ...].
std::int64_t points_of(const TensorView& x) {
  const std::int64_t count = x.shape.rank() < 2 ? 0 : x.shape[0] * x.shape[1];
  return count == 0 ? 0 : x.elements() / count;
}

/// Items per block of a loop whose items cost `each` steps.
std::int64_t item_block(std::int64_t each) {
  return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, each));
}

/// The channels that columns cover.
template <class S>
struct Covered {
  Planes planes;
  std::int64_t channels = 0, width = 0;
  S* first = nullptr;  ///< plane of the first channel of the first sample
  S* columns = nullptr;
};

template <class S>
Covered<S> covered(const WindowSpec& spec, const TensorView& x, std::int64_t first_channel,
                   const TensorView& columns, const char* where) {
  Covered<S> result;
  result.planes = planes_of(x, spec.elements(), where, "x");
  result.width = as_matrix(columns).columns;
  result.channels = result.width / std::max<std::int64_t>(1, spec.offsets());
  if (result.channels * spec.offsets() != result.width || first_channel < 0 ||
      first_channel + result.channels > result.planes.channels) {
    fail_run(
        fmt::format("device cpu: {}: columns of width {} from channel {} on do not fit {} channels of {} "
                    "offsets each",
                    where, result.width, first_channel, result.planes.channels, spec.offsets()));
  }
  result.columns = checked<S>(columns, result.planes.batch * spec.places() * result.width, where, "columns");
  result.first = checked<S>(x, x.elements(), where, "x") + first_channel * spec.elements();
  return result;
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
      const Covered<S> part = covered<S>(spec, x, first_channel, columns, "unfold");
      kernels::UnfoldArgs<S> args;
      args.window = window_of(spec);
      args.batch = part.planes.batch;
      args.channels = part.channels;
      args.sample_stride = part.planes.channels * part.planes.elements;
      args.x = part.first;
      args.columns = part.columns;
      parallel_for(
          args.batch * args.window.out[0] * args.window.out[1], item_block(args.window.out[2] * part.width),
          [&](std::int64_t begin, std::int64_t end) { kernels_.ops<S>().window.unfold(args, begin, end); });
    });
  }

  void fold(const WindowSpec& spec, TensorView columns, std::int64_t first_channel, TensorView x,
            bool accumulate) override {
    with_storage(x.dtype, "fold", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const Covered<S> part = covered<S>(spec, x, first_channel, columns, "fold");
      kernels::FoldArgs<S> args;
      args.window = window_of(spec);
      args.batch = part.planes.batch;
      args.channels = part.channels;
      args.sample_stride = part.planes.channels * part.planes.elements;
      args.columns = part.columns;
      args.x = part.first;
      args.accumulate = accumulate;
      parallel_for(
          args.batch * args.channels, item_block(spec.places() * spec.offsets()),
          [&](std::int64_t begin, std::int64_t end) { kernels_.ops<S>().window.fold(args, begin, end); });
    });
  }

  void max_pool(const WindowSpec& spec, TensorView x, TensorView y, TensorView index) override {
    pool(spec, x, y, "max_pool", [&](auto& args, auto& ops, const Planes& planes) {
      args.index = checked<std::int32_t>(index, planes.count() * spec.places(), "max_pool", "index");
      return ops.max_pool_forward;
    });
  }

  void max_pool_backward(const WindowSpec& spec, TensorView index, TensorView dy, TensorView dx,
                         bool accumulate) override {
    pool_backward(
        spec, dy, dx, accumulate, "max_pool_backward", [&](auto& args, auto& ops, const Planes& planes) {
          args.index =
              checked<std::int32_t>(index, planes.count() * spec.places(), "max_pool_backward", "index");
          return ops.max_pool_backward;
        });
  }

  void average_pool(const WindowSpec& spec, TensorView x, bool count_padding, TensorView y) override {
    pool(spec, x, y, "average_pool", [&](auto& args, auto& ops, const Planes&) {
      args.count_padding = count_padding;
      return ops.average_pool_forward;
    });
  }

  void average_pool_backward(const WindowSpec& spec, TensorView dy, bool count_padding, TensorView dx,
                             bool accumulate) override {
    pool_backward(spec, dy, dx, accumulate, "average_pool_backward",
                  [&](auto& args, auto& ops, const Planes&) {
                    args.count_padding = count_padding;
                    return ops.average_pool_backward;
                  });
  }

  void fill_channels(TensorView values, TensorView x) override {
    constexpr const char* kWhere = "fill_channels";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const Planes planes = planes_of(x, points_of(x), kWhere, "x");
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
      const Planes planes = planes_of(x, points_of(x), kWhere, "x");
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
  /// choose(args, operators, planes) completes the arguments and says which kernel.
  template <class Choose>
  void pool(const WindowSpec& spec, const TensorView& x, const TensorView& y, const char* where,
            Choose choose) {
    with_storage(x.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const Planes planes = planes_of(x, spec.elements(), where, "x");
      kernels::PoolArgs<S> args;
      args.x = checked<S>(x, x.elements(), where, "x");
      args.y = checked<S>(y, planes.count() * spec.places(), where, "y");
      run(spec, args, planes, choose);
    });
  }

  template <class Choose>
  void pool_backward(const WindowSpec& spec, const TensorView& dy, const TensorView& dx, bool accumulate,
                     const char* where, Choose choose) {
    with_storage(dx.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const Planes planes = planes_of(dx, spec.elements(), where, "dx");
      kernels::PoolArgs<S> args;
      args.dy = checked<S>(dy, planes.count() * spec.places(), where, "dy");
      args.dx = checked<S>(dx, dx.elements(), where, "dx");
      args.accumulate = accumulate;
      run(spec, args, planes, choose);
    });
  }

  template <class S, class Choose>
  void run(const WindowSpec& spec, kernels::PoolArgs<S>& args, const Planes& planes, Choose choose) {
    args.window = window_of(spec);
    const auto kernel = choose(args, kernels_.ops<S>().window, planes);
    parallel_for(planes.count(), item_block(spec.places() * spec.offsets()),
                 [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<WindowOps> make_window_ops(const Kernels& kernels) {
  return std::make_unique<CpuWindowOps>(kernels);
}

}  // namespace tenon::cpu
