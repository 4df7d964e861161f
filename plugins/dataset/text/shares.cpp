// Exact parsing and one period of shares.hpp.
#include "shares.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <numeric>
#include <optional>

namespace tenon::text {
namespace {

constexpr std::int64_t kLargestWhole = std::int64_t{1} << 20;
constexpr std::int64_t kLargestTerm = 1'000'000'000;

struct Fraction {
  std::int64_t above = 0, below = 1;
};

std::optional<std::int64_t> digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = code == std::errc() && end == text.data() + text.size();
  if (!whole || text[0] == '-' || value > kLargestTerm) return std::nullopt;
  return value;
}

std::optional<Fraction> decimal(std::string_view text) {
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) {
    const std::optional<std::int64_t> value = digits(text);
    return value ? std::optional(Fraction{*value, 1}) : std::nullopt;
  }
  const std::string_view behind = text.substr(point + 1);
  if (behind.empty() || behind.size() > 9) return std::nullopt;
  const std::optional<std::int64_t> front = point == 0 ? 0 : digits(text.substr(0, point)),
                                    back = digits(behind);
  if (!front || !back) return std::nullopt;
  std::int64_t below = 1;
  for (std::size_t i = 0; i < behind.size(); ++i) below *= 10;
  if (*front > 1) return std::nullopt;
  return Fraction{*front * below + *back, below};
}

std::optional<Fraction> fraction(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return decimal(text);
  const std::optional<std::int64_t> above = digits(text.substr(0, slash)),
                                    below = digits(text.substr(slash + 1));
  if (!above || !below || *below == 0) return std::nullopt;
  return Fraction{*above, *below};
}

}  // namespace

Shares parse_shares(std::span<const std::string> texts, const std::string& where) {
  std::vector<Fraction> fractions;
  Shares shares;
  for (const std::string& text : texts) {
    const std::optional<Fraction> found = fraction(text);
    if (!found || found->above > found->below) {
      fail_config(
          fmt::format("{}: expected a weight from 0 to 1 as a decimal number or a fraction, e.g. \"0.25\" or "
                      "\"1/3\", found \"{}\"",
                      where, text));
    }
    const std::int64_t divisor = std::gcd(found->above, found->below);
    fractions.push_back({found->above / divisor, found->below / divisor});
    const std::int64_t below = fractions.back().below;
    const std::int64_t factor = below / std::gcd(shares.whole, below);
    if (factor > kLargestWhole / shares.whole) {
      fail_config(
          fmt::format("{}: the weights have no common denominator up to 2^20; take fewer digits", where));
    }
    shares.whole *= factor;
  }
  std::int64_t sum = 0;
  for (const Fraction& found : fractions) {
    shares.parts.push_back(found.above * (shares.whole / found.below));
    sum += shares.parts.back();
  }
  if (sum != shares.whole) {
    const std::int64_t divisor = std::gcd(sum, shares.whole);
    fail_config(fmt::format(
        "{}: the weights sum to {}/{}; expected exactly 1 (weights that were rounded can be given "
        "as fractions of their sum, e.g. \"457/1001\")",
        where, sum / divisor, shares.whole / divisor));
  }
  return shares;
}

ShareSchedule::ShareSchedule(const Shares& shares) : shares_(shares) {
  const std::size_t sources = shares.parts.size();
  const std::int64_t whole = shares.whole;
  std::vector<std::int64_t> counts(sources, 0);
  period_.reserve(static_cast<std::size_t>(whole));
  for (std::int64_t s = 1; s <= whole; ++s) {
    std::size_t chosen = sources;
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t k = 0; k < sources; ++k) {
      const std::int64_t part = shares.parts[k];
      if (part == 0 || counts[k] * whole / part + 1 > s) continue;
      const std::int64_t deadline = ((counts[k] + 1) * whole + part - 1) / part;
      if (deadline < earliest) {
        earliest = deadline;
        chosen = k;
      }
    }
    if (chosen == sources) fail_plugin("data.mixture: no source may be drawn; the shares do not sum to 1");
    period_.push_back({static_cast<std::int32_t>(chosen), static_cast<std::int32_t>(counts[chosen])});
    ++counts[chosen];
  }
}

ShareSchedule::Draw ShareSchedule::at(std::int64_t draw) const noexcept {
  const Entry& entry = period_[static_cast<std::size_t>(draw % shares_.whole)];
  const std::int64_t periods = draw / shares_.whole;
  return {entry.source, periods * shares_.parts[static_cast<std::size_t>(entry.source)] + entry.count};
}

std::int64_t ShareSchedule::count(int source, std::int64_t draws) const noexcept {
  std::int64_t found = draws / shares_.whole * shares_.parts[static_cast<std::size_t>(source)];
  for (std::int64_t i = 0; i < draws % shares_.whole; ++i) {
    found += period_[static_cast<std::size_t>(i)].source == source ? 1 : 0;
  }
  return found;
}

}  // namespace tenon::text
