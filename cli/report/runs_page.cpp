// The page about many runs: a table in the order of the best value, the differences of their configurations,
// and one small drawing per run on common scales.
#include "report/line_chart.hpp"
#include "report/pages.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tenon::report {
namespace {

using ab::Axis;
using ab::escape_html;

constexpr std::size_t kMostDrawings = 60;
constexpr std::size_t kMostKeys = 40;

/// The metric that most runs have.
std::string common_metric(const std::vector<Run>& runs) {
  std::map<std::string, int> votes;
  for (const Run& run : runs) ++votes[main_metric(run.record)];
  const auto most = std::max_element(votes.begin(), votes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == votes.end() ? "" : most->first;
}

const ab::Series* series_named(const Run& run, const std::string& name) {
  const auto found = run.record.series.find(name);
  return found == run.record.series.end() || found->second.empty() ? nullptr : &found->second;
}

double best_of(const Run& run, const std::string& metric) {
  const ab::Series* series = series_named(run, metric);
  if (series == nullptr) return NAN;
  const MetricFacts facts = facts_of(*series);
  return higher_is_better(metric) ? facts.most : facts.least;
}

/// Runs without a value come last.
std::vector<const Run*> by_best(const std::vector<Run>& runs, const std::string& metric) {
  std::vector<const Run*> order;
  for (const Run& run : runs) order.push_back(&run);
  std::stable_sort(order.begin(), order.end(), [&](const Run* a, const Run* b) {
    const double x = best_of(*a, metric), y = best_of(*b, metric);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return higher_is_better(metric) ? x > y : x < y;
  });
  return order;
}

std::string number(const ab::Series* series, double MetricFacts::*field) {
  return series == nullptr ? "\u2013" : ab::compact(facts_of(*series).*field);
}

std::string table_of(const std::vector<const Run*>& order, const std::string& metric) {
  std::vector<ab::TableRow> rows;
  for (const Run* run : order) {
    const ab::RunRecord& r = run->record;
    const double units = r.tokens > r.samples ? r.tokens : r.samples;
    rows.push_back({{fmt::format("<span class=\"arm\">{}</span>", escape_html(run->name)),
                     escape_html(r.status), fmt::format("{:.0f}", r.steps),
                     std::isnan(best_of(*run, metric)) ? "\u2013" : ab::compact(best_of(*run, metric)),
                     number(series_named(*run, metric), &MetricFacts::last),
                     number(series_named(*run, "train/loss"), &MetricFacts::last),
                     ab::quantity(r.wall_s, Axis::kSeconds),
                     r.wall_s > 0 ? ab::quantity(units / r.wall_s, Axis::kSamples) : "\u2013",
                     escape_html(manifest_text(r, "seeds.seed"))},
                    false});
  }
  return ab::table({{"run", false},
                    {"status", false},
                    {"steps", true},
                    {escape_html(metric) + ", best", true},
                    {"last", true},
                    {"train/loss", true},
                    {"wall time", true},
                    {"per second", true},
                    {"seed", true}},
                   rows);
}

std::string differences(const std::vector<const Run*>& order) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::map<const Run*, std::string>> by_run;
  for (const Run* run : order) {
    for (const ConfigLine& line : run->config) by_run[line.key][run] = line.value;
  }
  std::vector<std::string> keys;
  for (auto& [key, held] : by_run) {
    if (key == "run.name" || key.starts_with("observe")) continue;
    std::set<std::string> distinct;
    for (const Run* run : order) distinct.insert(held[run]);
    if (distinct.size() > 1) keys.push_back(key);
  }
  if (keys.empty())
    return ab::paragraph("The configurations of these runs agree in every value, names aside.");
  const std::size_t shown = std::min(keys.size(), kMostKeys);
  std::vector<ab::TableColumn> columns{{"key", false}};
  for (const Run* run : order) columns.push_back({escape_html(run->name), false});
  std::vector<ab::TableRow> rows;
  for (std::size_t k = 0; k < shown; ++k) {
    ab::TableRow row{{code_html(keys[k])}, false};
    for (const Run* run : order) {
      const std::string& value = by_run[keys[k]][run];
      row.cells_html.push_back(value.empty() ? "<span class=\"absent\">absent</span>" : code_html(value));
    }
    rows.push_back(std::move(row));
  }
  std::string out = ab::table(columns, rows);
  if (shown < keys.size())
    out += ab::paragraph(fmt::format("{} further keys differ.", keys.size() - shown), "note");
  return out;
}

std::string drawings(const std::vector<const Run*>& order, const std::string& metric) {
  // A common scale makes the drawings comparable.
  std::vector<ChartLine> all;
  const std::string training = "train" + metric.substr(std::min(metric.size(), metric.find('/')));
  for (const Run* run : order) {
    for (const std::string& name : {metric, training}) {
      if (const ab::Series* series = series_named(*run, name)) all.push_back({name, series, 0});
    }
  }
  if (all.empty()) return "";
  const ChartScale scale = scale_of(all, Axis::kSteps);
  std::string out;
  std::size_t drawn = 0;
  for (const Run* run : order) {
    std::vector<ChartLine> lines;
    for (const std::string& name : std::set<std::string>{training, metric}) {
      if (const ab::Series* series = series_named(*run, name))
        lines.push_back({name, series, name == metric ? 1u : 0u});
    }
    if (lines.empty() || ++drawn > kMostDrawings) continue;
    out += fmt::format("<figure class=\"small\"><figcaption>{}</figcaption>{}</figure>\n",
                       escape_html(run->name), line_chart(lines, "", Axis::kSteps, {400, 200}, scale));
  }
  std::vector<ChartLine> names{{training, nullptr, 0}};
  if (metric != training) names.push_back({metric, nullptr, 1});
  out = line_legend(names) + "<div class=\"grid\">" + out + "</div>\n";
  if (drawn > kMostDrawings)
    out += ab::paragraph(fmt::format("The first {} of {} runs are drawn.", kMostDrawings, drawn), "note");
  return ab::section("Curves, all on one scale", out);
}

}  // namespace

std::string runs_page(const std::string& folder, const std::vector<Run>& runs,
                      const std::vector<std::string>& unreadable) {
  const std::string metric = common_metric(runs);
  const std::vector<const Run*> order = by_best(runs, metric);
  std::string out = ab::paragraph("Runs below a folder", "eyebrow");
  out += fmt::format("<h1>{}</h1>\n", escape_html(folder));
  out += ab::paragraph(fmt::format("{} run{}, the newest attempt of each, in the order of the best {}.",
                                   runs.size(), runs.size() == 1 ? "" : "s", metric));
  out += table_of(order, metric);
  if (!unreadable.empty()) {
    out += "<ul>\n";
    for (const std::string& reason : unreadable)
      out += fmt::format("<li>left out: {}</li>\n", escape_html(reason));
    out += "</ul>\n";
  }
  if (runs.size() > 1) out += ab::section("What differs", differences(order));
  out += drawings(order, metric);
  out +=
      "<footer>Written by <code>tenon report</code>; <code>tenon report RUN</code> writes the page of one "
      "run. The "
      "page loads nothing from the network.</footer>\n";
  return ab::page("Runs in " + folder, out);
}

}  // namespace tenon::report
