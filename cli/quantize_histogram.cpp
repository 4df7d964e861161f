// Two panels with separate scales: rounded values fall into few bins, and a common scale would flatten the
// input.
#include "quantize_histogram.hpp"

#include "ab/format.hpp"
#include "ab/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tenon::cli {
namespace {

constexpr double kWidth = 860, kHeight = 520, kLeft = 64, kRight = 846;
constexpr double kMostBinades = 28;  // further down every element of a block with the largest element is lost
constexpr std::size_t kMostLevels = 600;

constexpr const char* kStyle = R"css(<style>
svg{background:var(--page);--page:#fff;--ink:#1c2126;--soft:#5a646e;--rule:#c9cfd5;--grid:#eceff2;--in:#0072b2;--out:#d55e00}
@media (prefers-color-scheme:dark){svg{--page:#14171a;--ink:#e4e7ea;--soft:#9ba5af;--rule:#3a424a;--grid:#23292f;--in:#56b4e9;--out:#ff9248}}
text{fill:var(--soft);font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
.title{fill:var(--ink);font-size:16px;font-weight:600}.label{fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{stroke:var(--rule)}
.in{fill:var(--in)}.out{fill:var(--out)}.level{stroke:var(--ink);stroke-opacity:.75}
</style>
)css";

/// 2 to a whole power with digits above the line.
std::string power_of_two(int exponent) {
  static constexpr const char* kDigits[] = {"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                            "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string text = "2";
  if (exponent < 0) text += "\u207b";
  for (const char c : std::to_string(std::abs(exponent))) text += kDigits[c - '0'];
  return text;
}

std::string share(std::int64_t part, std::int64_t whole) {
  if (part == 0) return "none";
  const double percent =
      100.0 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
  return percent < 0.005 ? "< 0.01 %" : fmt::format("{:.2f} %", percent);
}

struct Axis {
  double first, last;
  double x(double log2_value) const {
    return kLeft + (log2_value - first) / (last - first) * (kRight - kLeft);
  }
};

void draw_panel(ab::Svg& svg, const Axis& axis, const MagnitudeCounts& counts, double top, double bottom,
                const char* css_class, const std::string& label) {
  std::int64_t most = 1;
  for (const std::int64_t count : counts.bins) most = std::max(most, count);
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = bottom - part * (bottom - top);
    svg.line({kLeft, y}, {kRight, y}, part == 0 ? "axis" : "grid");
    if (part > 0) {
      svg.text({kLeft - 8, y + 4},
               fmt::format("{:.2g}%",
                           100 * part * static_cast<double>(most) / static_cast<double>(counts.elements)),
               "tick", ab::Anchor::kEnd);
    }
  }
  for (std::size_t i = 0; i < counts.bins.size(); ++i) {
    if (counts.bins[i] == 0) continue;
    const double low = axis.x(axis.first + static_cast<double>(i) / kBinsPerBinade);
    const double high = axis.x(axis.first + static_cast<double>(i + 1) / kBinsPerBinade);
    // One element among millions must be visible, too.
    const double height =
        std::max(1.0, static_cast<double>(counts.bins[i]) / static_cast<double>(most) * (bottom - top));
    svg.rect({low, bottom - height}, std::max(0.8, high - low - 0.6), height, css_class);
  }
  std::string text = fmt::format("{}: zero {}", label, share(counts.zero, counts.elements));
  if (counts.below > 0) text += fmt::format(", further left {}", share(counts.below, counts.elements));
  if (counts.non_finite > 0)
    text += fmt::format(", not finite {}", share(counts.non_finite, counts.elements));
  svg.text({kLeft, top - 8}, text, "label", ab::Anchor::kStart);
}

void draw_levels(ab::Svg& svg, const Axis& axis, std::span<const double> levels, double top) {
  for (const double level : levels) {
    const double x = axis.x(std::log2(level));
    if (std::isfinite(x) && x >= kLeft && x <= kRight) svg.line({x, top}, {x, top + 16}, "level");
  }
}

}  // namespace

MagnitudeCounts count_magnitudes(std::span<const float> values, double first, double last) {
  MagnitudeCounts counts;
  counts.first = first;
  const auto bins = static_cast<std::int64_t>(std::ceil((last - first) * kBinsPerBinade));
  counts.bins.assign(static_cast<std::size_t>(std::max<std::int64_t>(1, bins)), 0);
  counts.elements = static_cast<std::int64_t>(values.size());
  for (const float value : values) {
    if (value == 0) {
      ++counts.zero;
    } else if (!std::isfinite(value)) {
      ++counts.non_finite;
    } else {
      const double place = (std::log2(std::abs(static_cast<double>(value))) - first) * kBinsPerBinade;
      if (place < 0)
        ++counts.below;
      else
        ++counts.bins[std::min(counts.bins.size() - 1, static_cast<std::size_t>(place))];
    }
  }
  return counts;
}

std::string quantize_histogram(const HistogramText& text, std::span<const float> input,
                               std::span<const float> output, std::span<const double> levels) {
  double largest = 0, smallest = 0;
  for (const std::span<const float> values : {input, output}) {
    for (const float value : values) {
      const double magnitude = std::abs(static_cast<double>(value));
      if (!std::isfinite(magnitude) || magnitude == 0) continue;
      largest = std::max(largest, magnitude);
      smallest = smallest == 0 ? magnitude : std::min(smallest, magnitude);
    }
  }
  if (largest == 0) largest = smallest = 1;
  Axis axis{std::floor(std::log2(smallest)), std::floor(std::log2(largest)) + 1};
  axis.first = std::max(axis.first, axis.last - kMostBinades);

  ab::Svg svg(kWidth, kHeight, "chart", text.title);
  svg.text({kLeft, 28}, text.title, "title", ab::Anchor::kStart);
  svg.text({kLeft, 48}, text.note, "note", ab::Anchor::kStart);
  const int step = axis.last - axis.first > 14 ? 2 : 1;
  for (int e = static_cast<int>(axis.first); e <= static_cast<int>(axis.last); ++e) {
    svg.line({axis.x(e), 90}, {axis.x(e), 470}, "grid");
    if ((e - static_cast<int>(axis.first)) % step == 0)
      svg.text({axis.x(e), 488}, power_of_two(e), "tick", ab::Anchor::kMiddle);
  }
  draw_panel(svg, axis, count_magnitudes(input, axis.first, axis.last), 90, 250, "in", "input");
  draw_panel(svg, axis, count_magnitudes(output, axis.first, axis.last), 300, 430, "out", "became");
  if (!levels.empty() && levels.size() <= kMostLevels) {
    draw_levels(svg, axis, levels, 438);
    svg.text({kRight, 470}, fmt::format("{} levels of a block that holds the largest element", levels.size()),
             "note", ab::Anchor::kEnd);
  }
  svg.text({(kLeft + kRight) / 2, 510}, "magnitude", "label", ab::Anchor::kMiddle);
  std::string out = svg.take();
  out.insert(out.find('\n') + 1, kStyle);
  return out + "\n";
}

}  // namespace tenon::cli
