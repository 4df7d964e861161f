// Arguments of the operators on rows of tables (family TableRowOps). Does not use fmt, which nvcc does not
// accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/sdk/ops/table_rows.hpp>

namespace tenon::device_arguments {

/// Rows that move between a table and the order of ids, in words as wide as rows and addresses allow.
struct MovedRows {
  MovedRows(const TensorView& table, std::int64_t first_row, const TensorView& ids, const TensorView& rows,
            const char* where)
      : first(first_row), n(ids.elements()) {
    check_view(ids, DType::kI64, n, where, "ids");
    id = ids.as<std::int64_t>();
    const std::int64_t columns = as_matrix(table).columns;
    if (dtype_bits(table.dtype) % 8 != 0) refuse_dtype(table.dtype, where);
    check_view(table, table.dtype, table.elements(), where, "table");
    check_view(rows, table.dtype, n * columns, where, "rows");
    row_bytes = dtype_bytes(table.dtype, columns);
    in_table = table.data;
    in_order = rows.data;
  }

  /// Calls body(Word{}, words of a row).
  template <class Body>
  void with_words(Body&& body) const {
    const auto bits = static_cast<std::uintptr_t>(row_bytes) | reinterpret_cast<std::uintptr_t>(in_table) |
                      reinterpret_cast<std::uintptr_t>(in_order);
    if (bits % 8 == 0) return body(std::uint64_t{}, row_bytes / 8);
    if (bits % 4 == 0) return body(std::uint32_t{}, row_bytes / 4);
    body(std::uint8_t{}, row_bytes);
  }

  std::int64_t first, n, row_bytes = 0;
  const std::int64_t* id = nullptr;
  void *in_table = nullptr, *in_order = nullptr;
};

/// Bags of one table among [batch, bags, length] ids.
struct TableBags {
  TableBags(const TensorView& table, const TensorView& ids, std::int64_t number, const TensorView& out,
            const char* where)
      : which(number), width(as_matrix(table).columns) {
    const bool fits = ids.shape.rank() == 3 && out.shape.rank() == 3 && out.shape[0] == ids.shape[0] &&
                      out.shape[1] == ids.shape[1] && out.shape[2] == width && which >= 0 &&
                      which < ids.shape[1];
    if (!fits) {
      refuse(where, "expected ids [batch, bags, length], out [batch, bags, " + std::to_string(width) +
                        "] and one of the bags, found " + ids.shape.text() + ", " + out.shape.text() +
                        " and bag " + std::to_string(which));
    }
    batch = ids.shape[0], bags = ids.shape[1], length = ids.shape[2];
    id = checked<std::int32_t>(ids, ids.elements(), where, "ids");
  }

  std::int64_t which, width, batch = 0, bags = 0, length = 0;
  const std::int32_t* id = nullptr;
};

/// x [rows, width] of type T and one number for each row.
template <class T>
struct RowNumbers {
  RowNumbers(const TensorView& x, const TensorView& numbers, const char* name, const char* where)
      : rows(as_matrix(x).rows),
        width(as_matrix(x).columns),
        values(checked<T>(x, rows * width, where, "x")),
        of_rows(checked<T>(numbers, rows, where, name)) {}

  std::int64_t rows, width;
  T *values, *of_rows;
};

}  // namespace tenon::device_arguments
