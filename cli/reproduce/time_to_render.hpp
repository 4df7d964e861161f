// Times to a loss as text, JSON and figure; every number comes from time_to_results.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// The section of table.md.
std::string time_to_markdown(const StudyResult& result);
/// The member "time_to" of table.json.
void time_to_json(JsonWriter& json, const StudyResult& result);
/// The drawing of figure.svg: per group of arms with one baseline and per arm, one row of runs for each link.
/// Returns the drawing without its frame, and its height in `height`.
std::string time_to_figure(const StudyResult& result, double top, double width, double& height);
/// The last lines that `tenon reproduce` prints.
std::string time_to_lines(const StudyResult& result);

/// "12.3", "> 80.1" for a bound from below, "< -20" with `upper`.
std::string bounded_text(const Bounded& value, int decimals, bool upper, bool sign);
/// Median and range: "12.3 (11.9 to > 13.0)".
std::string spread_text(const std::optional<Spread>& spread, int decimals, bool upper, bool sign);
/// "3 of 3", "1 of 3, 1 missing".
std::string reached_text(const ToThreshold& to);

}  // namespace tenon::reproduce
