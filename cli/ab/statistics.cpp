// Paired statistics; see statistics.hpp. Boost.Math runs with its errors turned into infinities, because a
// degenerate sample (two seeds, no spread) is an ordinary input here and not a failure.
#include "ab/statistics.hpp"

#include <boost/math/distributions/fisher_f.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/policies/policy.hpp>
#include <boost/math/tools/toms748_solve.hpp>

#include <Random123/philox.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tenon::ab {
namespace {

namespace bm = boost::math;
// Not in long double, either: fifteen digits are enough, and half of this file's compile time.
using Policy = bm::policies::policy<bm::policies::overflow_error<bm::policies::ignore_error>,
                                    bm::policies::evaluation_error<bm::policies::ignore_error>,
                                    bm::policies::promote_double<false>>;
using StudentT = bm::students_t_distribution<double, Policy>;
using FisherF = bm::fisher_f_distribution<double, Policy>;
using NoncentralT = bm::non_central_t_distribution<double, Policy>;

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two sums of the same numbers in another order differ by rounding; they must count as a tie.
double tie_tolerance(double total) {
  return 1e-12 * total;
}

// Every signed sum of `magnitudes`, unsorted.
std::vector<double> signed_sums(std::span<const double> magnitudes) {
  std::vector<double> sums{0.0};
  for (double m : magnitudes) {
    const std::size_t count = sums.size();
    sums.resize(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
      sums[count + i] = sums[i] - m;
      sums[i] += m;
    }
  }
  return sums;
}

// Counts the patterns with |left + right| >= threshold, left from one half of the pairs and right from the
// other.
std::uint64_t count_extreme(std::span<const double> magnitudes, double threshold) {
  const auto half = magnitudes.size() / 2;
  const std::vector<double> left = signed_sums(magnitudes.first(half));
  std::vector<double> right = signed_sums(magnitudes.subspan(half));
  std::sort(right.begin(), right.end());
  std::uint64_t hits = 0;
  for (double l : left) {
    const auto high = std::lower_bound(right.begin(), right.end(), threshold - l);
    const auto low = std::upper_bound(right.begin(), high, -threshold - l);
    hits += static_cast<std::uint64_t>(right.end() - high) + static_cast<std::uint64_t>(low - right.begin());
  }
  return hits;
}

std::uint64_t sample_extreme(std::span<const double> magnitudes, double threshold, std::uint64_t draws) {
  r123::Philox4x32 philox;
  const r123::Philox4x32::key_type key{{0x7e4017u, 0x51676eu}};
  std::uint64_t hits = 0;
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    double sum = 0;
    r123::Philox4x32::ctr_type bits{};
    for (std::size_t i = 0; i < magnitudes.size(); ++i) {
      if (i % 128 == 0) {
        bits = philox({{static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32),
                        static_cast<std::uint32_t>(i / 128), 0u}},
                      key);
      }
      const bool negative = (bits[(i % 128) / 32] >> (i % 32)) & 1u;
      sum += negative ? -magnitudes[i] : magnitudes[i];
    }
    hits += std::abs(sum) >= threshold;
  }
  return hits;
}

}  // namespace

double upper_quantile(double p, double df) {
  return bm::quantile(bm::complement(StudentT(df), p));
}

double upper_tail(double t, double df) {
  if (std::isinf(t)) return t > 0 ? 0.0 : 1.0;
  return bm::cdf(bm::complement(StudentT(df), t));
}

double upper_tail_f(double f, double df1, double df2) {
  if (std::isinf(f)) return 0;
  return bm::cdf(bm::complement(FisherF(df1, df2), std::max(f, 0.0)));
}

MeanEstimate mean_with_interval(std::span<const double> values, double alpha) {
  MeanEstimate out;
  out.n = values.size();
  const double n = static_cast<double>(values.size());
  out.mean = values.empty() ? kUndefined : std::accumulate(values.begin(), values.end(), 0.0) / n;
  out.sd = out.se = out.interval.low = out.interval.high = kUndefined;
  if (values.size() < 2) return out;
  // Equal values must give spread 0 exactly, and their mean may be off by one rounding.
  if (std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; })) {
    out.mean = values[0];
  }
  double squares = 0;
  for (double v : values) squares += (v - out.mean) * (v - out.mean);
  out.sd = std::sqrt(squares / (n - 1));
  out.se = out.sd / std::sqrt(n);
  const double half = bm::quantile(bm::complement(StudentT(n - 1), alpha / 2)) * out.se;
  out.interval = {out.mean - half, out.mean + half};
  return out;
}

bool has_spread(std::span<const double> values) {
  if (values.size() < 2) return false;
  const auto [low, high] = std::ranges::minmax(values);
  return high - low > tie_tolerance(std::max(std::abs(low), std::abs(high)));
}

TTest paired_t_test(std::span<const double> differences) {
  if (differences.size() < 2) return {};
  if (!has_spread(differences)) return {kUndefined, kUndefined};
  const MeanEstimate m = mean_with_interval(differences, 0.05);
  const double t = m.mean / m.se;
  return {t, 2 * upper_tail(std::abs(t), static_cast<double>(m.n - 1))};
}

double median(std::vector<double> values) {
  if (values.empty()) return kUndefined;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double hodges_lehmann(std::span<const double> differences) {
  std::vector<double> walsh;
  walsh.reserve(differences.size() * (differences.size() + 1) / 2);
  for (std::size_t i = 0; i < differences.size(); ++i) {
    for (std::size_t j = i; j < differences.size(); ++j)
      walsh.push_back((differences[i] + differences[j]) / 2);
  }
  return median(std::move(walsh));
}

SignFlipTest sign_flip_test(std::span<const double> differences, std::uint64_t draws) {
  SignFlipTest out;
  if (differences.empty()) return out;
  std::vector<double> magnitudes;
  double sum = 0;
  double total = 0;
  for (double d : differences) {
    magnitudes.push_back(std::abs(d));
    sum += d;
    total += std::abs(d);
  }
  const double threshold = std::abs(sum) - tie_tolerance(total);
  out.exact = magnitudes.size() <= kExactSignFlipLimit;
  if (total == 0) {
    out.patterns = out.exact ? std::uint64_t{1} << magnitudes.size() : draws;
    return out;
  }
  if (out.exact) {
    out.patterns = std::uint64_t{1} << magnitudes.size();
    // A threshold at or below zero is met by every pattern; the two-sided count would see each of them twice.
    const std::uint64_t hits = threshold <= 0 ? out.patterns : count_extreme(magnitudes, threshold);
    out.p = static_cast<double>(hits) / static_cast<double>(out.patterns);
  } else {
    out.patterns = draws;
    out.p = static_cast<double>(sample_extreme(magnitudes, threshold, draws) + 1) /
            static_cast<double>(draws + 1);
  }
  return out;
}

double smallest_sign_flip_p(std::size_t n) {
  return n < 2 ? 1.0 : std::ldexp(2.0, -static_cast<int>(n));
}

double t_test_power(std::size_t n, double effect, double alpha) {
  if (n < 2) return 0;
  const double df = static_cast<double>(n - 1);
  const double critical = bm::quantile(bm::complement(StudentT(df), alpha / 2));
  const NoncentralT shifted(df, effect * std::sqrt(static_cast<double>(n)));
  return bm::cdf(bm::complement(shifted, critical)) + bm::cdf(shifted, -critical);
}

double minimum_detectable_effect(std::size_t n, double power, double alpha) {
  if (n < 2 || power <= alpha || power >= 1) return kInfinity;
  const auto missing = [&](double effect) { return t_test_power(n, effect, alpha) - power; };
  double high = 1;
  while (missing(high) < 0) high *= 2;
  std::uintmax_t steps = 200;
  const auto root = bm::tools::toms748_solve(missing, 0.0, high, bm::tools::eps_tolerance<double>(40), steps);
  return (root.first + root.second) / 2;
}

EquivalenceTest equivalence_test(std::span<const double> differences, double margin, double alpha) {
  EquivalenceTest out;
  out.margin = margin;
  const MeanEstimate m = mean_with_interval(differences, 2 * alpha);
  out.interval = m.interval;
  if (m.n < 2) return out;
  if (!has_spread(differences)) {
    const double all_one_sign = smallest_sign_flip_p(m.n) / 2;
    out.p_above_low = m.mean > -margin ? all_one_sign : 1;
    out.p_below_high = m.mean < margin ? all_one_sign : 1;
    out.p = std::max(out.p_above_low, out.p_below_high);
    return out;
  }
  const double df = static_cast<double>(m.n - 1);
  out.p_above_low = upper_tail((m.mean + margin) / m.se, df);
  out.p_below_high = upper_tail((margin - m.mean) / m.se, df);
  out.p = std::max(out.p_above_low, out.p_below_high);
  return out;
}

std::vector<double> holm_adjust(std::span<const double> p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double running = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const double scaled = static_cast<double>(order.size() - rank) * p_values[order[rank]];
    running = std::max(running, std::min(1.0, scaled));
    adjusted[order[rank]] = running;
  }
  return adjusted;
}

double correlation(std::span<const double> a, std::span<const double> b) {
  const std::size_t n = std::min(a.size(), b.size());
  if (n < 2) return kUndefined;
  const double mean_a = mean_with_interval(a.first(n), 0.05).mean;
  const double mean_b = mean_with_interval(b.first(n), 0.05).mean;
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : kUndefined;
}

}  // namespace tenon::ab
