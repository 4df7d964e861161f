// Crossings and spreads of time_to.hpp.
#include "reproduce/time_to.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {
namespace {

double between(double from, double to, double share) {
  return from + share * (to - from);
}

CurvePoint between(const CurvePoint& a, const CurvePoint& b, double share) {
  return {.step = between(a.step, b.step, share),
          .seconds = between(a.seconds, b.seconds, share),
          .drawn = between(a.drawn, b.drawn, share),
          .trained = between(a.trained, b.trained, share),
          .bytes = between(a.bytes, b.bytes, share),
          .value = between(a.value, b.value, share)};
}

/// Known numbers in order, then the censored ones in order of their bounds.
bool before(const Bounded& a, const Bounded& b) {
  return a.bound != b.bound ? b.bound : a.value < b.value;
}

std::optional<double> on_line(const std::vector<double>& x, const std::vector<double>& y, double at) {
  const auto next = std::lower_bound(x.begin(), x.end(), at);
  if (next == x.end()) return std::nullopt;
  const auto i = static_cast<std::size_t>(next - x.begin());
  const double x0 = i == 0 ? 0 : x[i - 1], y0 = i == 0 ? 0 : y[i - 1];
  return x[i] > x0 ? between(y0, y[i], (at - x0) / (x[i] - x0)) : y[i];
}

}  // namespace

Reach first_reach(const Curve& curve, double threshold, bool lower_is_better) {
  const auto there = [&](double value) { return lower_is_better ? value <= threshold : value >= threshold; };
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (!there(curve[i].value)) continue;  // a NaN is not a place on the curve
    if (i == 0 || !std::isfinite(curve[i - 1].value) || !std::isfinite(curve[i].value))
      return {true, curve[i]};
    const double from = curve[i - 1].value;
    return {true, between(curve[i - 1], curve[i], (from - threshold) / (from - curve[i].value))};
  }
  return {false, curve.empty() ? CurvePoint() : curve.back()};
}

double looser_threshold(double threshold, double share, bool lower_is_better) {
  return threshold + (lower_is_better ? 1 : -1) * share * std::abs(threshold);
}

std::optional<double> value_at(const Curve& curve, double CurvePoint::*axis, double x) {
  if (curve.empty() || x < curve.front().*axis) return std::nullopt;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double here = curve[i].*axis;
    if (here < x) continue;
    if (i == 0 || here == x) return curve[i].value;
    const double last = curve[i - 1].*axis;
    return between(curve[i - 1].value, curve[i].value, (x - last) / (here - last));
  }
  return std::nullopt;
}

std::optional<Spread> spread_of(std::vector<Bounded> numbers) {
  if (numbers.empty()) return std::nullopt;
  std::sort(numbers.begin(), numbers.end(), before);
  Spread out;
  out.n = numbers.size();
  out.censored = static_cast<std::size_t>(
      std::count_if(numbers.begin(), numbers.end(), [](const Bounded& b) { return b.bound; }));
  out.low = numbers.front();
  out.high = numbers.back();
  const Bounded &a = numbers[(out.n - 1) / 2], &b = numbers[out.n / 2];
  // Between a known number and a bound, all that is known is that it is beyond their middle.
  out.median = {(a.value + b.value) / 2, a.bound || b.bound};
  return out;
}

std::optional<Spread> spread_of_upper(std::vector<Bounded> numbers) {
  for (Bounded& b : numbers) b.value = -b.value;
  std::optional<Spread> out = spread_of(std::move(numbers));
  if (!out) return out;
  for (Bounded* b : {&out->median, &out->low, &out->high}) b->value = -b->value;
  std::swap(out->low, out->high);
  return out;
}

Bounded time_gap(double baseline_seconds, const Reach& arm) {
  return {100 * (baseline_seconds - arm.at.seconds) / baseline_seconds, !arm.reached};
}

std::optional<double> SlotTimes::seconds_at(double slot) const {
  return on_line(step, seconds, slot);
}

std::optional<double> SlotTimes::bytes_at(double slot) const {
  return on_line(step, bytes, slot);
}

}  // namespace tenon::reproduce
