// The page about one run: how it ended, curves, every value of its configuration with its origin, and the
// provenance of the numbers. Then the page about many runs: a table in the order of the best value, the
// differences of their configurations, and one small drawing per run on common scales. Then the facts of the
// pages as JSON, in the order of the pages.
#include "report/pages.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/statistics.hpp"
#include "report/communication.hpp"
#include "report/line_chart.hpp"
#include "report/numerics.hpp"
#include "report/power_section.hpp"
#include "report/tables_section.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tenon::report {
namespace {

using ab::Axis;
using ab::escape_html;
using ab::fact;

constexpr std::size_t kMostSmallCharts = 60;

/// Axes that advance over the series.
std::vector<Axis> usable_axes(const ab::Series& series) {
  std::vector<Axis> axes;
  for (const Axis axis : ab::kAxes) {
    const bool twice =
        axis == Axis::kTokens && !series.empty() && series.back().tokens == series.back().samples;
    if (!twice && !series.empty() && series.back().at(axis) > 0) axes.push_back(axis);
  }
  return axes;
}

std::string duration(double seconds) {
  return ab::quantity(seconds, Axis::kSeconds);
}

std::string fact_list(const Run& run) {
  const ab::RunRecord& r = run.record;
  std::string out = "<dl class=\"facts\">\n";
  for (const char* name : {"val/loss", "train/loss"}) {
    const auto found = r.series.find(name);
    if (found == r.series.end()) continue;
    const MetricFacts facts = facts_of(found->second);
    out += fact(fmt::format("{}, last", name), ab::compact(facts.last));
    out += fact(fmt::format("{}, smallest", name), fmt::format("{} <span class=\"note\">at step {}</span>",
                                                               ab::compact(facts.least), facts.least_step));
  }
  out += fact("Samples", ab::quantity(r.samples, Axis::kSamples));
  if (r.tokens > r.samples) out += fact("Tokens", ab::quantity(r.tokens, Axis::kTokens));
  out += fact("Wall time", duration(r.wall_s));
  if (r.tokens > 0 && r.wall_s > 0) {
    const bool tokens = r.tokens > r.samples;
    out += fact(tokens ? "Tokens per second" : "Samples per second",
                ab::quantity((tokens ? r.tokens : r.samples) / r.wall_s, Axis::kSamples));
  }
  if (r.bytes_sent > 0) out += fact("Bytes sent by rank 0", ab::quantity(r.bytes_sent, Axis::kBytes));
  if (r.stall_s) out += fact("Waited", duration(*r.stall_s));
  if (r.hidden_comm_share && std::isfinite(*r.hidden_comm_share))
    out += fact("Communication hidden", fmt::format("{:.0f}%", 100 * *r.hidden_comm_share));
  if (r.peak_rss_mb) out += fact("Peak memory", fmt::format("{:.0f} MB", *r.peak_rss_mb));
  for (const auto& [format, count] : r.quantized_operands)
    out += fact("Operands in " + format, ab::quantity(count, Axis::kSamples));
  const std::string seed = manifest_text(r, "seeds.seed");
  if (!seed.empty()) out += fact("Seed", escape_html(seed));
  out += fact("Ranks, threads", escape_html(manifest_text(r, "ranks") + ", " + manifest_text(r, "threads")));
  if (!r.weights_hash.empty())
    out +=
        fact("Weights, first digits", fmt::format("<code title=\"{}\">{}</code>", escape_html(r.weights_hash),
                                                  escape_html(r.weights_hash.substr(0, 16))));
  return out + "</dl>\n";
}

std::string figure(const std::vector<ChartLine>& lines, const std::string& title, const std::string& group) {
  std::vector<ab::Panel> panels;
  const ChartLine* longest = &lines.front();
  for (const ChartLine& line : lines) {
    if (line.series->size() > longest->series->size()) longest = &line;
  }
  for (const Axis axis : usable_axes(*longest->series)) {
    const ChartScale scale = scale_of(lines, axis);
    panels.push_back({ab::axis_label(axis), ab::drawing({860, 340}, {360, 260}, [&](ab::ChartSize size) {
                        return line_chart(lines, title, axis, size, scale);
                      })});
  }
  if (panels.empty()) return "";
  return fmt::format("<figure>{}{}</figure>\n", lines.size() > 1 ? line_legend(lines) : "",
                     ab::tabs(group, panels));
}

std::string small_chart(const std::string& name, const ab::Series& series) {
  const std::vector<ChartLine> lines{{name, &series, 0}};
  const ChartScale scale = scale_of(lines, Axis::kSteps);
  return fmt::format("<figure class=\"small\"><figcaption>{}</figcaption>{}</figure>\n", escape_html(name),
                     line_chart(lines, "", Axis::kSteps, {400, 200}, scale));
}

std::string curves(const ab::RunRecord& run) {
  std::string out;
  std::set<std::string> shown;
  // Splits that share a figure for each of their metrics: training, its validation, and named evaluations.
  std::vector<std::string> splits{"train", "val"};
  for (const auto& [key, series] : run.series) {
    if (key.starts_with("val.") && key.substr(0, key.find('/')) != splits.back())
      splits.push_back(key.substr(0, key.find('/')));
  }
  const auto pair = [&](const std::string& name) {
    std::vector<ChartLine> lines;
    for (const std::string& split : splits) {
      const auto found = run.series.find(split + "/" + name);
      if (found == run.series.end() || found->second.empty()) continue;
      lines.push_back({found->first, &found->second, lines.size()});
      shown.insert(found->first);
    }
    if (!lines.empty()) out += figure(lines, name, name);
  };
  pair("loss");
  // A validation metric that training has too is drawn beside it.
  for (const auto& [key, series] : run.series) {
    if (key.starts_with("val") && shown.count(key) == 0 && key.find('/') != std::string::npos &&
        std::ranges::find(splits, key.substr(0, key.find('/'))) != splits.end())
      pair(key.substr(key.find('/') + 1));
  }
  std::string small, layers;
  std::size_t charts = 0, left_out = 0;
  const auto add = [&](const std::string& key, const ab::Series& series, std::string& place) {
    if (!shown.insert(key).second || series.empty()) return;
    if (++charts > kMostSmallCharts) {
      ++left_out;
      return;
    }
    place += small_chart(key.starts_with("train/") ? key.substr(6) : key, series);
  };
  const bool tokens = run.tokens > run.samples;
  for (const std::string name :
       {"train/lr", "train/grad_norm", tokens ? "train/tokens_per_s" : "train/samples_per_s"}) {
    const auto found = run.series.find(name);
    if (found != run.series.end()) add(name, found->second, small);
  }
  shown.insert(tokens ? "train/samples_per_s" : "train/tokens_per_s");
  for (const auto& [key, series] : run.series)
    add(key, series, key.find('/', 6) == std::string::npos ? small : layers);
  if (!small.empty()) out += "<div class=\"grid\">" + small + "</div>\n";
  if (!layers.empty())
    out +=
        "<details><summary>By layer and node</summary>\n<div class=\"grid\">" + layers + "</div></details>\n";
  if (left_out > 0)
    out += ab::paragraph(fmt::format("{} further metrics are in metrics.jsonl.", left_out), "note");
  return out.empty() ? "" : ab::section("Curves", out);
}

std::string metric_table(const ab::RunRecord& run) {
  std::vector<ab::TableRow> rows;
  for (const auto& [name, series] : run.series) {
    if (series.empty() || name.find('/', name.find('/') + 1) != std::string::npos) continue;
    const MetricFacts facts = facts_of(series);
    rows.push_back({{code_html(name), ab::compact(facts.last), ab::compact(facts.least),
                     fmt::format("{}", facts.least_step), ab::compact(facts.most),
                     fmt::format("{}", facts.most_step), fmt::format("{}", facts.lines)},
                    false});
  }
  if (rows.empty()) return "";
  return ab::section("Metrics", ab::table({{"metric", false},
                                           {"last", true},
                                           {"smallest", true},
                                           {"at step", true},
                                           {"largest", true},
                                           {"at step", true},
                                           {"lines", true}},
                                          rows));
}

/// An unreadable file must not prevent the page.
std::string numerics(const ab::RunRecord& run) {
  try {
    const auto files = make_posix_files();
    const auto lines = read_numerics(*files, run.folder);
    return lines ? numerics_section(*lines) : "";
  } catch (const Error& error) {
    return ab::section("Number formats", ab::paragraph(error.what(), "note"));
  }
}

/// An unreadable file must not prevent the page.
std::string power(const ab::RunRecord& run) {
  try {
    const auto files = make_posix_files();
    return power_section(*files, run.folder);
  } catch (const Error& error) {
    return ab::section("Power", ab::paragraph(error.what(), "note"));
  }
}

/// An unreadable file must not prevent the page.
std::string tables(const ab::RunRecord& run) {
  try {
    const auto files = make_posix_files();
    return tables_section(*files, run.folder);
  } catch (const Error& error) {
    return ab::section("Tables", ab::paragraph(error.what(), "note"));
  }
}

/// An unreadable file must not prevent the page.
std::string ranks(const ab::RunRecord& run) {
  try {
    const auto files = make_posix_files();
    return communication_section(read_communication(*files, run.folder));
  } catch (const Error& error) {
    return ab::section("Ranks", ab::paragraph(error.what(), "note"));
  }
}

std::string model_section(const std::string& model) {
  if (model.empty()) return "";
  const bool drawn = model.starts_with("<svg");
  return ab::section("Model",
                     drawn ? "<div class=\"scroll\">" + model + "</div>\n" : ab::paragraph(model, "note"));
}

std::string config_section(const Run& run) {
  std::vector<ab::TableRow> chosen, all;
  for (const ConfigLine& line : run.config) {
    ab::TableRow row{{code_html(line.key), code_html(line.value),
                      fmt::format("<span class=\"note\">{}</span>", escape_html(line.origin))},
                     false};
    if (line.origin != "default" && !line.origin.empty()) chosen.push_back(row);
    all.push_back(std::move(row));
  }
  const std::vector<ab::TableColumn> columns{{"key", false}, {"value", false}, {"origin", false}};
  return ab::section(
      "Configuration",
      ab::paragraph("What the files and the command line chose; everything else is a default.") +
          ab::table(columns, chosen) + "<details><summary>All values</summary>\n" + ab::table(columns, all) +
          "</details>\n");
}

std::string provenance(const ab::RunRecord& run) {
  std::vector<ab::TableRow> rows;
  for (const auto& [key, value] : run.manifest) rows.push_back({{code_html(key), escape_html(value)}, false});
  std::vector<ab::TableRow> plugins;
  for (const auto& [key, id] : run.plugins_lock) {
    if (!key.ends_with(".id")) continue;
    const std::string stem = key.substr(0, key.size() - 3);
    const auto field = [&](const char* name) {
      const auto found = run.plugins_lock.find(stem + name);
      std::string text = found == run.plugins_lock.end() ? "" : found->second;
      std::erase(text, '"');
      return text;
    };
    std::string name = id;
    std::erase(name, '"');
    plugins.push_back(
        {{code_html(name), escape_html(field(".version")), code_html(field(".sha256").substr(0, 16))},
         false});
  }
  std::string brief;
  for (const auto& [key, label] : {std::pair{"program.version", "Program"},
                                   {"program.git", "Sources"},
                                   {"program.compiler", "Compiler"},
                                   {"cpu.model", "Processor"},
                                   {"kernels", "Kernels"},
                                   {"command_line", "Command"},
                                   {"start", "Started"},
                                   {"end", "Ended"}}) {
    const std::string text = manifest_text(run, key);
    if (!text.empty()) brief += fact(label, escape_html(text));
  }
  std::string out = "<dl class=\"facts\">\n" + brief + "</dl>\n";
  if (!plugins.empty()) {
    out += "<h3>Plugins</h3>\n" +
           ab::table({{"plugin", false}, {"version", false}, {"SHA-256, first digits", false}}, plugins);
  }
  out += "<details><summary>The whole manifest</summary>\n" +
         ab::table({{"entry", false}, {"value", false}}, rows) + "</details>\n";
  for (const std::string& note : run.notes) out += ab::paragraph(note, "note");
  return ab::section("Where it comes from", out);
}

}  // namespace

std::string code_html(std::string_view text) {
  return fmt::format("<code>{}</code>", escape_html(text));
}

std::string status_text(const Run& run) {
  const ab::RunRecord& r = run.record;
  const std::string steps = fmt::format("{:.0f} step{}", r.steps, r.steps == 1 ? "" : "s");
  if (r.status == "unfinished") return fmt::format("still running or killed; {} so far", steps);
  return fmt::format("{} after {}", r.status, steps);
}

std::string run_page(const Run& run, const std::string& model) {
  const ab::RunRecord& r = run.record;
  std::string text = status_text(run);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  const char* tone = r.status == "completed" ? "better" : r.status == "failed" ? "worse" : "inconclusive";
  std::string out = ab::paragraph(fmt::format("Run, attempt {}: {}", r.attempt, r.folder), "eyebrow");
  out += fmt::format("<h1>{}</h1>\n", escape_html(run.name));
  std::string reason = manifest_text(r, "exit_reason");
  if (reason == r.status) reason.clear();
  out += fmt::format("<div class=\"verdict {}\">\n<p class=\"headline\">{}</p>\n{}</div>\n", tone,
                     escape_html(text), reason.empty() ? "" : ab::paragraph(reason));
  out += fact_list(run) + curves(r) + metric_table(r) + ranks(r) + tables(r) + power(r) + numerics(r) +
         model_section(model) + config_section(run) + provenance(r);
  out +=
      "<footer>Written by <code>tenon report</code> from the files of this run; metrics.jsonl has every "
      "value. "
      "The page loads nothing from the network.</footer>\n";
  return ab::page(run.name, out);
}

namespace {

/// A click on the head of a column sorts by it, again in the other direction; numbers before words.
constexpr const char* kSortScript = R"(<script>
for (const head of document.querySelectorAll("table th")) {
  if (!head.closest("thead")) continue;
  head.style.cursor = "pointer";
  head.title = "sort";
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const down = head.dataset.order !== "down";
    head.dataset.order = down ? "down" : "up";
    const key = (row) => row.cells[column].textContent.trim().replace(/,/g, "").replace("\u2212", "-");
    const compare = (a, b) => {
      const x = parseFloat(key(a)), y = parseFloat(key(b));
      if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || key(a).localeCompare(key(b));
      return x - y;
    };
    const rows = Array.from(body.rows).sort((a, b) => (down ? 1 : -1) * compare(a, b));
    for (const row of rows) body.appendChild(row);
  });
}
</script>
)";

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

bool is_seed(const std::string& key) {
  return key == "run.seed" || key.starts_with("run.seed_");
}

/// Runs that differ in their seeds alone.
struct Group {
  std::map<std::string, std::string> config;  ///< what they have in common
  std::vector<double> values;                 ///< last ones of the metric
};

/// In the order of their means, best first; runs without the metric are in none.
std::vector<Group> groups_of(const std::vector<const Run*>& order, const std::string& metric) {
  std::map<std::map<std::string, std::string>, Group> found;
  for (const Run* run : order) {
    const auto value = run->record.final_value(metric);
    if (!value || !std::isfinite(*value)) continue;
    std::map<std::string, std::string> config;
    for (const ConfigLine& line : run->config) {
      if (may_change_training(line.key) && !is_seed(line.key)) config[line.key] = line.value;
    }
    Group& group = found[config];
    group.config = config;
    group.values.push_back(*value);
  }
  std::vector<Group> groups;
  for (auto& [config, group] : found) groups.push_back(std::move(group));
  const auto mean = [&](const Group& group) {
    const double value = ab::mean_with_interval(group.values, 0.05).mean;
    return higher_is_better(metric) ? -value : value;
  };
  std::ranges::stable_sort(groups, {}, mean);
  return groups;
}

/// Keys whose values are not the same in all groups.
std::vector<std::string> keys_between(const std::vector<Group>& groups) {
  std::map<std::string, std::set<std::string>> values;
  for (const Group& group : groups) {
    for (const auto& [key, value] : group.config) values[key];
  }
  std::vector<std::string> keys;
  for (auto& [key, distinct] : values) {
    for (const Group& group : groups) {
      const auto held = group.config.find(key);
      distinct.insert(held == group.config.end() ? "" : held->second);
    }
    if (distinct.size() > 1) keys.push_back(key);
  }
  return keys;
}

/// A row per configuration, over its seeds. "" where each configuration ran with one seed.
std::string table_of_groups(const std::vector<const Run*>& order, const std::string& metric,
                            const std::vector<std::string>& wanted) {
  const std::vector<Group> groups = groups_of(order, metric);
  if (std::ranges::all_of(groups, [](const Group& group) { return group.values.size() < 2; })) return "";
  std::vector<std::string> keys = wanted.empty() ? keys_between(groups) : wanted;
  const std::size_t left_out = keys.size() - std::min(keys.size(), kMostKeys);
  keys.resize(keys.size() - left_out);
  std::vector<ab::TableColumn> columns;
  for (const std::string& key : keys) columns.push_back({code_html(key), false});
  for (const char* name : {"n", "mean", "s", "95 % of the mean", "best", "worst"})
    columns.push_back({name, true});
  std::vector<ab::TableRow> rows;
  for (const Group& group : groups) {
    ab::TableRow row{{}, false};
    for (const std::string& key : keys) {
      const auto held = group.config.find(key);
      row.cells_html.push_back(held == group.config.end() ? "<span class=\"absent\">absent</span>"
                                                          : code_html(held->second));
    }
    const ab::MeanEstimate mean = ab::mean_with_interval(group.values, 0.05);
    const auto [low, high] = std::ranges::minmax(group.values);
    const bool several = group.values.size() > 1;
    row.cells_html.push_back(std::to_string(group.values.size()));
    row.cells_html.push_back(ab::compact(mean.mean));
    row.cells_html.push_back(several ? ab::compact(mean.sd) : "\u2013");
    row.cells_html.push_back(
        several ? fmt::format("{} to {}", ab::compact(mean.interval.low), ab::compact(mean.interval.high))
                : "\u2013");
    row.cells_html.push_back(ab::compact(higher_is_better(metric) ? high : low));
    row.cells_html.push_back(ab::compact(higher_is_better(metric) ? low : high));
    rows.push_back(std::move(row));
  }
  std::string out = ab::paragraph(fmt::format(
      "Last {} of runs that differ in their seeds alone, best mean first. The interval is Student's, of "
      "each configuration by itself; for a verdict between two, pair their seeds (tenon ab).",
      metric));
  out += ab::table(columns, rows);
  if (left_out > 0) out += ab::paragraph(fmt::format("{} further keys differ.", left_out), "note");
  return ab::section("Over seeds", out);
}

std::string differences(const std::vector<const Run*>& order) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::map<const Run*, std::string>> by_run;
  for (const Run* run : order) {
    for (const ConfigLine& line : run->config) by_run[line.key][run] = line.value;
  }
  std::vector<std::string> keys;
  for (auto& [key, held] : by_run) {
    if (!may_change_training(key)) continue;
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
                      const std::vector<std::string>& unreadable, const std::vector<std::string>& columns) {
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
  out += table_of_groups(order, metric, columns);
  if (runs.size() > 1) out += ab::section("What differs", differences(order));
  out += drawings(order, metric);
  out +=
      "<footer>Written by <code>tenon report</code>; <code>tenon report RUN</code> writes the page of one "
      "run. The "
      "page loads nothing from the network.</footer>\n";
  return ab::page("Runs in " + folder, out + kSortScript);
}

namespace {

void members(JsonWriter& json, const Run& run) {
  const ab::RunRecord& r = run.record;
  json.member("name", run.name);
  json.member("folder", r.folder);
  json.member("attempt", r.attempt);
  json.member("status", r.status);
  json.member("steps", r.steps);
  json.member("samples", r.samples);
  json.member("tokens", r.tokens);
  json.member("wall_s", r.wall_s);
  json.member("bytes_sent", r.bytes_sent);
  json.member("weights_hash", r.weights_hash);
  json.member("state_hash", r.state_hash);
  json.begin_object("metrics");
  for (const auto& [name, series] : r.series) {
    const MetricFacts facts = facts_of(series);
    json.begin_object(name);
    json.member("lines", facts.lines);
    json.member("last", facts.last);
    json.member("last_step", facts.last_step);
    json.member("least", facts.least);
    json.member("least_step", facts.least_step);
    json.member("most", facts.most);
    json.member("most_step", facts.most_step);
    json.end_object();
  }
  json.end_object();
  json.begin_object("config");
  for (const ConfigLine& line : run.config) {
    json.begin_object(line.key);
    json.member("value", line.value);
    json.member("origin", line.origin);
    json.end_object();
  }
  json.end_object();
  json.begin_object("manifest");
  for (const auto& [key, value] : r.manifest) json.member(key, manifest_text(r, key));
  json.end_object();
}

}  // namespace

std::string run_json(const Run& run) {
  JsonWriter json;
  json.begin_object();
  members(json, run);
  json.end_object();
  return json.take();
}

std::string runs_json(const std::string& folder, const std::vector<Run>& runs,
                      const std::vector<std::string>& unreadable) {
  JsonWriter json;
  json.begin_object();
  json.member("folder", folder);
  json.objects("runs", runs, [&](const Run& run) { members(json, run); });
  json.objects("unreadable", unreadable, [&](const std::string& reason) { json.member("reason", reason); });
  json.end_object();
  return json.take();
}

}  // namespace tenon::report
