// A study's results as files: table.md, table.json, figure.svg; and the pieces of which they are made. Text
// only; every number comes from results.hpp.
#pragma once

#include "ab/svg.hpp"
#include "reproduce/results.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

std::string table_markdown(const StudyResult& result);
std::string table_json(const StudyResult& result);
std::string figure_svg(const StudyResult& result);

inline constexpr double kFigureWidth = 760;
/// A drawing in a frame with its own style sheet, so that it can be viewed outside of any page.
std::string standing_alone(const StudyResult& result, double height, const std::string& drawing);

/// At most `most` bytes of a text, with an ellipsis for the rest; glyphs stay whole.
std::string shortened(const std::string& text, std::size_t most);

/// All studies with what they reproduce, their sizes and times.
std::string list_text(const std::vector<StudyFile>& studies);
std::string list_json(const std::vector<StudyFile>& studies);

/// "11 arms x 3 seeds x 1000 updates, about 35 min on two cores".
std::string size_text(const StudyFile& study, const Size& size);

/// Statement of a size that only proves that it runs; "" for the others.
std::string caution(const Size& size);

/// Sections for trained weights on other data, verdicts and first losses; "" for each that is absent.
std::string comparisons_markdown(const StudyResult& result);
/// Lines for the last words of the command.
std::string comparisons_text(const StudyResult& result);
void comparisons_json(JsonWriter& json, const StudyResult& result);
/// The member "paper_values" of table.json.
void paper_values_json(JsonWriter& json, const StudyResult& result);

/// In a cell without a value.
inline constexpr const char* kNoValue = "–";
/// A cell of a table: bars would end it.
std::string cell(std::string_view text);
std::string row(const std::vector<std::string>& cells);
/// Names of columns; all but the first hold numbers.
std::string head(const std::vector<std::string>& names);
/// Counts with a thousands separator.
std::string count(double value);

// A figure of several panels, one below the other, that show the same lines over one quantity: a legend on
// top, a frame per panel. Drawing only.

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
