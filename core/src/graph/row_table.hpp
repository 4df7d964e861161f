// The plain row table: all owned rows in host memory, one version counter per row.
#pragma once

#include <tenon/parameter.hpp>

#include <memory>

namespace tenon::graph {

/// Owned rows [first, last) of `rows`; zero at first.
std::unique_ptr<RowTable> make_row_table(std::string name, DType dtype, std::int64_t rows, std::int64_t width,
                                         std::int64_t first, std::int64_t last);

}  // namespace tenon::graph
