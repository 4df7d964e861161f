// Products of elements (family MultiplyOps).
#include "common.hpp"
#include "device_common/elementwise.hpp"
#include "device_common/multiplications.hpp"

#include <tenon/kernels/cuda/multiply.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaMultiplyOps final : public MultiplyOps {
 public:
  explicit CudaMultiplyOps(Queue& queue) : queue_(queue) {}

  void multiply(TensorView a, TensorView b, TensorView y, bool accumulate) override {
    device_arguments::with_map(y, {a, b}, "multiply", [&]<class S>(S* out, std::int64_t n) {
      using Body = bodies::Product<S>;
      if (n == 0) return;
      queue_.launch(
          "multiply", grid_for(n),
          bodies::MapElements<S, Body>{out, n, Body{a.as<S>(), b.as<S>(), accumulate ? out : nullptr}});
    });
  }

  void multiply_rows(TensorView x, TensorView factors) override {
    constexpr const char* kWhere = "multiply_rows";
    const Matrix of = as_matrix(x);
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using Body = bodies::RowProduct<S>;
      const std::int64_t n = of.rows * of.columns;
      S* const values = checked<S>(x, n, kWhere, "x");
      const auto* const factor = checked<Arith<S>>(factors, of.rows, kWhere, "factors");
      if (n == 0) return;
      queue_.launch(kWhere, grid_for(n),
                    bodies::MapElements<S, Body>{values, n, Body{values, factor, of.columns}});
    });
  }

  void rotate(TensorView x, TensorView table, TensorView positions, bool inverse, TensorView y,
              bool accumulate) override {
    constexpr const char* kWhere = "rotate";
    const auto of = device_arguments::rotation_sizes(x, table, positions, kWhere);
    const std::int32_t* position = nullptr;
    if (!positions.empty()) {
      position = checked<std::int32_t>(positions, of.rows, kWhere, "positions");
      check_indices(queue_, position, of.rows, 0, of.lines, kWhere, "positions");
    }
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* const from = checked<S>(x, 2 * of.pairs(), kWhere, "x");
      S* const to = checked<S>(y, 2 * of.pairs(), kWhere, "y");
      const auto* const turns = checked<Arith<S>>(table, of.lines * 2 * of.half, kWhere, "table");
      if (of.pairs() == 0) return;
      queue_.launch(kWhere, grid_for(of.pairs()),
                    bodies::RotatePairs<S>{from, turns, position, to, of.rows, of.heads, of.half, of.lines,
                                           static_cast<Arith<S>>(inverse ? -1 : 1), accumulate});
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<MultiplyOps> make_multiply_ops(Queue& queue) {
  return std::make_unique<CudaMultiplyOps>(queue);
}

}  // namespace tenon::cuda
