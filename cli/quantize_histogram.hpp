// histogram.svg of `tenon quantize`: the frequency of each magnitude before and after, on one logarithmic
// axis, and the levels of the format beside the largest element. Apart from the command: it knows numbers
// only, no formats and no files.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tenon::cli {

struct HistogramText {
  std::string title;  ///< "h.0.weight: nvfp4"
  std::string note;   ///< below it
};

/// levels: magnitudes that a block with the largest element can hold, empty = not drawn. A file of its own:
/// style inside, light and dark, no script. Values that are not finite are counted in words.
std::string quantize_histogram(const HistogramText& text, std::span<const float> input,
                               std::span<const float> output, std::span<const double> levels);

/// Counts of log2 |x| in bins of an eighth of a binade.
struct MagnitudeCounts {
  double first = 0;  ///< log2 where bin 0 begins
  std::vector<std::int64_t> bins;
  std::int64_t zero = 0, below = 0, non_finite = 0, elements = 0;
};
inline constexpr double kBinsPerBinade = 8;
/// Bins cover [first, last); magnitudes under 2^first count as `below`, those at or over 2^last in the last
/// bin.
MagnitudeCounts count_magnitudes(std::span<const float> values, double first, double last);

}  // namespace tenon::cli
