// Tables of sums of lines (family SparseAxisOps) as the devices of this tree prepare them: checked, with
// weights of the arithmetic type, and transposed for the adjoint. Does not use fmt, which nvcc does not
// accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/ops/reduce.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tenon::device_lines {

/// Row r has the terms offsets[r] ... offsets[r + 1] - 1. Indices of 32 bits: half of what a kernel reads of
/// a table.
template <class T>
struct Table {
  std::int64_t rows = 0, columns = 0;
  std::vector<std::int32_t> offsets, column_of;
  std::vector<T> weights;
};

/// Why there is no such matrix, or "".
inline std::string refusal(const SparseAxisSpec& spec) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto terms = static_cast<std::int64_t>(spec.terms.size());
  if (spec.columns < 0 || spec.columns > kMost || terms > kMost)
    return "expected 0 to " + std::to_string(kMost) + " columns and terms, found " +
           std::to_string(spec.columns) + " and " + std::to_string(terms);
  if (spec.offsets.empty() || spec.offsets.front() != 0 || spec.offsets.back() != terms)
    return "expected offsets from 0 to " + std::to_string(terms) + ", the number of terms, found " +
           (spec.offsets.empty()
                ? "none"
                : std::to_string(spec.offsets.front()) + " to " + std::to_string(spec.offsets.back()));
  if (spec.rows() > kMost)
    return "expected at most " + std::to_string(kMost) + " rows, found " + std::to_string(spec.rows());
  for (std::size_t r = 1; r < spec.offsets.size(); ++r)
    if (spec.offsets[r] < spec.offsets[r - 1])
      return "expected offsets that do not fall, found " + std::to_string(spec.offsets[r]) + " after " +
             std::to_string(spec.offsets[r - 1]);
  for (std::size_t e = 0; e < spec.terms.size(); ++e)
    if (spec.terms[e].column < 0 || spec.terms[e].column >= spec.columns)
      return "term " + std::to_string(e) + " names column " + std::to_string(spec.terms[e].column) + " of " +
             std::to_string(spec.columns);
  return "";
}

inline constexpr const char* kSparseAxisOp = "sum of lines";

/// Throws Error(kConfig) with the reason.
inline void check(const SparseAxisSpec& spec) {
  if (const std::string reason = refusal(spec); !reason.empty())
    device_arguments::refuse_config(std::string(kSparseAxisOp) + ": " + reason);
}

/// The table of a spec without a refusal.
template <class T>
Table<T> table_of(const SparseAxisSpec& spec) {
  Table<T> table{spec.rows(), spec.columns, {}, {}, {}};
  table.offsets.assign(spec.offsets.begin(), spec.offsets.end());
  for (const LineTerm& term : spec.terms) {
    table.column_of.push_back(static_cast<std::int32_t>(term.column));
    table.weights.push_back(static_cast<T>(term.weight));
  }
  return table;
}

/// Swaps rows and columns; the terms of a row are in ascending order of their columns.
template <class T>
Table<T> transposed(const Table<T>& table) {
  Table<T> result{table.columns, table.rows, {}, table.column_of, table.weights};
  std::vector<std::size_t> next(static_cast<std::size_t>(table.columns) + 1, 0);
  for (const std::int32_t column : table.column_of) ++next[static_cast<std::size_t>(column) + 1];
  for (std::size_t c = 1; c < next.size(); ++c) next[c] += next[c - 1];
  result.offsets.assign(next.begin(), next.end());
  for (std::size_t r = 0; r < static_cast<std::size_t>(table.rows); ++r)
    for (std::size_t e = table.offsets[r]; e < static_cast<std::size_t>(table.offsets[r + 1]); ++e) {
      const std::size_t at = next[table.column_of[e]]++;
      result.column_of[at] = static_cast<std::int32_t>(r);
      result.weights[at] = table.weights[e];
    }
  return result;
}

}  // namespace tenon::device_lines
