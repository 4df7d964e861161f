// Rows of tables (family TableRowOps).
#include "device_common/table_rows.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/table_rows.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaTableRowOps final : public TableRowOps {
 public:
  explicit CudaTableRowOps(Queue& queue) : queue_(queue) {}

  void gather(TensorView table, std::int64_t first, TensorView ids, TensorView out) override {
    move({table, first, ids, out, "gather"}, false, "gather");
  }

  void scatter(TensorView rows, TensorView table, std::int64_t first, TensorView ids) override {
    move({table, first, ids, rows, "scatter"}, true, "scatter");
  }

  void pool(TensorView table, TensorView ids, std::int64_t which, bool mean, TensorView out) override {
    constexpr const char* kWhere = "pool";
    const device_arguments::TableBags of(table, ids, which, out, kWhere);
    with_storage(out.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto* const rows = checked<Arith<S>>(table, table.elements(), kWhere, "table");
      S* const to = checked<S>(out, out.elements(), kWhere, "out");
      if (of.batch * of.width == 0) return;
      queue_.launch(
          kWhere, grid_for(of.batch * of.width),
          bodies::PoolBags<S>{rows, of.id, to, of.batch, of.bags, of.length, of.width, of.which, mean});
    });
  }

  void mean_squares(TensorView x, double scale, TensorView means) override {
    constexpr const char* kWhere = "mean_squares";
    with_arithmetic(x.dtype, kWhere, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const device_arguments::RowNumbers<T> of(x, means, "means", kWhere);
      if (of.rows == 0) return;
      queue_.launch(kWhere, grid_for(of.rows),
                    bodies::MeanSquares<T>{of.values, static_cast<T>(scale), of.of_rows, of.rows, of.width});
    });
  }

  void subtract_scaled(TensorView rows, TensorView x, double scale, TensorView rates) override {
    constexpr const char* kWhere = "subtract_scaled";
    with_arithmetic(x.dtype, kWhere, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const device_arguments::RowNumbers<T> of(x, rates, "rates", kWhere);
      const std::int64_t n = of.rows * of.width;
      T* const to = checked<T>(rows, n, kWhere, "rows");
      if (n == 0) return;
      queue_.launch(kWhere, grid_for(n),
                    bodies::SubtractScaled<T>{to, of.values, static_cast<T>(scale), of.of_rows, n, of.width});
    });
  }

 private:
  void move(const device_arguments::MovedRows& of, bool to_table, const char* where) {
    if (of.n * of.row_bytes == 0) return;
    of.with_words([&](auto word, std::int64_t words) {
      using Word = decltype(word);
      queue_.launch(where, grid_for(of.n * words),
                    bodies::MoveRows<Word>{static_cast<Word*>(of.in_table), of.first, of.id,
                                           static_cast<Word*>(of.in_order), of.n, words, to_table});
    });
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<TableRowOps> make_table_row_ops(Queue& queue) {
  return std::make_unique<CudaTableRowOps>(queue);
}

}  // namespace tenon::cuda
