// The first place that matches a table holds it, so of two with one pattern the second would hold nothing.
#include "config/place_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tenon::config {
namespace {

/// The tier of weights ("tier") or of optimizer rows ("state"), which is that of the weights if not named.
const Value* tier_of(const Value& place, std::string_view use) {
  const Value* own = place.find(use);
  return own != nullptr ? own : place.find("tier");
}

bool same_tier(const Value& a, const Value& b, std::string_view use) {
  const Value *x = tier_of(a, use), *y = tier_of(b, use);
  return x == nullptr || y == nullptr || *x == *y;
}

bool same_pattern(const Value& a, const Value& b) {
  const Value *x = a.find("match"), *y = b.find("match");
  return x != nullptr && y != nullptr && *x == *y;
}

}  // namespace

std::vector<std::pair<Origin, std::string>> contradictions(const Value& places) {
  std::vector<std::pair<Origin, std::string>> found;
  const Value::Array& all = places.array();
  for (auto second = all.begin(); second != all.end(); ++second) {
    const auto first = std::find_if(all.begin(), second, [&](const Value& earlier) {
      return same_pattern(earlier, *second) &&
             !(same_tier(earlier, *second, "tier") && same_tier(earlier, *second, "state"));
    });
    if (first == second) continue;
    found.emplace_back(second->origin,
                       fmt::format("[[tables.place]] match = {} is that of the entry at {}, too, which names "
                                   "other tiers; leave one of the two out",
                                   second->find("match")->inline_toml(), first->origin.text()));
  }
  return found;
}

}  // namespace tenon::config
