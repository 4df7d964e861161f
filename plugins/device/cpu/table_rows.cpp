// Rows of tables (family TableRowOps), in plain loops: no tier keeps rows in this device's memory, which is
// the host's, so these are what other devices are compared with.
#include "device_common/table_rows.hpp"
#include "common.hpp"

#include <tenon/kernels/table_rows.hpp>

#include <cstring>

namespace tenon::cpu {
namespace {

using kernels::Arith;

class CpuTableRowOps final : public TableRowOps {
 public:
  void gather(TensorView table, std::int64_t first, TensorView ids, TensorView out) override {
    const device_arguments::MovedRows of(table, first, ids, out, "gather");
    for_rows(of, [&](std::byte* in_table, std::byte* row) { std::memcpy(row, in_table, of.row_bytes); });
  }

  void scatter(TensorView rows, TensorView table, std::int64_t first, TensorView ids) override {
    const device_arguments::MovedRows of(table, first, ids, rows, "scatter");
    for_rows(of, [&](std::byte* in_table, std::byte* row) { std::memcpy(in_table, row, of.row_bytes); });
  }

  void pool(TensorView table, TensorView ids, std::int64_t which, bool mean, TensorView out) override {
    constexpr const char* kWhere = "pool";
    const device_arguments::TableBags of(table, ids, which, out, kWhere);
    with_storage(out.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const auto* const rows = checked<Arith<S>>(table, table.elements(), kWhere, "table");
      S* const to = checked<S>(out, out.elements(), kWhere, "out");
      parallel_for(of.batch, row_block(of.length * of.width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end; ++b) {
          const std::int64_t bag = b * of.bags + of.which;
          const std::int32_t* const bag_ids = of.id + bag * of.length;
          for (std::int64_t j = 0; j < of.width; ++j) {
            to[bag * of.width + j] =
                narrow<S>(kernels::pooled_column(rows, of.width, j, bag_ids, of.length, mean));
          }
        }
      });
    });
  }

  void mean_squares(TensorView x, double scale, TensorView means) override {
    constexpr const char* kWhere = "mean_squares";
    with_arithmetic(x.dtype, kWhere, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const device_arguments::RowNumbers<T> of(x, means, "means", kWhere);
      parallel_for(of.rows, row_block(of.width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          of.of_rows[r] = kernels::sum_of_squares(of.values + r * of.width, static_cast<T>(scale), of.width) /
                          static_cast<T>(of.width);
        }
      });
    });
  }

  void subtract_scaled(TensorView rows, TensorView x, double scale, TensorView rates) override {
    constexpr const char* kWhere = "subtract_scaled";
    with_arithmetic(x.dtype, kWhere, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const device_arguments::RowNumbers<T> of(x, rates, "rates", kWhere);
      T* const to = checked<T>(rows, of.rows * of.width, kWhere, "rows");
      const T factor = static_cast<T>(scale);
      parallel_for(of.rows, row_block(of.width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t i = r * of.width; i < (r + 1) * of.width; ++i)
            to[i] -= of.of_rows[r] * (factor * of.values[i]);
      });
    });
  }

 private:
  /// Calls body(the row in the table, the row in the order of the ids).
  template <class Body>
  static void for_rows(const device_arguments::MovedRows& of, Body body) {
    parallel_for(of.n, row_block(of.row_bytes), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        body(static_cast<std::byte*>(of.in_table) + (of.id[i] - of.first) * of.row_bytes,
             static_cast<std::byte*>(of.in_order) + i * of.row_bytes);
      }
    });
  }
};

}  // namespace

std::unique_ptr<TableRowOps> make_table_row_ops() {
  return std::make_unique<CpuTableRowOps>();
}

}  // namespace tenon::cpu
