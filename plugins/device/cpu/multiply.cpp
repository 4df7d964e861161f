// Products of elements (family MultiplyOps). Every element depends on its own inputs alone; plain loops,
// since memory is the limit.
#include "common.hpp"
#include "device_common/elementwise.hpp"
#include "device_common/multiplications.hpp"

namespace tenon::cpu {
namespace {

using kernels::Arith;

template <class S>
void put_sum(S& y, Arith<S> value, bool accumulate) {
  y = narrow<S>(accumulate ? widen(y) + value : value);
}

/// One head; its halves are read before they are written.
template <class S>
void rotate_head(const S* x, const Arith<S>* cosines, const Arith<S>* sines, Arith<S> sign, S* y,
                 std::int64_t half, bool accumulate) {
  for (std::int64_t j = 0; j < half; ++j) {
    const Arith<S> a = widen(x[j]), b = widen(x[j + half]), c = cosines[j], s = sign * sines[j];
    put_sum(y[j], a * c - b * s, accumulate);
    put_sum(y[j + half], b * c + a * s, accumulate);
  }
}

class CpuMultiplyOps final : public MultiplyOps {
 public:
  void multiply(TensorView a, TensorView b, TensorView y, bool accumulate) override {
    device_arguments::with_map(y, {a, b}, "multiply", [&]<class S>(S* out, std::int64_t n) {
      const S *left = a.as<S>(), *right = b.as<S>();
      parallel_for(n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          put_sum(out[i], widen(left[i]) * widen(right[i]), accumulate);
      });
    });
  }

  void multiply_rows(TensorView x, TensorView factors) override {
    constexpr const char* kWhere = "multiply_rows";
    const Matrix of = as_matrix(x);
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      S* const values = checked<S>(x, of.rows * of.columns, kWhere, "x");
      const auto* const factor = checked<Arith<S>>(factors, of.rows, kWhere, "factors");
      parallel_for(of.rows, row_block(of.columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t j = r * of.columns; j < (r + 1) * of.columns; ++j)
            values[j] = narrow<S>(widen(values[j]) * factor[r]);
      });
    });
  }

  void rotate(TensorView x, TensorView table, TensorView positions, bool inverse, TensorView y,
              bool accumulate) override {
    constexpr const char* kWhere = "rotate";
    const auto of = device_arguments::rotation_sizes(x, table, positions, kWhere);
    const std::int32_t* position = nullptr;
    if (!positions.empty()) {
      position = checked<std::int32_t>(positions, of.rows, kWhere, "positions");
      check_indices(position, of.rows, 0, of.lines, kWhere, "positions");
    }
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* const from = checked<S>(x, 2 * of.pairs(), kWhere, "x");
      S* const to = checked<S>(y, 2 * of.pairs(), kWhere, "y");
      const auto* const turns = checked<Arith<S>>(table, of.lines * 2 * of.half, kWhere, "table");
      const auto sign = static_cast<Arith<S>>(inverse ? -1 : 1);
      parallel_for(of.rows, row_block(2 * of.heads * of.half), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const auto* const line = turns + (position != nullptr ? position[r] : r % of.lines) * 2 * of.half;
          for (std::int64_t h = 0; h < of.heads; ++h) {
            const std::int64_t at = (r * of.heads + h) * 2 * of.half;
            rotate_head(from + at, line, line + of.half, sign, to + at, of.half, accumulate);
          }
        }
      });
    });
  }
};

}  // namespace

std::unique_ptr<MultiplyOps> make_multiply_ops() {
  return std::make_unique<CpuMultiplyOps>();
}

}  // namespace tenon::cpu
