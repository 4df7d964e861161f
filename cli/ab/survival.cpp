// Kaplan-Meier, restricted mean, log-rank and MLPerf mean; see survival.hpp.
#include "ab/survival.hpp"

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace tenon::ab {
namespace {

double normal_quantile(double upper_tail) {
  return boost::math::quantile(boost::math::complement(boost::math::normal(), upper_tail));
}

std::size_t count_at_risk(std::span<const Observation> runs, double time) {
  return std::count_if(runs.begin(), runs.end(), [&](const Observation& o) { return o.time >= time; });
}

std::size_t count_events(std::span<const Observation> runs, double time) {
  return std::count_if(runs.begin(), runs.end(),
                       [&](const Observation& o) { return o.reached && o.time == time; });
}

std::set<double> event_times(std::span<const Observation> runs) {
  std::set<double> times;
  for (const Observation& o : runs) {
    if (o.reached) times.insert(o.time);
  }
  return times;
}

// Band for log(-log S), which keeps the bounds inside [0, 1] (Kalbfleisch and Prentice).
Interval log_log_band(double survival, double greenwood, double z) {
  if (survival <= 0 || survival >= 1) return {0, 1};
  const double log_survival = std::log(survival);
  const double spread = z * std::sqrt(greenwood) / std::abs(log_survival);
  const double centre = std::log(-log_survival);
  return {std::exp(-std::exp(centre + spread)), std::exp(-std::exp(centre - spread))};
}

template <class Bound>
std::optional<double> first_at_or_below_half(const std::vector<SurvivalStep>& steps, Bound bound) {
  for (const SurvivalStep& step : steps) {
    // A survival of exactly one half is reached by products such as 4/5 * 5/8, which round.
    if (bound(step) <= 0.5 + 1e-12) return step.time;
  }
  return std::nullopt;
}

void fill_restricted_mean(SurvivalEstimate& out, double alpha) {
  double area = 0;
  double last_time = 0;
  double last_survival = 1;
  std::vector<double> area_before;  // area under S up to each event time
  for (const SurvivalStep& step : out.steps) {
    if (step.time > out.horizon) break;
    area += (step.time - last_time) * last_survival;
    area_before.push_back(area);
    last_time = step.time;
    last_survival = step.survival;
  }
  area += std::max(0.0, out.horizon - last_time) * last_survival;
  double variance = 0;
  for (std::size_t i = 0; i < area_before.size(); ++i) {
    const double at_risk = static_cast<double>(out.steps[i].at_risk);
    const double events = static_cast<double>(out.steps[i].events);
    if (at_risk <= events) continue;  // no area is left to the right
    const double after = area - area_before[i];
    variance += after * after * events / (at_risk * (at_risk - events));
  }
  out.restricted_mean = area;
  out.restricted_mean_se = std::sqrt(variance);
  out.restricted_mean_interval = normal_interval(area, out.restricted_mean_se, alpha);
}

}  // namespace

Interval normal_interval(double centre, double se, double alpha) {
  const double half = normal_quantile(alpha / 2) * se;
  return {centre - half, centre + half};
}

SurvivalEstimate kaplan_meier(std::span<const Observation> runs, double horizon, double alpha) {
  SurvivalEstimate out;
  out.n = runs.size();
  out.horizon = horizon;
  const double z = normal_quantile(alpha / 2);
  double survival = 1;
  double greenwood = 0;
  for (double time : event_times(runs)) {
    const std::size_t at_risk = count_at_risk(runs, time);
    const std::size_t events = count_events(runs, time);
    const double n = static_cast<double>(at_risk);
    const double d = static_cast<double>(events);
    survival *= (n - d) / n;
    if (at_risk > events) greenwood += d / (n * (n - d));
    out.reached += events;
    out.steps.push_back({time, at_risk, events, survival, log_log_band(survival, greenwood, z)});
  }
  out.median = first_at_or_below_half(out.steps, [](const SurvivalStep& s) { return s.survival; });
  out.median_low = first_at_or_below_half(out.steps, [](const SurvivalStep& s) { return s.interval.low; });
  out.median_high = first_at_or_below_half(out.steps, [](const SurvivalStep& s) { return s.interval.high; });
  fill_restricted_mean(out, alpha);
  return out;
}

LogRankTest log_rank_test(std::span<const Observation> a, std::span<const Observation> b) {
  std::set<double> times = event_times(a);
  times.merge(event_times(b));
  double observed_minus_expected = 0;
  double variance = 0;
  for (double time : times) {
    const double at_risk_a = static_cast<double>(count_at_risk(a, time));
    const double at_risk = at_risk_a + static_cast<double>(count_at_risk(b, time));
    const double events_a = static_cast<double>(count_events(a, time));
    const double events = events_a + static_cast<double>(count_events(b, time));
    const double share = at_risk_a / at_risk;
    observed_minus_expected += events_a - events * share;
    if (at_risk > 1) variance += events * share * (1 - share) * (at_risk - events) / (at_risk - 1);
  }
  LogRankTest out;
  if (variance <= 0) return out;
  out.chi_square = observed_minus_expected * observed_minus_expected / variance;
  out.p = boost::math::cdf(boost::math::complement(boost::math::chi_squared(1), out.chi_square));
  return out;
}

MlperfMean mlperf_mean(std::span<const Observation> runs) {
  MlperfMean out;
  std::vector<double> times;
  std::size_t missed = 0;
  for (const Observation& o : runs) {
    missed += !o.reached;
    times.push_back(o.reached ? o.time : std::numeric_limits<double>::infinity());
  }
  const bool trimmed = runs.size() >= 5;
  const std::size_t allowed = trimmed ? 1 : 0;
  if (runs.empty() || missed > allowed) {
    out.why = runs.empty() ? "no runs"
                           : fmt::format("{} of {} runs missed the target (at most {} may)", missed,
                                         runs.size(), allowed);
    return out;
  }
  std::sort(times.begin(), times.end());
  if (trimmed) {
    times.erase(times.begin());
    times.pop_back();
  }
  double sum = 0;
  for (double t : times) sum += t;
  out.used = times.size();
  out.mean = sum / static_cast<double>(times.size());
  return out;
}

}  // namespace tenon::ab
