// Scales, ticks and frame; see plot.hpp.
#include "ab/plot.hpp"

#include "ab/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::ab {
namespace {

// Glyphs of the tick font are about this wide; text cannot be measured without a browser.
constexpr double kGlyph = 6.6;
constexpr double kTickGap = 8;

// Characters as drawn, not bytes: the minus sign takes three.
std::size_t glyphs(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

int decimals_of_step(double step) {
  int decimals = 0;
  while (decimals < 9 && std::abs(step - std::round(step)) > 1e-6 * std::abs(step)) {
    step *= 10;
    ++decimals;
  }
  return decimals;
}

}  // namespace

Range range_of(std::span<const double> values, double margin) {
  Range out{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (double v : values) {
    if (!std::isfinite(v)) continue;
    out.low = std::min(out.low, v);
    out.high = std::max(out.high, v);
  }
  if (out.low > out.high) return {0, 1};
  double length = out.high - out.low;
  // A range at the limit of resolution would make all tick labels equal.
  const double least = 1e-9 * std::max(std::abs(out.low), std::abs(out.high));
  if (length <= least) {
    const double half = out.low == 0 ? 0.5 : std::max(std::abs(out.low) * 0.05, 1e-12);
    return {out.low - half, out.high + half};
  }
  return {out.low - margin * length, out.high + margin * length};
}

std::vector<double> round_ticks(Range range, int count) {
  const double raw = (range.high - range.low) / std::max(1, count);
  const double magnitude = std::pow(10.0, std::floor(std::log10(raw)));
  const double lead = raw / magnitude;
  const double step = magnitude * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
  std::vector<double> out;
  for (double i = std::ceil(range.low / step - 1e-9); i * step <= range.high + 1e-9 * step; ++i) {
    out.push_back(i * step + 0.0);  // never a negative zero
    if (out.size() > 50) break;     // a degenerate range must not fill memory
  }
  return out;
}

AxisText number_axis(std::string title, std::span<const double> ticks) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : (ticks.empty() ? 1.0 : ticks[0]);
  if (std::abs(step) >= 1e6 || std::abs(step) < 1e-7) {
    return {std::move(title), [](double v) { return compact(v); }};
  }
  const int decimals = decimals_of_step(step);
  return {std::move(title), [decimals](double v) { return fixed(v, decimals); }};
}

AxisText quantity_axis(Axis axis, Range range) {
  static constexpr struct {
    double scale;
    const char* prefix;
  } kPrefixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  const double most = std::max(std::abs(range.low), std::abs(range.high));
  const bool bytes = axis == Axis::kBytes;
  const bool plain = axis == Axis::kSeconds || (!bytes && most < 1e5);
  for (const auto& p : kPrefixes) {
    if (!plain && most < 2 * p.scale && p.scale > 1) continue;
    const double scale = plain ? 1 : p.scale;
    const std::string unit = plain ? "" : std::string(p.prefix) + (bytes ? "B" : "");
    std::string title = axis_label(axis);
    if (!unit.empty()) title += fmt::format(" ({})", unit);
    return {title, [scale](double v) { return compact(v / scale); }};
  }
  return {axis_label(axis), [](double v) { return compact(v); }};
}

Frame::Frame(Svg& svg, const Spec& spec) : x_range_(spec.x), y_range_(spec.y) {
  const bool narrow = svg.width() < 500;
  top_ = 10;
  bottom_ = svg.height() - 40;
  right_ = svg.width() - 14;
  const std::vector<double> y_ticks = round_ticks(spec.y, narrow ? 5 : 6);
  AxisText y_text = number_axis(spec.y_title, y_ticks);
  if (spec.y_is_share) y_text.label = [](double v) { return fmt::format("{:.0f}%", 100 * v); };
  std::size_t widest = 0;
  for (double t : y_ticks) widest = std::max(widest, glyphs(y_text.label(t)));
  left_ = spec.left > 0 ? spec.left : 24 + kGlyph * static_cast<double>(widest) + kTickGap;

  if (spec.draw_y) {
    for (double t : y_ticks) {
      svg.line({left_, y(t)}, {right_, y(t)}, "grid");
      svg.text({left_ - kTickGap, y(t) + 4}, y_text.label(t), "tick", Anchor::kEnd);
    }
    svg.vertical_text({12, (top_ + bottom_) / 2}, y_text.title, "axis-title");
  }
  svg.line({left_, bottom_}, {right_, bottom_}, "axis");
  if (!spec.draw_x) return;

  std::vector<double> x_ticks = round_ticks(spec.x, narrow ? 4 : 8);
  AxisText x_text =
      spec.x_is_quantity ? quantity_axis(spec.x_axis, spec.x) : number_axis(spec.x_title, x_ticks);
  // Fewer ticks rather than touching labels.
  const auto crowded = [&] {
    double widest_label = 0;
    for (double t : x_ticks)
      widest_label = std::max(widest_label, kGlyph * static_cast<double>(glyphs(x_text.label(t))));
    return x_ticks.size() > 2 && (widest_label + 14) * static_cast<double>(x_ticks.size()) > right_ - left_;
  };
  for (int count = narrow ? 3 : 7; crowded() && count >= 2; --count) {
    x_ticks = round_ticks(spec.x, count);
    if (!spec.x_is_quantity) x_text = number_axis(spec.x_title, x_ticks);
  }
  for (double t : x_ticks) {
    svg.line({x(t), bottom_}, {x(t), bottom_ + 4}, "axis");
    const double half = kGlyph * static_cast<double>(glyphs(x_text.label(t))) / 2;
    svg.text({std::min(x(t), svg.width() - half - 1), bottom_ + 17}, x_text.label(t), "tick",
             Anchor::kMiddle);
  }
  svg.text({(left_ + right_) / 2, svg.height() - 5}, x_text.title, "axis-title", Anchor::kMiddle);
}

double Frame::x(double value) const {
  return left_ + (value - x_range_.low) / (x_range_.high - x_range_.low) * (right_ - left_);
}

double Frame::y(double value) const {
  return bottom_ - (value - y_range_.low) / (y_range_.high - y_range_.low) * (bottom_ - top_);
}

}  // namespace tenon::ab
