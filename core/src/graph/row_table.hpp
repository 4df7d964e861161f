// Row tables: all owned rows in host memory, or where a tier has them; and walking a table that is too large
// to copy whole.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/tier.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tenon::graph {

/// Owned rows [first, last) of `rows`; zero at first.
std::unique_ptr<RowTable> make_row_table(std::string name, DType dtype, std::int64_t rows, std::int64_t width,
                                         std::int64_t first, std::int64_t last);

/// The same, with rows in the memory that `tier` gives, which outlives the table.
std::unique_ptr<RowTable> make_row_table(Tier& tier, std::string name, DType dtype, std::int64_t rows,
                                         std::int64_t width, std::int64_t first, std::int64_t last);

/// Consecutive owned rows and host memory of their size, whose content the body reads or writes.
using RowChunk = std::function<void(std::span<const std::int64_t> ids, TensorView rows)>;
/// Calls body for all owned rows in ascending order, a few MiB at a time.
void for_each_chunk(const RowTable& table, const RowChunk& body);

}  // namespace tenon::graph
