// Numbers for readers: as many digits as the error allows, units with prefixes, a real minus sign. Text only;
// HTML and SVG escape on their own.
#pragma once

#include "ab/experiment.hpp"
#include "ab/statistics.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tenon::ab {

/// Decimals that show two significant digits of `resolution` (a half width or spread); 0 to 9.
int decimals_for(double resolution);
/// Fixed decimals, U+2212 as minus; "NaN", "infinite" in words.
std::string fixed(double value, int decimals);
/// The same with '+' before positive numbers.
std::string fixed_signed(double value, int decimals);
/// Five significant digits.
std::string compact(double value);
/// "0.031", "< 0.0001".
std::string p_value(double p);
/// "p = 0.031", "p < 0.0001".
std::string p_text(double p);
/// "95%", "99.984%": 1 - alpha with as many digits as tell it from 1.
std::string coverage_text(double alpha);
/// "12.5 k", "3.2 M" for counts; "1.5 MB" for bytes; "4 min 10 s" stays in seconds below two minutes.
std::string quantity(double value, Axis axis);
/// "42 s", "3 min 20 s", "1 h 05 min".
std::string duration_text(double seconds);
/// Label of an axis: "step", "samples", "tokens", "wall time (s)", "bytes sent".
std::string axis_label(Axis axis);
/// "a to b" with the decimals that suit its width.
std::string interval_text(const Interval& interval, int decimals);
/// Rows as left-aligned columns of plain text, two blanks apart, every line after `indent`.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::string_view indent = "");
/// Decimals for a metric whose difference is estimated by `difference`.
int metric_decimals(const MeanEstimate& difference, double level);

}  // namespace tenon::ab
