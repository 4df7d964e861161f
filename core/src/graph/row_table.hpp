// Row tables over the memory of a tier or of the host; and walking a table that is too large to copy whole.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/tier.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tenon::graph {

/// A table of `rows` global rows, zero at first, in the memory that `places` gives, which outlives the table;
/// null: in host memory.
std::unique_ptr<RowTable> make_row_table(const RowMemorySpec& spec, std::int64_t rows,
                                         RowPlaces* places = nullptr);

/// The rows are those of an earlier process, for a checkpoint to go back to: see KeptRows.
bool holds_kept_rows(RowTable& table);

/// Consecutive owned rows and host memory of their size, whose content the body reads or writes.
using RowChunk = std::function<void(std::span<const std::int64_t> ids, TensorView rows)>;
/// Calls body for all owned rows in ascending order, a few MiB at a time.
void for_each_chunk(const RowTable& table, const RowChunk& body);

}  // namespace tenon::graph
