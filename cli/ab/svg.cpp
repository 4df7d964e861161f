// SVG writer; see svg.hpp. Clipping uses a nested <svg>, because clip paths need page-wide unique ids.
#include "ab/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

namespace tenon::ab {
namespace {

// One decimal is a tenth of a pixel: enough for the eye, a third of the bytes.
std::string px(double v) {
  std::string text = fmt::format("{:.1f}", v);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

/// Draws through points, each as its distance from the last in tenths of a pixel: two thirds of the bytes of
/// coordinates. Distances are taken between rounded points, so that errors do not add up.
class PathData {
 public:
  void move_to(const Point& p) {
    x_ = tenths(p.x);
    y_ = tenths(p.y);
    text_ += fmt::format("M{} {}", number(x_), number(y_));
    drawing_ = false;
  }
  void line_to(const Point& p) {
    const long long x = tenths(p.x), y = tenths(p.y);
    if (!drawing_) text_ += 'l';
    add(x - x_, drawing_);
    add(y - y_, true);
    drawing_ = true;
    x_ = x;
    y_ = y;
  }
  const std::string& text() const { return text_; }

 private:
  /// A run that diverges may be 1e300 pixels away; a million is far outside every drawing, too.
  static long long tenths(double v) { return std::llround(10 * std::clamp(v, -1e6, 1e6)); }
  /// 42 is "4.2", -3 is "-.3".
  static std::string number(long long tenths) {
    const long long size = std::llabs(tenths);
    std::string out = tenths < 0 ? "-" : "";
    if (size >= 10 || size == 0) out += std::to_string(size / 10);
    if (size % 10 != 0) out += '.' + std::to_string(size % 10);
    return out;
  }
  void add(long long tenths, bool after_number) {
    if (after_number && tenths >= 0) text_ += ' ';
    text_ += number(tenths);
  }

  std::string text_;
  long long x_ = 0, y_ = 0;
  bool drawing_ = false;
};

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
  PathData path;
  bool pen_down = false;
  for (const Point& p : points) {
    const bool finite = std::isfinite(p.x) && std::isfinite(p.y);
    if (finite) pen_down ? path.line_to(p) : path.move_to(p);
    pen_down = finite;
  }
  if (path.text().empty()) return;
  out_ +=
      fmt::format("<path class=\"{}\" d=\"{}\">{}</path>\n", css_class, path.text(), title_element(title));
}

void Svg::band(std::span<const Point> upper, std::span<const Point> lower, std::string_view css_class) {
  PathData path;
  const auto add = [&](const Point& p) {
    if (std::isfinite(p.x) && std::isfinite(p.y)) path.text().empty() ? path.move_to(p) : path.line_to(p);
  };
  for (const Point& p : upper) add(p);
  for (auto p = lower.rbegin(); p != lower.rend(); ++p) add(*p);
  if (!path.text().empty()) out_ += fmt::format("<path class=\"{}\" d=\"{}Z\"/>\n", css_class, path.text());
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

}  // namespace tenon::ab
