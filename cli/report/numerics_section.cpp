// The part of a run's page about number formats. A cell of a heat map is the mean over all sampled steps.
#include "report/numerics.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>

namespace tenon::report {
namespace {

constexpr std::size_t kMostLayers = 200;
constexpr int kShades = 10;

/// A mean that skips values that are not finite.
struct Mean {
  double sum = 0, most = 0;
  std::int64_t count = 0;
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum += value;
    most = count == 0 ? value : std::max(most, value);
    ++count;
  }
  double value() const { return count == 0 ? std::nan("") : sum / static_cast<double>(count); }
};

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.3g} %", 100 * share);
}

constexpr const char* kColumns[] = {"fprop x", "fprop w", "dgrad dy", "dgrad w", "wgrad dy", "wgrad x"};

struct Cell {
  Mean value;
  std::set<std::string> formats;
};

/// Layers in the order of their first product; one mean per product and operand.
struct HeatMap {
  std::vector<std::string> layers;
  std::map<std::string, std::array<Cell, std::size(kColumns)>> cells;
  double most = 0;
};

HeatMap heat_map(const std::vector<NumericsLine>& lines,
                 const std::function<double(const NumericsLine&)>& figure) {
  HeatMap map;
  for (const NumericsLine& line : lines) {
    const std::string column = line.gemm + " " + line.operand;
    const auto at = std::find(std::begin(kColumns), std::end(kColumns), column);
    if (at == std::end(kColumns)) continue;
    const std::string layer = line.site == 0 ? line.layer : fmt::format("{} ({})", line.layer, line.site);
    const auto [row, fresh] = map.cells.try_emplace(layer);
    if (fresh) map.layers.push_back(layer);
    Cell& cell = row->second[static_cast<std::size_t>(at - std::begin(kColumns))];
    cell.value.add(figure(line));
    cell.formats.insert(line.format);
  }
  for (const auto& [layer, row] : map.cells) {
    for (const Cell& cell : row)
      if (cell.value.count > 0) map.most = std::max(map.most, cell.value.value());
  }
  return map;
}

/// The number of a block and the end of a name distinguish layers: "transformer.h.0.attn.q_proj" becomes
/// "h.0.attn.q_proj", and where that is too long "h.0\u2026q_proj".
std::string shortened(const std::string& name, std::size_t most) {
  const std::size_t digit = name.find_first_of("0123456789");
  const std::size_t last = name.rfind('.');
  if (digit != std::string::npos && last != std::string::npos && digit < last) {
    std::size_t begin = digit < 2 ? 0 : name.rfind('.', digit - 2);
    begin = begin == std::string::npos ? 0 : begin + (name[begin] == '.' ? 1 : 0);
    if (name.size() - begin <= most) return name.substr(begin);
    const std::size_t end = name.find('.', digit);
    std::string brief = name.substr(begin, end - begin) + "\u2026" + name.substr(last + 1);
    if (brief.size() <= most + 2) return brief;  // the ellipsis is three bytes
  }
  if (name.size() <= most) return name;
  return "\u2026" + name.substr(name.size() - most + 1);
}

std::string draw(const HeatMap& map, const std::string& title, ab::ChartSize size) {
  const bool narrow = size.width < 500;
  const double left = narrow ? 110 : 250, row = 22, top = narrow ? 62 : 30;
  const std::size_t layers = std::min(map.layers.size(), kMostLayers);
  const double width = (size.width - left) / static_cast<double>(std::size(kColumns));
  ab::Svg svg(size.width, top + row * static_cast<double>(layers) + 6, "chart", title);
  for (std::size_t c = 0; c < std::size(kColumns); ++c) {
    const double x = left + width * (static_cast<double>(c) + 0.5);
    if (narrow)
      svg.vertical_text({x + 4, 30}, kColumns[c], "tick");
    else
      svg.text({x, 18}, kColumns[c], "label", ab::Anchor::kMiddle);
  }
  for (std::size_t r = 0; r < layers; ++r) {
    const double y = top + row * static_cast<double>(r);
    svg.text({left - 8, y + 15}, shortened(map.layers[r], narrow ? 15 : 36), "tick", ab::Anchor::kEnd);
    const auto& cells = map.cells.at(map.layers[r]);
    for (std::size_t c = 0; c < std::size(kColumns); ++c) {
      const double x = left + width * static_cast<double>(c);
      const double value = cells[c].value.value();
      if (std::isnan(value)) {
        svg.text({x + width / 2, y + 15}, "\u00b7", "tick", ab::Anchor::kMiddle);
        continue;
      }
      const int shade = map.most > 0 ? static_cast<int>(std::ceil(kShades * value / map.most)) : 0;
      svg.rect({x + 1, y + 1}, width - 2, row - 2, fmt::format("heat h{}", std::clamp(shade, 0, kShades)));
      if (!narrow) svg.text({x + width / 2, y + 15}, percent(value), "label", ab::Anchor::kMiddle);
    }
  }
  return svg.take();
}

std::string panel(const HeatMap& map, const std::string& title) {
  return ab::drawing({860, 0}, {360, 0}, [&](ab::ChartSize size) { return draw(map, title, size); });
}

/// Share of blocks, or of tensors with one choice for the whole, that a mixture left unchanged.
double kept_share(const NumericsLine& line) {
  double all = 0;
  for (const std::int64_t count : line.choices) all += static_cast<double>(count);
  return all > 0 ? static_cast<double>(line.choices[0]) / all : std::nan("");
}

std::string by_format(const std::vector<NumericsLine>& lines) {
  struct Group {
    Mean error, sqnr, underflow, saturated, binades;
    std::set<std::string> layers;
    std::string worst;
    std::int64_t lines = 0;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const NumericsLine& line : lines) {
    Group& group = groups[{line.format, line.gemm + " " + line.operand}];
    if (group.error.count == 0 || line.mean_relative_error > group.error.most) group.worst = line.layer;
    ++group.lines;
    group.layers.insert(line.layer);
    group.error.add(line.mean_relative_error);
    group.sqnr.add(line.sqnr_db);
    group.underflow.add(line.underflow);
    group.saturated.add(line.saturated);
    group.binades.add(line.scale_binades);
  }
  std::vector<ab::TableRow> rows;
  for (const auto& [key, g] : groups) {
    rows.push_back(
        {{fmt::format("<code>{}</code>", ab::escape_html(key.first)),
          fmt::format("<span class=\"arm\">{}</span>", ab::escape_html(key.second)),
          fmt::format("{}", g.layers.size()), percent(g.error.value()),
          g.error.most > 0 ? fmt::format("{} <span class=\"note\">{}</span>", percent(g.error.most),
                                         ab::escape_html(shortened(g.worst, 22)))
                           : "-",
          g.sqnr.count == 0 ? "-" : fmt::format("{:.1f} dB", g.sqnr.value()), percent(g.underflow.value()),
          percent(g.saturated.value()), g.binades.count == 0 ? "-" : fmt::format("{:.1f}", g.binades.most)},
         false});
  }
  return ab::table({{"format", false},
                    {"operand", false},
                    {"layers", true},
                    {"mean relative error", true},
                    {"largest, in", true},
                    {"SQNR", true},
                    {"became zero", true},
                    {"saturated", true},
                    {"scales, binades", true}},
                   rows);
}

std::string reasons(const std::vector<NumericsLine>& lines) {
  std::map<std::tuple<std::string, std::string>, std::pair<std::int64_t, std::set<std::string>>> counts;
  for (const NumericsLine& line : lines) {
    auto& [number, layers] = counts[{line.format, line.reason}];
    ++number;
    layers.insert(line.layer);
  }
  std::vector<ab::TableRow> rows;
  for (const auto& [key, count] : counts) {
    const auto shown =
        std::next(count.second.begin(), static_cast<int>(std::min<std::size_t>(count.second.size(), 8)));
    std::string names = fmt::format("{}", fmt::join(count.second.begin(), shown, ", "));
    if (count.second.size() > 8) names += fmt::format(" and {} more", count.second.size() - 8);
    rows.push_back(
        {{fmt::format("<code>{}</code>", ab::escape_html(std::get<0>(key))),
          ab::escape_html(std::get<1>(key)), fmt::format("{}", count.first), ab::escape_html(names)},
         false});
  }
  return ab::table({{"format", false}, {"reason", false}, {"operands", true}, {"layers", false}}, rows);
}

}  // namespace

std::string numerics_section(const std::vector<NumericsLine>& lines) {
  if (lines.empty()) return "";
  std::set<std::int64_t> steps;
  bool mixture = false;
  for (const NumericsLine& line : lines) {
    steps.insert(line.step);
    mixture = mixture || !std::isnan(kept_share(line));
  }
  const HeatMap errors = heat_map(lines, [](const NumericsLine& line) { return line.mean_relative_error; });
  const HeatMap zeros = heat_map(lines, [](const NumericsLine& line) { return line.underflow; });
  std::vector<ab::Panel> panels{
      {"mean relative error", panel(errors, "mean relative error by layer and operand")},
      {"became zero", panel(zeros, "share of elements that became zero")}};
  if (mixture)
    panels.push_back({"kept", panel(heat_map(lines, kept_share), "share of blocks that were kept")});
  std::string out = ab::paragraph(
      fmt::format("What number formats did to the operands of products, in {} sampled step{} of {} to {}.",
                  steps.size(), steps.size() == 1 ? "" : "s", *steps.begin(), *steps.rbegin()));
  out +=
      "<figure>" + ab::tabs("numerics", panels) +
      "<figcaption>Means over the sampled steps; the darkest cell of a map is its largest value.</figcaption>"
      "</figure>\n";
  if (errors.layers.size() > kMostLayers)
    out += ab::paragraph(
        fmt::format("{} further layers are in numerics.jsonl.", errors.layers.size() - kMostLayers), "note");
  out += by_format(lines) + "<details><summary>Why each format was chosen</summary>\n" + reasons(lines) +
         "</details>\n";
  return ab::section("Number formats", out);
}

}  // namespace tenon::report
