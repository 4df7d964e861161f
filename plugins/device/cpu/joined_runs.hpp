// Runs of columns as the kernels of Mamba-2 layers take them: in pieces of bounded width with their places in
// the joined row. Also the sums of gradients into parameters that are stored narrower than they are summed.
#pragma once

#include "common.hpp"

#include <vector>

namespace tenon::cpu {

/// Pieces of at most `longest` columns, none of which crosses a multiple of `border` in the joined row (0 =
/// no borders), and an empty one after them.
inline std::vector<kernels::JoinedRun> joined_runs(const ColumnRuns& runs, std::int64_t longest,
                                                   std::int64_t border) {
  std::vector<kernels::JoinedRun> joined;
  std::int64_t to = 0;
  for (const ColumnRun& run : runs)
    for (std::int64_t done = 0; done < run.width;) {
      std::int64_t width = std::min(longest, run.width - done);
      if (border > 0) width = std::min(width, border - to % border);
      joined.push_back({run.first + done, to, width});
      done += width;
      to += width;
    }
  joined.push_back({0, to, 0});
  return joined;
}

/// to (+)= from
template <class P, class A>
void add_narrowed(const A* from, P* to, std::int64_t n, bool accumulate) {
  for (std::int64_t i = 0; i < n; ++i) {
    // f64 reaches bf16 by the rounding that rounds once.
    const A sum = accumulate ? static_cast<A>(widen(to[i])) + from[i] : from[i];
    if constexpr (std::is_same_v<A, double> && std::is_same_v<P, kernels::Bf16>)
      to[i] = round_to_bf16(sum);
    else
      to[i] = narrow<P>(sum);
  }
}

}  // namespace tenon::cpu
