// Packing of whole documents into rows of `context` places: best fit in descending order of length. It knows
// lengths alone, neither files nor tokens, and is pure in its arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::text {

/// Documents by row, each document in exactly one row. Rows are in the order of their first documents, and
/// the documents of a row in their own order.
class Packing {
 public:
  std::int64_t rows() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  /// Numbers of the documents of a row, ascending; at least one.
  std::span<const std::int64_t> row(std::int64_t row) const noexcept {
    return {documents_.data() + begins_[row], documents_.data() + begins_[row + 1]};
  }
  /// Share of the places of all rows that hold no document, in [0, 1); 0 without rows.
  double padding() const noexcept { return padding_; }

 private:
  friend Packing best_fit(std::span<const std::int64_t> lengths, std::int64_t context);
  std::vector<std::int64_t> documents_;     ///< row after row
  std::vector<std::int64_t> begins_ = {0};  ///< of each row in documents_, and its size
  double padding_ = 0;
};

/// The longest documents are placed first, of equal ones that of the lower number. Each goes into the row
/// with the least room that it fits into, of equal ones the row that was begun first; where it fits into
/// none, it begins a row (best fit decreasing: at most 11/9 of the fewest rows that there could be, and 4;
/// D. S. Johnson et al., SIAM J. Comput. 3, 1974). O(n log n). 1 <= length <= context for each; anything else
/// throws Error(kPlugin), so check first.
Packing best_fit(std::span<const std::int64_t> lengths, std::int64_t context);

}  // namespace tenon::text
