// Curves come from reuse distances, so they hold for a cache of any size, whatever the run itself had.
#include "report/tables_section.hpp"

#include "ab/charts.hpp"
#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tenon::report {
namespace {

/// More curves cannot be told apart.
constexpr std::size_t kMostCurves = 6;

struct ReuseCurve {
  std::string name;
  std::int64_t owned = 0, accesses = 0;
  const train::ReuseFacts* reuse = nullptr;
};

/// One for each rank's shard of a table, the most accesses first.
std::vector<ReuseCurve> reuse_curves(const train::RunTables& run) {
  std::vector<ReuseCurve> curves;
  for (const train::TableFacts& table : run.tables) {
    for (const train::TablePart& part : table.placement) {
      if (!part.reuse || part.reuse->accesses == 0 || part.last == part.first) continue;
      curves.push_back({run.ranks == 1 ? table.name : fmt::format("{}, rank {}", table.name, part.rank),
                        part.last - part.first, part.reuse->accesses, &*part.reuse});
    }
  }
  std::stable_sort(curves.begin(), curves.end(),
                   [](const ReuseCurve& a, const ReuseCurve& b) { return a.accesses > b.accesses; });
  return curves;
}

std::string reuse_drawing(const std::vector<ReuseCurve>& curves, ab::ChartSize size) {
  ab::Svg svg(size.width, size.height, "chart", "hits against the size of a cache");
  const ab::Frame frame(svg, {.x = {0, 100},
                              .y = {0, 1},
                              .x_title = "rows in the cache, % of the table",
                              .y_title = "hits",
                              .x_is_quantity = false,
                              .y_is_share = true});
  for (std::size_t i = 0; i < curves.size(); ++i) {
    std::vector<ab::Point> points{frame.at(0, 0)};
    for (const train::ReuseFacts::Point& point : curves[i].reuse->lru) {
      points.push_back(frame.at(100 * static_cast<double>(point.rows) / static_cast<double>(curves[i].owned),
                                static_cast<double>(point.hits) / static_cast<double>(curves[i].accesses)));
    }
    svg.polyline(points, fmt::format("curve arm{}", i), curves[i].name);
  }
  return svg.take();
}

std::string reuse_figure(std::vector<ReuseCurve> curves) {
  if (curves.empty()) return "";
  std::string out = ab::paragraph(
      "Hits of a cache that keeps the rows used last, at every size. First accesses of a row cannot hit.");
  const std::size_t all = curves.size();
  curves.resize(std::min(all, kMostCurves));
  std::string keys;
  for (std::size_t i = 0; i < curves.size(); ++i) keys += ab::arm_key(i, curves[i].name);
  out +=
      "<figure>" + ab::legend(keys) +
      ab::drawing({860, 300}, {360, 240}, [&](ab::ChartSize size) { return reuse_drawing(curves, size); }) +
      "</figure>\n";
  if (all > kMostCurves)
    out += ab::paragraph(fmt::format("The {} with the most accesses of {} are drawn.", kMostCurves, all),
                         "note");
  return out;
}

std::string tiers_table(const train::RunTables& run) {
  std::vector<ab::TableRow> rows;
  for (const train::TableFacts& table : run.tables) {
    for (const train::TablePart& part : table.placement) {
      for (const train::TierFacts& tier : part.tiers) {
        const std::int64_t asked = tier.hits + tier.misses;
        const std::string what = tier.state.empty() ? table.name : tier.state + " of " + table.name;
        rows.push_back(
            {{ab::escape_html(what), std::to_string(part.rank), ab::escape_html(tier.tier),
              std::to_string(tier.reads), std::to_string(tier.writes),
              asked == 0 ? ""
                         : fmt::format("{:.1f} %",
                                       100 * static_cast<double>(tier.hits) / static_cast<double>(asked)),
              std::to_string(tier.misses), std::to_string(tier.evictions), std::to_string(tier.write_backs),
              ab::compact(static_cast<double>(tier.bytes_in + tier.bytes_out)),
              fmt::format("{:.3g} s", tier.stall_seconds)},
             false});
      }
    }
  }
  if (rows.empty()) return "";
  return ab::table({{"rows of", false},
                    {"rank", true},
                    {"tier", false},
                    {"read", true},
                    {"written", true},
                    {"hits", true},
                    {"misses", true},
                    {"evictions", true},
                    {"write-backs", true},
                    {"bytes moved", true},
                    {"stalled", true}},
                   rows);
}

}  // namespace

std::string tables_section(const train::RunTables& run) {
  const std::string out = reuse_figure(reuse_curves(run)) + tiers_table(run);
  return out.empty() ? "" : ab::section("Tables", out);
}

std::string tables_section(FileSystem& files, const std::string& attempt) {
  const std::vector<DirectoryEntry> entries = files.list(attempt);
  const bool any = std::any_of(entries.begin(), entries.end(), [](const DirectoryEntry& entry) {
    return entry.name.starts_with("tables.rank") && entry.name.ends_with(".json");
  });
  return any ? tables_section(train::read_tables(files, attempt)) : "";
}

}  // namespace tenon::report
