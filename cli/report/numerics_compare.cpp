// Matches lines of two runs by step and operand. The hash is that of the operand before rounding: equal
// hashes with other figures mean that the rounding differs, and everything after it differs for that reason.
#include "report/numerics.hpp"

#include "ab/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace tenon::report {
namespace {

constexpr std::size_t kMostLargest = 10;

using Key = std::tuple<std::int64_t, std::string, std::int64_t, std::string, std::string, std::int64_t>;

Key key_of(const NumericsLine& line) {
  return {line.step, line.layer, line.site, line.gemm, line.operand, line.first_row};
}

bool same_figures(const NumericsLine& a, const NumericsLine& b) {
  return a.format == b.format && same_figure(a.amax, b.amax) && same_figure(a.underflow, b.underflow) &&
         same_figure(a.saturated, b.saturated) && same_figure(a.sqnr_db, b.sqnr_db) &&
         same_figure(a.mean_relative_error, b.mean_relative_error) &&
         same_figure(a.scale_binades, b.scale_binades) && a.choices == b.choices;
}

/// The difference of the figures: the errors of the formats first, then the ranges. A figure that only one of
/// them has is the largest difference.
std::pair<double, double> distance(const OperandComparison::Pair& pair) {
  const auto [a, b] = std::pair(pair.a.amax, pair.b.amax);
  const double range = same_figure(a, b) ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b));
  const double error = same_figure(pair.a.mean_relative_error, pair.b.mean_relative_error)
                           ? 0
                           : std::abs(pair.a.mean_relative_error - pair.b.mean_relative_error);
  return {std::isnan(error) ? HUGE_VAL : error, std::isnan(range) ? HUGE_VAL : range};
}

std::string figures(const char* run, const NumericsLine& line) {
  return fmt::format(
      "    {}: {} {} [{}, {}], hash {}, amax {:.6g}, mean relative error {:.4g} %, became zero {:.4g} %, "
      "SQNR {}, {}\n",
      run, line.format, line.dtype, line.rows, line.columns, line.hash, line.amax,
      100 * line.mean_relative_error, 100 * line.underflow,
      std::isnan(line.sqnr_db) ? std::string("-") : fmt::format("{:.2f} dB", line.sqnr_db), line.reason);
}

std::string why(const OperandComparison::Pair& pair) {
  if (!pair.same_bits()) return "other bits went in";
  return pair.a.format == pair.b.format ? "equal bits went in and were rounded otherwise"
                                        : "equal bits went in, the formats differ";
}

std::string missing(const char* run) {
  return fmt::format(
      "operands: {} has no numerics.jsonl; to see where the runs part, train it again with\n"
      "  [[observe]]\n  type = \"numerics\"\n",
      run);
}

}  // namespace

bool same_figure(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

OperandComparison compare_operands(const std::string& attempt_a, const std::string& attempt_b) {
  const auto files = make_posix_files();
  const auto a = read_numerics(*files, attempt_a), b = read_numerics(*files, attempt_b);
  OperandComparison comparison;
  comparison.in_a = a.has_value();
  comparison.in_b = b.has_value();
  if (!a || !b) return comparison;
  comparison.lines_a = static_cast<std::int64_t>(a->size());
  comparison.lines_b = static_cast<std::int64_t>(b->size());
  std::map<Key, const NumericsLine*> in_b;
  for (const NumericsLine& line : *b) in_b.emplace(key_of(line), &line);
  std::map<std::string, OperandComparison::Pair> largest;  // by operand
  for (const NumericsLine& line : *a) {
    const auto found = in_b.find(key_of(line));
    if (found == in_b.end()) continue;
    ++comparison.common;
    OperandComparison::Pair pair{line, *found->second};
    if (pair.same_bits() && same_figures(pair.a, pair.b)) {
      ++comparison.equal;
      continue;
    }
    if (!comparison.first) comparison.first = pair;
    if (!comparison.first_bits && !pair.same_bits()) comparison.first_bits = pair;
    const auto [at, fresh] = largest.emplace(line.name(), pair);
    if (!fresh && distance(pair) > distance(at->second)) at->second = std::move(pair);
  }
  for (auto& [name, pair] : largest) comparison.largest.push_back(std::move(pair));
  std::stable_sort(comparison.largest.begin(), comparison.largest.end(),
                   [](const auto& x, const auto& y) { return distance(x) > distance(y); });
  return comparison;
}

std::string operands_text(const OperandComparison& comparison) {
  std::string out;
  if (!comparison.in_a || !comparison.in_b) {
    if (!comparison.in_a) out += missing("A");
    if (!comparison.in_b) out += missing("B");
    return out;
  }
  out = fmt::format("operands: {} lines of A, {} of B, {} of the same step and operand\n", comparison.lines_a,
                    comparison.lines_b, comparison.common);
  if (comparison.common == 0) return out + "  nothing to compare: the runs looked at other steps or layers\n";
  if (!comparison.first) return out + "  all of them have equal bits and equal figures\n";
  const auto where = [&](const OperandComparison::Pair& pair) {
    return fmt::format("step {}, {} ({})\n", pair.a.step, pair.a.name(), why(pair)) + figures("A", pair.a) +
           figures("B", pair.b);
  };
  out += "  the runs part at " + where(*comparison.first);
  if (!comparison.first_bits)
    out += "  no operand has other bits before rounding\n";
  else if (comparison.first->same_bits())
    out += "  the first other bits go in at " + where(*comparison.first_bits);
  out += fmt::format("  {} of {} differ; per operand, largest difference of errors first:\n",
                     comparison.common - comparison.equal, comparison.common);
  std::size_t width = 7;
  const std::size_t shown = std::min(comparison.largest.size(), kMostLargest);
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, comparison.largest[i].a.name().size());
  out += fmt::format("    {:<{}} {:>6} {:>12} {:>12} {:>11} {:>11} {:>11} {:>11}\n", "operand", width, "step",
                     "format A", "format B", "error A", "error B", "amax A", "amax B");
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& [a, b] = comparison.largest[i];
    out += fmt::format("    {:<{}} {:>6} {:>12} {:>12} {:>9.4g} % {:>9.4g} % {:>11.5g} {:>11.5g}\n", a.name(),
                       width, a.step, a.format, b.format, 100 * a.mean_relative_error,
                       100 * b.mean_relative_error, a.amax, b.amax);
  }
  if (shown < comparison.largest.size())
    out += fmt::format("    and {} more operands (see --json)\n", comparison.largest.size() - shown);
  return out;
}

}  // namespace tenon::report
