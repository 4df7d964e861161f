// Patterns of names, as configurations and command lines write them: "h.*.mlp.*".
#pragma once

#include <cstddef>
#include <string_view>

#include <tenon/abi.hpp>

TENON_ABI_BEGIN

/// Whether `pattern` describes all of `name`: * stands for any characters, also none, and ? for one
/// character.
constexpr bool matches_pattern(std::string_view pattern, std::string_view name) noexcept {
  // Position behind the last star, and where the name stood when it was met: try one character more there.
  std::size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

TENON_ABI_END
