// Text and JSON of comparisons_render.hpp.
#include "reproduce/comparisons_render.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/markdown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tenon::reproduce {
namespace {

/// "0.1231 (0.1219 to 0.1240)": mean and range over the seeds that have a value.
std::string mean_and_range(const std::vector<std::optional<double>>& values) {
  double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
  int n = 0;
  for (const std::optional<double>& value : values) {
    if (!value) continue;
    ++n;
    sum += *value;
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
  if (n == 0) return kNoValue;
  if (n == 1) return ab::fixed(sum, 4);
  return fmt::format("{} ({} to {})", ab::fixed(sum / n, 4), ab::fixed(low, 4), ab::fixed(high, 4));
}

std::vector<std::optional<double>> own_values(const ArmResult& arm) {
  std::vector<std::optional<double>> values;
  for (const RunResult& run : arm.runs) values.push_back(run.value);
  return values;
}

std::string columns_section(const StudyResult& r) {
  if (r.columns.empty()) return "";
  std::vector<std::string> names{"arm", r.study.metric + " of the runs"};
  for (const Column& column : r.columns) names.push_back(column.data.name);
  std::string out = "\n## The same weights elsewhere\n\n" + head(names);
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    std::vector<std::string> cells{r.study.arms[a].title, mean_and_range(own_values(r.arms[a]))};
    for (const Column& column : r.columns) cells.push_back(mean_and_range(column.values[a]));
    out += row(cells);
  }
  out +=
      "\nMean and range over the seeds, measured by `tenon evaluate` on the last checkpoint of each run:\n\n";
  for (const Column& column : r.columns) {
    std::string sets;
    for (const std::string& set : column.data.set) sets += (sets.empty() ? "`" : ", `") + set + "`";
    out += fmt::format("- **{}**: {}{}{}\n", column.data.name, column.data.metric,
                       sets.empty() ? "" : " with ", sets);
  }
  return out;
}

std::string verdicts_section(const StudyResult& r) {
  if (r.verdicts.empty()) return "";
  std::string out = fmt::format(
      "\n## Verdicts\n\nAs `tenon ab` decides, with a margin of {}: a smaller difference of {} "
      "counts as none.\n\n",
      ab::compact(r.study.margin), r.study.metric);
  for (const ArmVerdict& arm : r.verdicts) {
    out += "- " + arm.verdict.headline;
    for (const std::string& sentence : arm.verdict.sentences) out += " " + sentence;
    out += "\n";
  }
  return out;
}

std::string agreement_line(const Agreement& a) {
  if (!a.largest) return fmt::format("{} against {}: not measured", a.pair.arm, a.pair.with);
  return fmt::format(
      "{} against {}: the largest relative difference of {} over the first {} updates of {} "
      "seed{} is {:.2g} (seed {}, update {})",
      a.pair.arm, a.pair.with, a.pair.metric, a.pair.updates, a.seeds, a.seeds == 1 ? "" : "s", *a.largest,
      a.seed, a.update);
}

std::string agreements_section(const StudyResult& r) {
  if (r.agreements.empty()) return "";
  std::string out = "\n## First updates\n\n";
  for (const Agreement& a : r.agreements) out += "- " + agreement_line(a) + ".\n";
  return out;
}

}  // namespace

std::string comparisons_markdown(const StudyResult& result) {
  return columns_section(result) + verdicts_section(result) + agreements_section(result);
}

std::string comparisons_text(const StudyResult& r) {
  std::string out;
  for (const Column& column : r.columns) {
    for (std::size_t a = 0; a < r.arms.size(); ++a) {
      const std::string text = mean_and_range(column.values[a]);
      if (text != kNoValue)
        out += fmt::format("  {:<24}{}: {}\n", r.study.arms[a].arm.name, column.data.name, text);
    }
  }
  for (const ArmVerdict& arm : r.verdicts) out += "  " + arm.verdict.headline + "\n";
  for (const Agreement& a : r.agreements) out += "  " + agreement_line(a) + "\n";
  return out;
}

void comparisons_json(JsonWriter& json, const StudyResult& r) {
  json.objects("evaluations", r.columns, [&](const Column& column) {
    json.member("name", column.data.name);
    json.member("metric", column.data.metric);
    json.objects("set", column.data.set, [&](const std::string& set) { json.member("value", set); });
    json.begin_array("runs");
    for (std::size_t a = 0; a < r.arms.size(); ++a) {
      for (std::size_t s = 0; s < column.values[a].size(); ++s) {
        if (!column.values[a][s]) continue;
        json.begin_object();
        json.member("arm", r.study.arms[a].arm.name);
        json.member("seed", r.arms[a].runs[s].seed);
        json.member("value", *column.values[a][s]);
        json.end_object();
      }
    }
    json.end_array();
  });
  json.member("margin", r.study.margin > 0 ? r.study.margin : JsonWriter::kNull);
  json.objects("verdicts", r.verdicts, [&](const ArmVerdict& arm) {
    json.member("arm", arm.arm);
    json.member("outcome", ab::outcome_name(arm.verdict.outcome));
    json.member("headline", arm.verdict.headline);
    json.objects("sentences", arm.verdict.sentences,
                 [&](const std::string& sentence) { json.member("text", sentence); });
  });
  json.objects("agreements", r.agreements, [&](const Agreement& a) {
    json.member("arm", a.pair.arm);
    json.member("with", a.pair.with);
    json.member("metric", a.pair.metric);
    json.member("updates", a.pair.updates);
    json.member("seeds", static_cast<std::int64_t>(a.seeds));
    json.member("largest_relative_difference", a.largest.value_or(JsonWriter::kNull));
    json.member("seed", a.seed);
    json.member("update", a.update);
  });
}

}  // namespace tenon::reproduce
