// The oracle of thinking budgets for tests: it reads all tokens of a sequence again for every token.
#pragma once

#include <tenon/generator.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tenon::generate {

/// The id that is inserted after `ids`; -1 = the model draws.
inline std::int32_t inserted_after(const ThinkingBudget& budget, std::int32_t last_of_prompt,
                                   const std::vector<std::int32_t>& ids) {
  const std::vector<std::int32_t>& close = budget.close;
  // Whether the first `length` ids end with the first `count` of the tag.
  const auto ends_with = [&](std::size_t length, std::size_t count) {
    return length >= count && std::equal(close.begin(), close.begin() + static_cast<std::ptrdiff_t>(count),
                                         ids.begin() + static_cast<std::ptrdiff_t>(length - count));
  };
  for (std::size_t length = 0; length <= ids.size(); ++length)
    if (ends_with(length, close.size())) return -1;
  for (std::size_t n = budget.tokens; n <= ids.size(); ++n) {
    const std::int32_t before = n == 0 ? last_of_prompt : ids[n - 1];
    const bool newline = std::ranges::find(budget.newlines, before) != budget.newlines.end();
    if (!newline && static_cast<std::int64_t>(n) < budget.tokens + budget.grace) continue;
    std::size_t begun = close.size() - 1;
    while (!ends_with(n, begun)) --begun;
    return close[begun + ids.size() - n];
  }
  return -1;
}

}  // namespace tenon::generate
