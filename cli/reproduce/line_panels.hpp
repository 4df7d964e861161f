// A figure of several panels, one below the other, that show the same lines over one quantity: a legend on
// top, a frame per panel. Drawing only.
#pragma once

#include "ab/svg.hpp"
#include "reproduce/results.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct LinePanel {
  std::string title;                          ///< of the panel and its axis
  std::vector<std::vector<ab::Point>> lines;  ///< one per name, in data units; may be empty
  bool from_zero = false;
  std::optional<double> slope;  ///< of a line through the origin called "linear"
};

struct LineFigure {
  std::string x_title;
  std::vector<std::string> names;  ///< of the lines; those beyond the colours are dashed
  std::string under_title;         ///< statement of a size that may be quoted
  std::vector<LinePanel> panels;
};

/// The whole file, with the study's title and the size's caution.
std::string line_figure(const StudyResult& result, const LineFigure& figure);

}  // namespace tenon::reproduce
