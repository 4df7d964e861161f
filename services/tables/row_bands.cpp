// Bands of a power law from sums in closed form, and of a record from the few points of its curve.
#include "tables/row_bands.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::train {
namespace {

/// Rows in bands of one row each.
constexpr std::int64_t kSingleRows = 32;
/// A later band has this part of the rows before it.
constexpr std::int64_t kBandPart = 16;

/// Sum of k^-exponent for k in (after, last], by the midpoint rule with its first correction; relative error
/// below 1e-7 where after >= kSingleRows.
double power_sum(std::int64_t after, std::int64_t last, double exponent) {
  const double a = static_cast<double>(after) + 0.5, b = static_cast<double>(last) + 0.5;
  // (b^p - a^p) / p of p = 1 - exponent, which is log(b / a) at 0, without loss of digits near it.
  const double p = 1 - exponent, ratio = std::log(b / a);
  const double integral =
      std::abs(p * ratio) < 1e-9 ? std::pow(a, p) * ratio : std::pow(a, p) * std::expm1(p * ratio) / p;
  return integral + exponent / 24 * (std::pow(b, -exponent - 1) - std::pow(a, -exponent - 1));
}

double per_row(const RowBand& band) {
  return band.accesses / static_cast<double>(band.rows);
}

/// Joins neighbours where accesses per row would rise: shares are rounded, and counts of a row saturate.
RowBands falling(const RowBands& bands) {
  RowBands result;
  for (const RowBand& band : bands) {
    if (band.rows <= 0) continue;
    result.push_back({band.rows, std::max(0.0, band.accesses)});
    while (result.size() > 1 && per_row(result.back()) > per_row(result[result.size() - 2])) {
      const RowBand last = result.back();
      result.pop_back();
      result.back().rows += last.rows;
      result.back().accesses += last.accesses;
    }
  }
  return result;
}

/// Rows between two points of a recorded curve.
struct Stretch {
  std::int64_t after = 0, last = 0;
  double accesses = 0;
  double mean() const { return accesses / static_cast<double>(last - after); }
};

/// Accesses that fall as 1 / k between the points, as far as that leaves them falling across each of these: a
/// stretch is mixed with its mean until its ends pass the geometric mean of both sides.
void add_falling(RowBands& bands, const Stretch& part, double most, double least) {
  const double from = static_cast<double>(part.after) + 0.5, to = static_cast<double>(part.last) + 0.5;
  const double scale = part.accesses / std::log(to / from), mean = part.mean();
  const double first = scale * std::log((from + 1) / from), last = scale * std::log(to / (to - 1));
  double mix = 1;
  if (first > most) mix = std::min(mix, std::max(0.0, most - mean) / (first - mean));
  if (last < least) mix = std::min(mix, std::max(0.0, mean - least) / (mean - last));
  for (std::int64_t at = part.after; at < part.last;) {
    const std::int64_t end = std::min(part.last, at + std::max<std::int64_t>(1, at / kBandPart));
    const double falling =
        scale * std::log((static_cast<double>(end) + 0.5) / (static_cast<double>(at) + 0.5));
    bands.push_back({end - at, mix * falling + (1 - mix) * mean * static_cast<double>(end - at)});
    at = end;
  }
}

std::vector<Stretch> stretches_of(const TablePart& part) {
  std::vector<Stretch> stretches;
  std::int64_t reached = 0;
  double known = 0;
  const auto up_to = [&](std::int64_t row, double accesses) {
    row = std::min(row, part.touched);
    if (row <= reached) return;
    stretches.push_back({reached, row, std::max(0.0, accesses - known)});
    known = std::max(known, accesses);
    reached = row;
  };
  for (const HotRow& row : part.hottest) up_to(reached + 1, known + static_cast<double>(row.accesses));
  const auto total = static_cast<double>(part.accesses);
  const std::int64_t rows = part.last - part.first;
  up_to((rows + 99) / 100, part.share_of_1_percent * total);
  up_to((rows + 9) / 10, part.share_of_10_percent * total);
  up_to(part.touched, total);
  return stretches;
}

RowBands bands_of(const TablePart& part) {
  const std::vector<Stretch> stretches = stretches_of(part);
  const auto between = [](const Stretch& a, const Stretch& b) { return std::sqrt(a.mean() * b.mean()); };
  RowBands bands;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    add_falling(bands, stretches[i],
                i > 0 ? between(stretches[i - 1], stretches[i]) : std::numeric_limits<double>::infinity(),
                i + 1 < stretches.size() ? between(stretches[i], stretches[i + 1]) : 0);
  }
  return falling(bands);
}

}  // namespace

RowBands power_law_bands(std::int64_t rows, double exponent) {
  RowBands bands;
  double sum = 0;
  for (std::int64_t at = 0; at < rows;) {
    const std::int64_t step = at < kSingleRows ? 1 : at / kBandPart;
    const std::int64_t end = std::min(rows, at + step);
    const double accesses =
        at < kSingleRows ? std::pow(static_cast<double>(end), -exponent) : power_sum(at, end, exponent);
    bands.push_back({end - at, accesses});
    sum += accesses;
    at = end;
  }
  for (RowBand& band : bands) band.accesses /= sum;
  return bands;
}

RowBands recorded_bands(const TableFacts& table, std::int64_t first, std::int64_t last) {
  RowBands all;
  std::vector<const TablePart*> parts;
  for (const TablePart& part : table.placement) {
    const bool copy = std::any_of(parts.begin(), parts.end(), [&](const TablePart* other) {
      return other->first == part.first && other->last == part.last;
    });
    if (copy) continue;
    if (part.first == first && part.last == last) return bands_of(part);
    parts.push_back(&part);
    for (const RowBand& band : bands_of(part)) all.push_back(band);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const RowBand& a, const RowBand& b) { return per_row(a) > per_row(b); });
  // Boundaries between bands are rounded, so that the rows of all bands are those of the range.
  RowBands bands;
  const double share =
      static_cast<double>(last - first) / static_cast<double>(std::max<std::int64_t>(1, table.rows));
  std::int64_t before = 0, taken = 0;
  double carried = 0;
  for (const RowBand& band : all) {
    before += band.rows;
    const std::int64_t end =
        std::min<std::int64_t>(last - first, std::llround(static_cast<double>(before) * share));
    carried += band.accesses * share;
    if (end <= taken) continue;
    bands.push_back({end - taken, carried});
    taken = end;
    carried = 0;
  }
  if (!bands.empty()) bands.back().accesses += carried;
  return falling(bands);
}

double hottest_accesses(const RowBands& bands, std::int64_t rows) {
  double sum = 0;
  for (const RowBand& band : bands) {
    const std::int64_t taken = std::min(rows, band.rows);
    if (taken <= 0) break;
    sum += taken == band.rows ? band.accesses : per_row(band) * static_cast<double>(taken);
    rows -= taken;
  }
  return sum;
}

}  // namespace tenon::train
