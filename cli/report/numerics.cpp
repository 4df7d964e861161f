// Reads numerics.jsonl; draws the part of a run's page about number formats, in which a cell of a heat map is
// the mean over all sampled steps; and matches lines of two runs by step and operand. The hash is that of the
// operand before rounding: equal hashes with other figures mean that the rounding differs, and everything
// after it differs for that reason.
#include "report/numerics.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace tenon::report {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestFile = std::int64_t{4} << 30;

double figure(const json& object, const char* key) {
  const json& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

NumericsLine line_of(const json& object) {
  NumericsLine line;
  line.step = object.at("step");
  line.layer = object.at("layer");
  line.site = object.at("site");
  line.gemm = object.at("gemm");
  line.operand = object.at("operand");
  line.first_row = object.at("first_row");
  line.rows = object.at("rows");
  line.columns = object.at("columns");
  line.dtype = object.at("dtype");
  line.format = object.at("format");
  line.reason = object.at("reason");
  line.hash = object.at("hash");
  line.amax = figure(object, "amax");
  line.underflow = figure(object, "underflow");
  line.saturated = figure(object, "saturated");
  line.sqnr_db = figure(object, "sqnr_db");
  line.mean_relative_error = figure(object, "mean_relative_error");
  line.scale_binades = figure(object, "scale_binades");
  if (const auto choices = object.find("choices"); choices != object.end()) {
    constexpr const char* kNames[] = {"kept", "e4m3", "e5m2", "e2m3"};
    for (std::size_t i = 0; i < line.choices.size(); ++i) line.choices[i] = choices->at(kNames[i]);
  }
  return line;
}

}  // namespace

std::string NumericsLine::name() const {
  std::string text = fmt::format("{} {} {}", layer, gemm, operand);
  if (site != 0) text += fmt::format(" (site {})", site);
  if (first_row != 0) text += fmt::format(" (from row {})", first_row);
  return text;
}

std::optional<std::vector<NumericsLine>> read_numerics(FileSystem& files, const std::string& attempt) {
  const std::string path = attempt + "/numerics.jsonl";
  if (!files.exists(path)) return std::nullopt;
  const std::string text = read_text(files, path, kLargestFile);
  std::vector<NumericsLine> lines;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    try {
      lines.push_back(line_of(json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                          text.begin() + static_cast<std::ptrdiff_t>(end))));
    } catch (const json::exception& error) {
      fail_run(fmt::format("{}:{}: not a line of the observer numerics: {}; only the last line may be torn",
                           path, number, error.what()));
    }
    begin = end + 1;
  }
  return lines;
}

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
    Cell& cell = row->second[at - std::begin(kColumns)];
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

namespace {

constexpr std::size_t kMostLargest = 10;

using Key = std::tuple<std::int64_t, std::string, std::int64_t, std::string, std::string, std::int64_t>;

Key key_of(const NumericsLine& line) {
  return {line.step, line.layer, line.site, line.gemm, line.operand, line.first_row};
}

bool same_figures(const NumericsLine& a, const NumericsLine& b) {
  return a.format == b.format && same_figure(a.amax, b.amax) && same_figure(a.underflow, b.underflow) &&
         same_figure(a.saturated, b.saturated) && same_figure(a.sqnr_db, b.sqnr_db) &&
         same_figure(a.mean_relative_error, b.mean_relative_error) &&
         same_figure(a.scale_binades, b.scale_binades) && a.choices == b.choices;
}

/// The difference of the figures: the errors of the formats first, then the ranges. A figure that only one of
/// them has is the largest difference.
std::pair<double, double> distance(const OperandComparison::Pair& pair) {
  const auto [a, b] = std::pair(pair.a.amax, pair.b.amax);
  const double range = same_figure(a, b) ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b));
  const double error = same_figure(pair.a.mean_relative_error, pair.b.mean_relative_error)
                           ? 0
                           : std::abs(pair.a.mean_relative_error - pair.b.mean_relative_error);
  return {std::isnan(error) ? HUGE_VAL : error, std::isnan(range) ? HUGE_VAL : range};
}

std::string figures(const char* run, const NumericsLine& line) {
  return fmt::format(
      "    {}: {} {} [{}, {}], hash {}, amax {:.6g}, mean relative error {:.4g} %, became zero {:.4g} %, "
      "SQNR {}, {}\n",
      run, line.format, line.dtype, line.rows, line.columns, line.hash, line.amax,
      100 * line.mean_relative_error, 100 * line.underflow,
      std::isnan(line.sqnr_db) ? std::string("-") : fmt::format("{:.2f} dB", line.sqnr_db), line.reason);
}

std::string why(const OperandComparison::Pair& pair) {
  if (!pair.same_bits()) return "other bits went in";
  return pair.a.format == pair.b.format ? "equal bits went in and were rounded otherwise"
                                        : "equal bits went in, the formats differ";
}

std::string missing(const char* run) {
  return fmt::format(
      "operands: {} has no numerics.jsonl; to see where the runs part, train it again with\n"
      "  [[observe]]\n  type = \"numerics\"\n",
      run);
}

}  // namespace

bool same_figure(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

OperandComparison compare_operands(const std::string& attempt_a, const std::string& attempt_b) {
  const auto files = make_posix_files();
  const auto a = read_numerics(*files, attempt_a), b = read_numerics(*files, attempt_b);
  OperandComparison comparison;
  comparison.in_a = a.has_value();
  comparison.in_b = b.has_value();
  if (!a || !b) return comparison;
  comparison.lines_a = static_cast<std::int64_t>(a->size());
  comparison.lines_b = static_cast<std::int64_t>(b->size());
  std::map<Key, const NumericsLine*> in_b;
  for (const NumericsLine& line : *b) in_b.emplace(key_of(line), &line);
  std::map<std::string, OperandComparison::Pair> largest;  // by operand
  for (const NumericsLine& line : *a) {
    const auto found = in_b.find(key_of(line));
    if (found == in_b.end()) continue;
    ++comparison.common;
    OperandComparison::Pair pair{line, *found->second};
    if (pair.same_bits() && same_figures(pair.a, pair.b)) {
      ++comparison.equal;
      continue;
    }
    if (!comparison.first) comparison.first = pair;
    if (!comparison.first_bits && !pair.same_bits()) comparison.first_bits = pair;
    const auto [at, fresh] = largest.emplace(line.name(), pair);
    if (!fresh && distance(pair) > distance(at->second)) at->second = std::move(pair);
  }
  for (auto& [name, pair] : largest) comparison.largest.push_back(std::move(pair));
  std::stable_sort(comparison.largest.begin(), comparison.largest.end(),
                   [](const auto& x, const auto& y) { return distance(x) > distance(y); });
  return comparison;
}

std::string operands_text(const OperandComparison& comparison) {
  std::string out;
  if (!comparison.in_a || !comparison.in_b) {
    if (!comparison.in_a) out += missing("A");
    if (!comparison.in_b) out += missing("B");
    return out;
  }
  out = fmt::format("operands: {} lines of A, {} of B, {} of the same step and operand\n", comparison.lines_a,
                    comparison.lines_b, comparison.common);
  if (comparison.common == 0) return out + "  nothing to compare: the runs looked at other steps or layers\n";
  if (!comparison.first) return out + "  all of them have equal bits and equal figures\n";
  const auto where = [&](const OperandComparison::Pair& pair) {
    return fmt::format("step {}, {} ({})\n", pair.a.step, pair.a.name(), why(pair)) + figures("A", pair.a) +
           figures("B", pair.b);
  };
  out += "  the runs part at " + where(*comparison.first);
  if (!comparison.first_bits)
    out += "  no operand has other bits before rounding\n";
  else if (comparison.first->same_bits())
    out += "  the first other bits go in at " + where(*comparison.first_bits);
  out += fmt::format("  {} of {} differ; per operand, largest difference of errors first:\n",
                     comparison.common - comparison.equal, comparison.common);
  std::size_t width = 7;
  const std::size_t shown = std::min(comparison.largest.size(), kMostLargest);
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, comparison.largest[i].a.name().size());
  out += fmt::format("    {:<{}} {:>6} {:>12} {:>12} {:>11} {:>11} {:>11} {:>11}\n", "operand", width, "step",
                     "format A", "format B", "error A", "error B", "amax A", "amax B");
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& [a, b] = comparison.largest[i];
    out += fmt::format("    {:<{}} {:>6} {:>12} {:>12} {:>9.4g} % {:>9.4g} % {:>11.5g} {:>11.5g}\n", a.name(),
                       width, a.step, a.format, b.format, 100 * a.mean_relative_error,
                       100 * b.mean_relative_error, a.amax, b.amax);
  }
  if (shown < comparison.largest.size())
    out += fmt::format("    and {} more operands (see --json)\n", comparison.largest.size() - shown);
  return out;
}

}  // namespace tenon::report
