// Maps over flat tensors (family Elementwise).
#include "device_common/elementwise.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/elementwise.hpp>

#include <initializer_list>
#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaElementwise final : public Elementwise {
 public:
  explicit CudaElementwise(Queue& queue) : queue_(queue) {}

  void fill(TensorView y, double value) override {
    if (y.empty()) return;
    if (value == 0) return queue_.clear(y.data, y.bytes());
    const auto fill_integers = [&](auto tag) {
      using T = typename decltype(tag)::type;
      run("fill", y.as<T>(), y.elements(), bodies::Constant<T>{static_cast<T>(value)});
    };
    if (device_arguments::with_integer(y.dtype, fill_integers)) return;
    map(y, "fill", [&]<class S>(S*) { return bodies::Constant<S>{static_cast<Arith<S>>(value)}; });
  }

  void scale(TensorView y, double factor) override {
    map(y, "scale", [&]<class S>(S* out) { return bodies::Scaled<S>{out, static_cast<Arith<S>>(factor)}; });
  }

  void axpy(double a, TensorView x, TensorView y) override {
    map(y, "axpy",
        [&]<class S>(S* out) {
          return bodies::AddScaled<S>{x.as<S>(), out, static_cast<Arith<S>>(a)};
        },
        {x});
  }

  void lerp(TensorView y, TensorView x, double weight) override {
    map(y, "lerp",
        [&]<class S>(S* out) {
          return bodies::Between<S>{x.as<S>(), out, static_cast<Arith<S>>(weight)};
        },
        {x});
  }

  void subtract(TensorView a, TensorView b, TensorView y) override {
    map(y, "subtract", [&]<class S>(S*) { return bodies::Difference<S>{a.as<S>(), b.as<S>()}; }, {a, b});
  }

  std::int64_t subtract_targets(TensorView a, TensorView b, TensorView y) override {
    // b may be y's own memory, so its numbers are counted first.
    const std::int64_t counted = count_numbers(b);
    map(y, "subtract_targets",
        [&]<class S>(S*) {
          return bodies::TargetDifference<S>{a.as<S>(), b.as<S>()};
        },
        {a, b});
    return counted;
  }

  void add(TensorView a, TensorView b, TensorView y) override {
    map(y, "add", [&]<class S>(S*) { return bodies::Sum<S>{a.as<S>(), b.as<S>()}; }, {a, b});
  }

  void convert(TensorView x, TensorView y) override {
    const std::int64_t n = device_arguments::converted_elements(x, y);
    if (n == 0) return;
    if (x.dtype == y.dtype) {
      return queue_.copy(x.data, MemorySpace::kCuda, y.data, MemorySpace::kCuda, x.bytes());
    }
    with_number(x.dtype, [&](auto from) {
      with_number(y.dtype, [&](auto to) {
        using From = typename decltype(from)::type;
        using To = typename decltype(to)::type;
        queue_.launch("convert", grid_for(n),
                      bodies::ConvertElements<From, To>{checked<From>(x, n, "convert", "x"),
                                                        checked<To>(y, n, "convert", "y"), n});
      });
    });
  }

  void add_bias(TensorView x, TensorView bias, TensorView y) override {
    const std::int64_t columns = bias.elements();
    if (columns == 0 || y.elements() % columns != 0) refuse_view(y, y.dtype, x.elements(), "add_bias", "y");
    map(y, "add_bias",
        [&]<class S>(S*) {
          return bodies::WithBias<S>{x.as<S>(), checked<Arith<S>>(bias, columns, "add_bias", "bias"),
                                     columns};
        },
        {x});
  }

 private:
  /// with_storage(), and binary16, in which tensors travel between replicas.
  template <class Body>
  static void with_number(DType dtype, Body body) {
    if (dtype == DType::kF16) return body(std::type_identity<kernels::Half>{});
    with_storage(dtype, "convert", body);
  }

  template <class S, class Map>
  void run(const char* where, S* y, std::int64_t n, const Map& map) {
    queue_.launch(where, grid_for(n), bodies::MapElements<S, Map>{y, n, map});
  }

  std::int64_t count_numbers(const TensorView& x) {
    if (x.elements() == 0) return 0;
    return with_storage(x.dtype, "subtract_targets", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const std::int64_t n = x.elements();
      const Grid grid = grid_for(n, bodies::kThreads * sizeof(std::int64_t));
      auto* const partial = queue_.scratch<std::int64_t>();
      queue_.launch("subtract_targets", grid,
                    bodies::CountNumbers<S>{checked<S>(x, n, "subtract_targets", "b"), n, partial});
      std::vector<std::int64_t> counts(grid.blocks);
      queue_.copy(partial, MemorySpace::kCuda, counts.data(), MemorySpace::kHost,
                  counts.size() * sizeof(std::int64_t));
      std::int64_t total = 0;
      for (const std::int64_t count : counts) total += count;
      return total;
    });
  }

  /// Sets y[i] by the map that make(y) returns, after a check that the inputs match y.
  template <class Make>
  void map(const TensorView& y, const char* where, Make make, std::initializer_list<TensorView> inputs = {}) {
    device_arguments::with_map(y, inputs, where, [&](auto* out, std::int64_t n) {
      if (n > 0) run(where, out, n, make(out));
    });
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<Elementwise> make_elementwise(Queue& queue) {
  return std::make_unique<CudaElementwise>(queue);
}

}  // namespace tenon::cuda
