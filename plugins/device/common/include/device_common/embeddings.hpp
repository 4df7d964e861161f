// Arguments of gather and scatter of rows (family EmbeddingOps). A device checks the ids themselves, where
// they are. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

namespace tenon::device_arguments {

/// Ids of rows of a table [rows, width].
struct RowIds {
  RowIds(const TensorView& table, const TensorView& ids, const char* where_called)
      : count(ids.elements()),
        rows(as_matrix(table).rows),
        width(as_matrix(table).columns),
        id(checked<std::int32_t>(ids, count, where_called, "ids")),
        where(where_called) {}

  template <class A>
  A* in_table(const TensorView& view, const char* name) const {
    return checked<A>(view, rows * width, where, name);
  }
  /// The rows of the ids, one after another.
  template <class S>
  S* in_order(const TensorView& view, const char* name) const {
    return checked<S>(view, count * width, where, name);
  }

  std::int64_t count, rows, width;
  const std::int32_t* id;
  const char* where;
};

}  // namespace tenon::device_arguments
