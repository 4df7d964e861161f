// Clipping uses a nested <svg>, because clip paths need page-wide unique ids.
#include "ab/plot.hpp"

#include "ab/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace tenon::ab {
namespace {

// One decimal is a tenth of a pixel: enough for the eye, a third of the bytes.
std::string px(double v) {
  std::string text = fmt::format("{:.1f}", v);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string title_element(std::string_view title) {
  return title.empty() ? std::string() : fmt::format("<title>{}</title>", escape_html(title));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r') {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

Marker marker_of(std::size_t arm) {
  static constexpr Marker kOrder[] = {Marker::kCircle, Marker::kSquare, Marker::kTriangle, Marker::kDiamond};
  return kOrder[arm % std::size(kOrder)];
}

Svg::Svg(double width, double height, std::string_view css_class, std::string_view label)
    : width_(width), height_(height) {
  out_ = fmt::format(
      R"(<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg">)",
      css_class, px(width), px(height), escape_html(label));
  out_ += '\n';
}

void Svg::line(Point from, Point to, std::string_view css_class) {
  out_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", css_class, px(from.x),
                      px(from.y), px(to.x), px(to.y));
}

void Svg::rect(Point corner, double width, double height, std::string_view css_class) {
  out_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", css_class,
                      px(corner.x), px(corner.y), px(std::max(0.0, width)), px(std::max(0.0, height)));
}

void Svg::polyline(std::span<const Point> points, std::string_view css_class, std::string_view title) {
  std::string path;
  bool pen_down = false;
  for (const Point& p : points) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{} {}", pen_down ? "L" : "M", px(p.x), px(p.y));
    pen_down = true;
  }
  if (path.empty()) return;
  out_ += fmt::format("<path class=\"{}\" d=\"{}\">{}</path>\n", css_class, path, title_element(title));
}

void Svg::band(std::span<const Point> upper, std::span<const Point> lower, std::string_view css_class) {
  std::string path;
  const auto add = [&](const Point& p) {
    if (std::isfinite(p.x) && std::isfinite(p.y)) {
      path += fmt::format("{}{} {}", path.empty() ? "M" : "L", px(p.x), px(p.y));
    }
  };
  for (const Point& p : upper) add(p);
  for (auto p = lower.rbegin(); p != lower.rend(); ++p) add(*p);
  if (!path.empty()) out_ += fmt::format("<path class=\"{}\" d=\"{}Z\"/>\n", css_class, path);
}

void Svg::marker(Marker shape, Point c, double r, std::string_view css_class, std::string_view title) {
  if (!std::isfinite(c.x) || !std::isfinite(c.y)) return;
  std::string element;
  const auto polygon = [&](std::initializer_list<Point> corners) {
    element = "<polygon points=\"";
    for (const Point& p : corners) element += fmt::format("{},{} ", px(c.x + r * p.x), px(c.y + r * p.y));
    element.back() = '"';
  };
  switch (shape) {
    case Marker::kCircle:
      element = fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"", px(c.x), px(c.y), px(r));
      break;
    case Marker::kSquare:
      polygon({{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}});
      break;
    case Marker::kTriangle:
      polygon({{0, -1.2}, {1.1, 0.8}, {-1.1, 0.8}});
      break;
    case Marker::kDiamond:
      polygon({{0, -1.25}, {1.25, 0}, {0, 1.25}, {-1.25, 0}});
      break;
  }
  const char* tag = shape == Marker::kCircle ? "circle" : "polygon";
  out_ += fmt::format("{} class=\"{}\">{}</{}>\n", element, css_class, title_element(title), tag);
}

void Svg::text(Point at, std::string_view content, std::string_view css_class, Anchor anchor) {
  static constexpr const char* kAnchors[] = {"start", "middle", "end"};
  out_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", css_class,
                      px(at.x), px(at.y), kAnchors[static_cast<int>(anchor)], escape_html(content));
}

void Svg::vertical_text(Point at, std::string_view content, std::string_view css_class) {
  out_ += fmt::format(
      "<text class=\"{}\" transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      css_class, px(at.x), px(at.y), escape_html(content));
}

void Svg::begin_clip(Point corner, double width, double height) {
  out_ += fmt::format("<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n",
                      px(corner.x), px(corner.y), px(width), px(height));
}

void Svg::end_clip() {
  out_ += "</svg>\n";
}

std::string Svg::take() {
  return std::move(out_) + "</svg>";
}

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
