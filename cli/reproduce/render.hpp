// A study's results as files: table.md, table.json, figure.svg. Text only; every number comes from
// results.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>
#include <vector>

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
/// "2 min 05 s", "3 h 20 min".
std::string duration_text(double seconds);

/// Statement of a size that only proves that it runs; "" for the others.
std::string caution(const Size& size);

}  // namespace tenon::reproduce
