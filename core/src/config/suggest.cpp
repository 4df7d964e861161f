// Edit distance over three rows; words are keys, so quadratic time is nothing. Long input is cut off first.
#include "config/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

TENON_ABI_BEGIN
namespace config {
namespace {

constexpr std::size_t kLongestWord = 64;

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

std::size_t common_beginning(std::string_view a, std::string_view b) {
  const std::size_t length = std::min(a.size(), b.size());
  std::size_t same = 0;
  while (same < length && folded(a[same]) == folded(b[same])) ++same;
  return same;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::array<std::vector<int>, 3> rows;  // i - 2, i - 1, i
  for (auto& row : rows) row.resize(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[2][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
    rows[2][0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = rows[1][j - 1] + (folded(a[i - 1]) == folded(b[j - 1]) ? 0 : 1);
      rows[2][j] = std::min({replaced, rows[1][j] + 1, rows[2][j - 1] + 1});
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1])) {
        rows[2][j] = std::min(rows[2][j], rows[0][j - 2] + 1);
      }
    }
  }
  return rows[2][b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const int limit = std::max(1, static_cast<int>(word.size()) / 3);
  const std::string* best = nullptr;
  int best_distance = limit + 1;
  std::size_t best_beginning = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const int distance = edit_distance(word, candidate);
    // A word of which nothing is left is not a spelling of it.
    if (distance > limit || distance >= static_cast<int>(std::max(word.size(), candidate.size()))) continue;
    const std::size_t beginning = common_beginning(word, candidate);
    if (distance < best_distance || (distance == best_distance && beginning > best_beginning)) {
      best = &candidate;
      best_distance = distance;
      best_beginning = beginning;
    }
  }
  return best == nullptr ? "" : *best;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace config
TENON_ABI_END
