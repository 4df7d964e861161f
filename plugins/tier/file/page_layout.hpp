// Layout of rows in pages: as many whole rows as fit into one, or several pages for one wide row.
#pragma once

#include "page_file.hpp"

#include <tenon/tier.hpp>

#include <algorithm>

namespace tenon::tier_file {

struct PageLayout {
  explicit PageLayout(const RowMemorySpec& spec)
      : row_bytes(std::max<std::size_t>(spec.row_bytes(), 1)),
        page_bytes((row_bytes + kPageBytes - 1) / kPageBytes * kPageBytes),
        rows_per_page(row_bytes < kPageBytes ? kPageBytes / row_bytes : 1),
        pages((spec.rows() + rows_per_page - 1) / rows_per_page) {}

  std::int64_t file_bytes() const { return pages * static_cast<std::int64_t>(page_bytes); }

  std::size_t row_bytes;
  std::size_t page_bytes;  ///< a "page" from here on: kPageBytes, or a multiple for wide rows
  std::int64_t rows_per_page;
  std::int64_t pages;
};

}  // namespace tenon::tier_file
