// A small SVG writer: shapes with CSS classes, coordinates with one decimal, text escaped. The style sheet
// sets colours, fonts and widths, so one drawing serves light and dark pages. On it, the frame of a plot:
// scales, round ticks with units, grid, axis titles. Curves and marks are drawn by charts.cpp.
#pragma once

#include "ab/experiment.hpp"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

struct Range {
  double low = 0;
  double high = 1;
};

/// Smallest range that holds all finite values, widened by `margin` of its length on both sides; never empty.
Range range_of(std::span<const double> values, double margin);

/// Multiples of 1, 2 or 5 times a power of ten inside the range, about `count` of them.
std::vector<double> round_ticks(Range range, int count);

/// Title and tick labels of an axis.
struct AxisText {
  std::string title;
  std::function<std::string(double)> label;
};

/// Plain numbers with the decimals that the ticks need.
AxisText number_axis(std::string title, std::span<const double> ticks);
/// A quantity with one unit for the whole axis: "bytes sent (MB)", "samples (k)".
AxisText quantity_axis(Axis axis, Range range);

/// Draws grid, ticks and titles at once and maps data to pixels.
class Frame {
 public:
  struct Spec {
    Range x;
    Range y;
    std::string x_title;  ///< used when x_axis is not a quantity
    std::string y_title;
    bool x_is_quantity = true;
    Axis x_axis = Axis::kSteps;
    bool y_is_share = false;  ///< percent
    bool draw_x = true;       ///< ticks and title below
    bool draw_y = true;       ///< ticks, grid and title at the left
    double left = 0;          ///< pixels kept free at the left; 0 = what the labels need
  };
  Frame(Svg& svg, const Spec& spec);

  double x(double value) const;
  double y(double value) const;
  Point at(double x_value, double y_value) const { return {x(x_value), y(y_value)}; }
  double left() const { return left_; }
  double right() const { return right_; }
  double top() const { return top_; }
  double bottom() const { return bottom_; }

 private:
  Range x_range_, y_range_;
  double left_, right_, top_, bottom_;
};

}  // namespace tenon::ab
