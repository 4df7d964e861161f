// Sliding windows (family WindowOps): data movement of convolutions, pooling, and biases.
#include "common.hpp"
#include "device_common/windows.hpp"
#include "sums.hpp"

#include <tenon/kernels/cuda/part_norm.hpp>
#include <tenon/kernels/cuda/pool.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaWindowOps final : public WindowOps {
 public:
  explicit CudaWindowOps(Queue& queue) : queue_(queue) {}

  void unfold(const WindowSpec& spec, TensorView x, std::int64_t first_channel, TensorView columns) override {
    with_storage(x.dtype, "unfold", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto args =
          device_arguments::window_columns<kernels::UnfoldArgs, S>(spec, x, first_channel, columns, "unfold");
      start("unfold", bodies::Unfold<S>{args, bodies::WindowTile::for_columns(as_matrix(columns).columns)});
    });
  }

  void fold(const WindowSpec& spec, TensorView columns, std::int64_t first_channel, TensorView x,
            bool accumulate) override {
    with_storage(x.dtype, "fold", [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto args =
          device_arguments::window_columns<kernels::FoldArgs, S>(spec, x, first_channel, columns, "fold");
      args.accumulate = accumulate;
      start("fold", bodies::Fold<S>{args, bodies::WindowTile::for_columns(args.channels)});
    });
  }

  void max_pool(const WindowSpec& spec, TensorView x, TensorView y, TensorView index) override {
    constexpr const char* kWhere = "max_pool";
    pool(spec, x, y, kWhere, [&]<class S>(kernels::PoolArgs<S>& args, std::int64_t planes) {
      args.index = checked<std::int32_t>(index, planes * spec.places(), kWhere, "index");
      return bodies::MaxPool<S>{args, planes};
    });
  }

  void max_pool_backward(const WindowSpec& spec, TensorView index, TensorView dy, TensorView dx,
                         bool accumulate) override {
    constexpr const char* kWhere = "max_pool_backward";
    pool_backward(spec, dy, dx, accumulate, kWhere,
                  [&]<class S>(kernels::PoolArgs<S>& args, std::int64_t planes) {
                    args.index = checked<std::int32_t>(index, planes * spec.places(), kWhere, "index");
                    return bodies::MaxPoolBackward<S>{args, planes};
                  });
  }

  void average_pool(const WindowSpec& spec, TensorView x, bool count_padding, TensorView y) override {
    pool(spec, x, y, "average_pool", [&]<class S>(kernels::PoolArgs<S>& args, std::int64_t planes) {
      args.count_padding = count_padding;
      return bodies::AveragePool<S>{args, planes};
    });
  }

  void average_pool_backward(const WindowSpec& spec, TensorView dy, bool count_padding, TensorView dx,
                             bool accumulate) override {
    pool_backward(spec, dy, dx, accumulate, "average_pool_backward",
                  [&]<class S>(kernels::PoolArgs<S>& args, std::int64_t planes) {
                    args.count_padding = count_padding;
                    return bodies::AveragePoolBackward<S>{args, planes};
                  });
  }

  void fill_channels(TensorView values, TensorView x) override {
    constexpr const char* kWhere = "fill_channels";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const bodies::Sets of = channels_of(x, kWhere);
      map_sets(queue_, kWhere, of, checked<S>(x, x.elements(), kWhere, "x"),
               bodies::ChannelValues<Arith<S>>{checked<Arith<S>>(values, of.sets, kWhere, "values")});
    });
  }

  void sum_channels(TensorView x, TensorView sums, bool accumulate) override {
    constexpr const char* kWhere = "sum_channels";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const bodies::Sets of = channels_of(x, kWhere);
      const S* const from = checked<S>(x, x.elements(), kWhere, "x");
      A* const to = checked<A>(sums, of.sets, kWhere, "sums");
      if (of.sets == 0) return;
      const Temporary memory(queue_, of.sets * sizeof(double), kPartialBytes);
      auto* const totals = memory.at<double>();
      sum_sets<1>(queue_, kWhere, of, bodies::SetElements<S>{from}, {{totals}, false});
      sums_to_parameters(queue_, kWhere, totals, to, of.sets, accumulate);
    });
  }

 private:
  template <class Body>
  void start(const char* where, const Body& body) {
    const Grid grid = body.mesh();
    if (grid.blocks > 0) queue_.launch(where, grid, body);
  }

  /// make(args, planes) completes the arguments and returns the body.
  template <class Make>
  void pool(const WindowSpec& spec, const TensorView& x, const TensorView& y, const char* where, Make make) {
    with_storage(x.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto [args, planes] = device_arguments::pooling<S>(spec, x, y, where);
      run(where, make(args, planes));
    });
  }

  template <class Make>
  void pool_backward(const WindowSpec& spec, const TensorView& dy, const TensorView& dx, bool accumulate,
                     const char* where, Make make) {
    with_storage(dx.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      auto [args, planes] = device_arguments::pooling_backward<S>(spec, dy, dx, accumulate, where);
      run(where, make(args, planes));
    });
  }

  template <class Body>
  void run(const char* where, const Body& body) {
    if (body.items() > 0) queue_.launch(where, grid_for(body.items()), body);
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<WindowOps> make_window_ops(Queue& queue) {
  return std::make_unique<CudaWindowOps>(queue);
}

}  // namespace tenon::cuda
