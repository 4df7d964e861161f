// table.md, table.json, the list of studies and the pieces of render.hpp.
#include "reproduce/render.hpp"

#include "ab/ab.hpp"
#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "base/json_writer.hpp"
#include "reproduce/study_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

namespace tenon::reproduce {

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& text : cells) out += " " + cell(text) + " |";
  return out + "\n";
}

std::string head(const std::vector<std::string>& names) {
  std::string out = row(names) + "|";
  for (std::size_t i = 0; i < names.size(); ++i) out += i == 0 ? "---|" : "---:|";
  return out + "\n";
}

std::string count(double value) {
  std::string digits = fmt::format("{:.0f}", value), out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

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
  return differences_markdown(result) + stages_markdown(result) + decoding_markdown(result) +
         columns_section(result) + verdicts_section(result) + agreements_section(result);
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
  return out + differences_text(r);
}

void comparisons_json(JsonWriter& json, const StudyResult& r) {
  differences_json(json, r);
  decoding_json(json, r);
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

namespace {

using ab::fixed;

std::string joined(const std::vector<std::string>& list, const char* none, const char* between = "; ") {
  std::string out;
  for (const std::string& text : list) out += (out.empty() ? "" : between) + text;
  return out.empty() ? none : out;
}

/// Operands that did not always take the small format, worst first.
std::string decisions_text(const StudyResult& r) {
  constexpr std::size_t kMost = 40;
  constexpr double kAlways = 99.995;  // per cent, as two decimals round it
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    std::vector<Decision> fallen;
    for (const Decision& d : r.arms[a].decisions) {
      if (d.percent < kAlways) fallen.push_back(d);
    }
    if (r.arms[a].decisions.empty()) continue;
    out += fmt::format("\n### {}\n\n{} of {} operands fell back at least once.\n", r.study.arms[a].arm.name,
                       fallen.size(), r.arms[a].decisions.size());
    if (fallen.empty()) continue;
    std::stable_sort(fallen.begin(), fallen.end(),
                     [](const Decision& x, const Decision& y) { return x.percent < y.percent; });
    out += "\n" + head({"layer", "operand", "in the small format, %", "mean relative error there, %"});
    for (std::size_t i = 0; i < std::min(fallen.size(), kMost); ++i)
      out += row({fallen[i].layer, fallen[i].operand, fixed(fallen[i].percent, 2),
                  fixed(fallen[i].error_percent, 2)});
    if (fallen.size() > kMost)
      out += fmt::format("\nand {} more; table.json has them all.\n", fallen.size() - kMost);
  }
  return out.empty() ? "" : "\n## Operands that fell back, and their error\n" + out;
}

std::string arms_list(const StudyFile& study) {
  std::string out, last;
  for (const StudyArm& arm : study.arms) {
    const std::string& name = arm.of.empty() ? arm.arm.name : arm.of;
    if (name == last) continue;  // another point of it
    last = name;
    std::vector<std::string> sets;
    for (const std::string& file : arm.arm.extends)
      sets.push_back(fmt::format("`{}`", std::filesystem::path(file).filename().string()));
    // Words that a point adds are in the tables.
    for (std::size_t i = 0; i + arm.added < arm.arm.set.size(); ++i)
      sets.push_back("`" + arm.arm.set[i] + "`");
    out += fmt::format("- **{}**: {}{}{}{}\n", name, arm.title, sets.empty() ? "" : ": ",
                       fmt::join(sets, ", "), arm.note.empty() ? "" : ". " + arm.note);
  }
  return out;
}

std::string provenance_list(const StudyResult& r) {
  const Provenance& p = r.provenance;
  const std::string wall =
      p.jobs > 1 ? fmt::format(" of all runs together, {} at a time", p.jobs) : " of all runs together";
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("- {}: {}\n", name, value);
  };
  line("command", p.command.empty() ? "" : "`" + p.command + "`");
  line("date", p.begun.empty() ? "" : fmt::format("{} to {} (UTC)", p.begun, p.ended));
  line("program", joined(p.program, ""));
  // What is not trained has neither threads nor kernels of a device.
  const std::string device = p.kernels.empty()
                                 ? ""
                                 : fmt::format("; {} threads a run; kernels {}",
                                               joined(p.threads, "?", " or "), joined(p.kernels, "?"));
  line("machine", joined(p.machines, "not known") + device);
  line("model", p.model);
  line("data", p.data);
  line("simulated by", p.simulation);
  line("seeds", fmt::format("{}", fmt::join(r.size.seeds, ", ")));
  line("wall time", ab::duration_text(p.wall_s) + wall);
  line("simulated columns", joined(p.simulated, "none"));
  return out;
}

}  // namespace

std::string caution(const Size& size) {
  return size.name == "quick" ? "Size quick: proves that it runs; never quote these numbers." : "";
}

std::string size_text(const StudyFile& study, const Size& size) {
  std::string out = study.kind->size_text(study, size);
  if (size.minutes > 0) {
    out += size.minutes < 90 ? fmt::format(", about {:g} min", size.minutes)
                             : fmt::format(", about {:.1f} h", size.minutes / 60);
    out += " on " + size.machine;
  } else if (size.name == "cuda") {
    out += ", on a GPU";
  }
  return out;
}

std::string table_markdown(const StudyResult& r) {
  std::string out = fmt::format("# {}: {}\n\n", r.study.name, r.study.title);
  if (!caution(r.size).empty()) out += "**" + caution(r.size) + "**\n\n";
  if (!r.complete) out += "**Not complete: runs are missing or failed; see below.**\n\n";
  out += fmt::format("{}\n\nPaper: {}. Size {}: {}.\n\n", r.study.question, r.study.paper, r.size.name,
                     size_text(r.study, r.size));
  out += r.study.kind->tables(r);
  for (const std::string& note : r.study.notes) out += "\n" + note + "\n";
  if (!r.study.kind->places_figure()) out += "\n![figure](figure.svg)\n";
  if (!r.study.paper_values.empty()) {
    out += r.study.figure == Figure::kCurves ? "\nNumbers of the paper and of others:\n\n"
                                             : "\nThe paper's numbers, each of a far larger model:\n\n";
    const int decimals = r.study.figure == Figure::kCurves ? 4 : 2;
    for (const PaperValue& value : r.study.paper_values)
      out += fmt::format("- {}: {} ({}; {})\n", value.arm, fixed(value.value, decimals), value.what,
                         value.source);
  }
  out += comparisons_markdown(r);
  if (!r.warnings.empty()) {
    out += "\n## What went otherwise\n\n";
    for (const std::string& warning : r.warnings) out += "- " + warning + "\n";
  }
  out += decisions_text(r);
  out += "\n## Arms\n\n" + arms_list(r.study);
  out += r.study.kind->every_run(r);
  return out + "\n## Where and how\n\n" + provenance_list(r);
}

std::string figure_svg(const StudyResult& result) {
  return result.study.kind->figure(result);
}

std::string list_text(const std::vector<StudyFile>& studies) {
  std::string out;
  for (const StudyFile& study : studies) {
    out += fmt::format("{}\n  {}\n  {}\n", study.name, study.title, study.paper);
    for (const Size& size : study.sizes) {
      const std::string option = size.name == "default" ? "" : "--" + size.name;
      out += fmt::format("  {:<10}{}\n", option.empty() ? "default" : option, size_text(study, size));
    }
  }
  if (out.empty()) return "no studies: neither ./configs/studies nor the installation has any\n";
  return out + "\nRun one: tenon reproduce NAME [--quick|--full|--cuda] [--out DIR]\n";
}

namespace {

void member(JsonWriter& json, const char* key, const std::optional<ab::MeanEstimate>& estimate) {
  json.begin_object(key);
  json.member("pairs", estimate ? static_cast<std::int64_t>(estimate->n) : 0);
  json.member("mean", estimate ? estimate->mean : JsonWriter::kNull);
  json.member("low", estimate ? estimate->interval.low : JsonWriter::kNull);
  json.member("high", estimate ? estimate->interval.high : JsonWriter::kNull);
  json.end_object();
}

void texts(JsonWriter& json, const char* key, const char* name, const std::vector<std::string>& list) {
  json.objects(key, list, [&](const std::string& text) { json.member(name, text); });
}

void members(JsonWriter& json, const StudyFile& study, const StudyArm& what, const ArmResult& arm) {
  json.member("name", what.arm.name);
  json.member("title", what.title);
  json.member("note", what.note);
  json.member("baseline", what.baseline);
  texts(json, "set", "value", what.arm.set);
  json.member("parameters", arm.parameters.empty() ? JsonWriter::kNull : std::stod(arm.parameters));
  json.member("updates", arm.updates);
  json.member("updates_refused", arm.refused);
  json.member("samples", arm.samples);
  json.member("tokens", arm.tokens);
  json.member("bytes_per_rank", arm.bytes);
  member(json, "wall_s", arm.wall_s);
  member(json, "value", arm.value);
  member(json, "gap_percent", arm.gap);
  if (!study.reference.empty()) member(json, "reference_gap_percent", arm.reference_gap);
  json.objects("shares", arm.shares, [&](const Share& share) {
    json.member("metric", share.metric);
    json.member("percent", share.percent.value_or(JsonWriter::kNull));
  });
  json.objects("decisions", arm.decisions, [&](const Decision& decision) {
    json.member("layer", decision.layer);
    json.member("operand", decision.operand);
    json.member("percent", decision.percent);
    json.member("error_percent", decision.error_percent);
  });
  json.begin_object("quantized_operands");
  for (const auto& [format, count] : arm.operands) json.member(format, count);
  json.end_object();
  json.objects("runs", arm.runs, [&](const RunResult& run) {
    json.member("seed", run.seed);
    json.member("status", run.status);
    json.member("reason", run.reason);
    json.member("value", run.value ? *run.value : JsonWriter::kNull);
    json.member("weights_hash", run.record ? run.record->weights_hash : "");
    json.member("wall_s", run.record ? run.record->wall_s : JsonWriter::kNull);
    json.member("folder", run.record ? run.record->folder : "");
    json.objects("stages", run.stages, [&](const StageResult& stage) {
      json.member("name", stage.name);
      json.member("transforms", stage.transforms);
      json.member("begin", stage.begin.value_or(JsonWriter::kNull));
      json.member("end", stage.end.value_or(JsonWriter::kNull));
      json.member("updates", stage.updates);
      json.member("tokens", stage.tokens);
      json.member("parameters", stage.parameters);
      json.member("folder", stage.folder);
    });
  });
}

void members(JsonWriter& json, const StudyFile& study, const Size& size) {
  json.member("name", size.name);
  json.member("arms", static_cast<std::int64_t>(study.arms.size()));
  json.member("seeds", static_cast<std::int64_t>(size.seeds.size()));
  json.member("updates", size.steps);
  study.kind->size_json(json, study, size);
  json.member("minutes", size.minutes > 0 ? size.minutes : JsonWriter::kNull);
  json.member("machine", size.machine);
}

}  // namespace

void paper_values_json(JsonWriter& json, const StudyResult& r) {
  json.objects("paper_values", r.study.paper_values, [&](const PaperValue& value) {
    json.member("arm", value.arm);
    json.member("value", value.value);
    json.member("what", value.what);
    json.member("source", value.source);
  });
}

std::string table_json(const StudyResult& r) {
  JsonWriter json;
  json.begin_object();
  json.member("study", r.study.name);
  json.member("title", r.study.title);
  json.member("paper", r.study.paper);
  json.member("question", r.study.question);
  json.member("size", r.size.name);
  json.member("quotable", caution(r.size).empty() && r.complete);
  json.member("complete", r.complete);
  json.member("metric", r.study.metric);
  json.member("baseline", r.study.baseline);
  json.member("reference", r.study.reference);
  json.member("gap", r.study.lower_is_better
                         ? "(baseline - arm) / baseline in per cent; negative = the arm is worse"
                         : "(arm - baseline) / baseline in per cent; negative = the arm is worse");
  json.member("coverage", 1 - r.study.alpha);
  json.begin_array("arms");
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    json.begin_object();
    members(json, r.study, r.study.arms[a], r.arms[a]);
    json.end_object();
  }
  json.end_array();
  r.study.kind->json(json, r);
  comparisons_json(json, r);
  texts(json, "notes", "text", r.study.notes);
  texts(json, "warnings", "text", r.warnings);
  const Provenance& p = r.provenance;
  json.begin_object("provenance");
  json.member("command", p.command);
  json.member("begun", p.begun);
  json.member("ended", p.ended);
  texts(json, "program", "version", p.program);
  texts(json, "machines", "machine", p.machines);
  texts(json, "kernels", "set", p.kernels);
  texts(json, "threads", "number", p.threads);
  json.member("jobs", p.jobs);
  json.member("model", p.model);
  json.member("data", p.data);
  json.member("simulation", p.simulation);
  json.member("wall_s", p.wall_s);
  texts(json, "simulated_columns", "column", p.simulated);
  json.end_object();
  json.end_object();
  return json.take();
}

std::string list_json(const std::vector<StudyFile>& studies) {
  JsonWriter json;
  json.begin_object();
  json.objects("studies", studies, [&](const StudyFile& study) {
    json.member("name", study.name);
    json.member("title", study.title);
    json.member("paper", study.paper);
    json.member("question", study.question);
    json.member("file", study.path);
    json.objects("sizes", study.sizes, [&](const Size& size) { members(json, study, size); });
  });
  json.end_object();
  return json.take();
}

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // inside a glyph of UTF-8
  return text.substr(0, end) + "…";
}

std::string standing_alone(const StudyResult& r, double height, const std::string& drawing) {
  const std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n<style>{3}\n"
      ".page{{fill:var(--page)}}.paper{{fill:none;stroke:var(--arm1);stroke-width:1.8}}"
      ".title{{fill:var(--ink);font-size:15px;font-weight:600}}.warn{{fill:var(--bad);font-weight:600}}"
      "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
      kFigureWidth, height, ab::escape_html(r.study.title), ab::kReportStyle);
  return out + drawing + "\n</svg>\n";
}

namespace {

constexpr double kPanelsTop = 60, kLegendRow = 20, kPanel = 270, kMargin = 0.06;
constexpr std::size_t kPanelColours = 6;

/// Lines beyond the colours of the style sheet reuse them, dashed.
std::string style_of(std::size_t line) {
  return fmt::format("arm{}{}", line % kPanelColours, line < kPanelColours ? "" : " again");
}

std::string panel_drawing(const LineFigure& figure, const LinePanel& panel) {
  std::vector<double> x{0}, y;
  if (panel.from_zero) y.push_back(0);
  for (const std::vector<ab::Point>& line : panel.lines) {
    for (const ab::Point& point : line) {
      x.push_back(point.x);
      y.push_back(point.y);
    }
  }
  const double most = *std::max_element(x.begin(), x.end());
  if (panel.slope) y.push_back(*panel.slope * most);
  ab::Range y_range = ab::range_of(y, kMargin);
  if (panel.from_zero) y_range.low = 0;
  ab::Svg svg(kFigureWidth, kPanel, "chart", panel.title);
  const ab::Frame frame(svg, {.x = {0, std::max(most * 1.03, 1.0)},
                              .y = y_range,
                              .x_title = figure.x_title,
                              .y_title = panel.title,
                              .x_is_quantity = false,
                              .left = 84});
  if (panel.slope) {
    svg.line(frame.at(0, 0), frame.at(most, *panel.slope * most), "zero");
    svg.text({frame.x(most) - 44, frame.y(*panel.slope * most) + 6}, "linear", "tick", ab::Anchor::kEnd);
  }
  for (std::size_t i = 0; i < panel.lines.size(); ++i) {
    const std::string& name = figure.names.at(i);
    std::vector<ab::Point> at;
    for (const ab::Point& point : panel.lines[i]) at.push_back(frame.at(point.x, point.y));
    svg.polyline(at, "curve " + style_of(i), name);
    for (const ab::Point& point : at) svg.marker(ab::marker_of(i), point, 3.2, "dot " + style_of(i), name);
  }
  return svg.take();
}

std::string legend_drawing(const std::vector<std::string>& names, double height) {
  ab::Svg svg(kFigureWidth, height, "chart", "");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t row = i / 2;
    const double x = 24 + static_cast<double>(i % 2) * kFigureWidth / 2;
    const double y = 12 + kLegendRow * static_cast<double>(row);
    const ab::Point stroke[] = {{x, y}, {x + 30, y}};
    svg.polyline(stroke, "curve " + style_of(i), "");
    svg.marker(ab::marker_of(i), {x + 15, y}, 3.2, "dot " + style_of(i), "");
    svg.text({x + 38, y + 4}, names[i], "label", ab::Anchor::kStart);
  }
  return svg.take();
}

}  // namespace

std::string line_figure(const StudyResult& r, const LineFigure& figure) {
  ab::Svg top(kFigureWidth, kPanelsTop, "chart", "");
  top.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const bool warned = !caution(r.size).empty();
  top.text({16, 46}, warned ? caution(r.size) : figure.under_title, warned ? "warn" : "tick",
           ab::Anchor::kStart);
  std::string drawing =
      "<style>svg .again{stroke-dasharray:6 4}svg .dot.again{stroke-dasharray:none}</style>\n";
  double y = 0;
  const auto place = [&](double height, const std::string& inner) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", y, kFigureWidth,
                           height, inner);
    y += height;
  };
  const std::size_t legend_rows = (figure.names.size() + 1) / 2;
  const double legend_height = kLegendRow * static_cast<double>(legend_rows) + 14;
  place(kPanelsTop, top.take());
  place(legend_height, legend_drawing(figure.names, legend_height));
  for (const LinePanel& panel : figure.panels) place(kPanel, panel_drawing(figure, panel));
  return standing_alone(r, y, drawing);
}

}  // namespace tenon::reproduce
