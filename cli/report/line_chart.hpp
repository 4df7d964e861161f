// Curves of one or more metrics in one drawing, on the frame and scales of the study's report.
#pragma once

#include "ab/charts.hpp"

#include <string>
#include <vector>

namespace tenon::report {

struct ChartLine {
  std::string name;
  const ab::Series* series = nullptr;
  std::size_t colour = 0;  ///< arm0 to arm5 of the style sheet
};

/// `y` and the end of `x` follow from the lines unless set, so that small drawings can share them.
struct ChartScale {
  ab::Range x{0, 0};
  ab::Range y{0, 0};
};

ChartScale scale_of(const std::vector<ChartLine>& lines, ab::Axis axis);
std::string line_chart(const std::vector<ChartLine>& lines, const std::string& title, ab::Axis axis,
                       ab::ChartSize size, const ChartScale& scale);
/// Names with their markers.
std::string line_legend(const std::vector<ChartLine>& lines);

}  // namespace tenon::report
