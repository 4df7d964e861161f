// A small SVG writer: shapes with CSS classes, coordinates with one decimal, text escaped. The style sheet
// sets colours, fonts and widths, so one drawing serves light and dark pages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tenon::ab {

struct Point {
  double x = 0;
  double y = 0;
};

/// &, <, >, " and ' as entities; control characters that HTML forbids become U+FFFD.
std::string escape_html(std::string_view text);

enum class Anchor { kStart, kMiddle, kEnd };

/// Marker shapes distinguish arms where colour cannot.
enum class Marker { kCircle, kSquare, kTriangle, kDiamond };
Marker marker_of(std::size_t arm);

class Svg {
 public:
  /// `label` is the text for a screen reader.
  Svg(double width, double height, std::string_view css_class, std::string_view label);

  void line(Point from, Point to, std::string_view css_class);
  void rect(Point corner, double width, double height, std::string_view css_class);
  /// A polyline that breaks at points that are not finite. `title` is the hover text; "" for none.
  void polyline(std::span<const Point> points, std::string_view css_class, std::string_view title);
  /// A closed shape between an upper and a lower edge.
  void band(std::span<const Point> upper, std::span<const Point> lower, std::string_view css_class);
  void marker(Marker shape, Point centre, double radius, std::string_view css_class, std::string_view title);
  void text(Point at, std::string_view content, std::string_view css_class, Anchor anchor);
  /// Text read from bottom to top, centred on `at`.
  void vertical_text(Point at, std::string_view content, std::string_view css_class);
  /// Clips everything drawn until end_clip() to this rectangle; coordinates stay those of the drawing.
  void begin_clip(Point corner, double width, double height);
  void end_clip();

  double width() const { return width_; }
  double height() const { return height_; }
  /// The finished element.
  std::string take();

 private:
  double width_;
  double height_;
  std::string out_;
};

}  // namespace tenon::ab
