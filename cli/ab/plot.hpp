// The frame of a plot: scales, round ticks with units, grid, axis titles. Curves and marks are drawn by
// charts.cpp.
#pragma once

#include "ab/experiment.hpp"
#include "ab/svg.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tenon::ab {

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
