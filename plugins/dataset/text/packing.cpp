// Rows that have room are in a set by (room, row), so the first one at or above a length is the best fit.
#include "packing.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace tenon::text {

Packing best_fit(std::span<const std::int64_t> lengths, std::int64_t context) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<std::int64_t>> rows;
  std::set<std::pair<std::int64_t, std::int64_t>> open;  // (room, row) of rows that are not full
  std::int64_t used = 0;
  for (const std::int64_t document : order) {
    const std::int64_t length = lengths[document];
    if (length < 1 || length > context) {
      fail_plugin(fmt::format("document {} has {} places; rows of context = {} hold 1 to {} of them",
                              document, length, context, context));
    }
    const auto found = open.lower_bound({length, 0});
    auto [room, row] =
        found == open.end() ? std::pair(context, static_cast<std::int64_t>(rows.size())) : *found;
    if (found == open.end()) {
      rows.emplace_back();
    } else {
      open.erase(found);
    }
    rows[row].push_back(document);
    if (room > length) open.emplace(room - length, row);
    used += length;
  }
  for (std::vector<std::int64_t>& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());  // by first document: no two rows share one
  Packing packing;
  packing.documents_.reserve(lengths.size());
  for (const std::vector<std::int64_t>& row : rows) {
    packing.documents_.insert(packing.documents_.end(), row.begin(), row.end());
    packing.begins_.push_back(static_cast<std::int64_t>(packing.documents_.size()));
  }
  if (!rows.empty()) {
    const std::int64_t places = packing.rows() * context;
    packing.padding_ = static_cast<double>(places - used) / static_cast<double>(places);
  }
  return packing;
}

}  // namespace tenon::text
