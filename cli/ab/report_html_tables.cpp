// The sections of report.html that answer "how soon, at what cost, and what else": see report_sections.hpp.
#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/report_sections.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::ab {
namespace {

constexpr const char* kNone = "\u2013";

std::string signed_quantity(double value, Axis axis) {
  return (value > 0 ? "+" : "") + quantity(value, axis);
}

std::string amount(const std::optional<double>& value, Axis axis, const char* otherwise) {
  return value ? quantity(*value, axis) : otherwise;
}

// Mean and spread followed by a unit; blank when nothing was measured.
std::string mean_and_sd(const std::optional<MeanEstimate>& m, double scale, int decimals) {
  if (!m) return kNone;
  // Counts that are the same in all runs need no decimals.
  const bool count = m->sd == 0 && m->mean / scale == std::round(m->mean / scale);
  const std::string mean = fixed(m->mean / scale, count ? 0 : decimals);
  return std::isnan(m->sd) || m->sd == 0 ? mean
                                         : fmt::format("{} \u00b1 {}", mean, fixed(m->sd / scale, decimals));
}

struct Scale {
  double factor = 1;
  std::string unit;
  int decimals = 0;
};

// One unit for a whole row, so that arms can be compared at a glance.
Scale scale_for(double most, bool bytes) {
  static constexpr struct {
    double factor;
    const char* prefix;
  } kPrefixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  const std::string unit = bytes ? "B" : "";
  for (const auto& p : kPrefixes) {
    if (most >= p.factor && (bytes || p.factor > 1e4))
      return {p.factor, p.prefix + unit, most / p.factor < 100 ? 2 : 1};
  }
  return {1, unit, most < 10 ? 3 : most < 1000 ? 1 : 0};
}

using Pick = std::optional<MeanEstimate> ArmCost::*;

void add_cost_row(const StudyResult& result, const char* name, const char* unit, Pick pick, bool bytes,
                  std::vector<TableRow>& rows) {
  double most = 0;
  bool any = false;
  for (const ArmCost& c : result.costs) {
    any = any || (c.*pick).has_value();
    if (c.*pick) most = std::max(most, std::abs((c.*pick)->mean));
  }
  const Scale scale = scale_for(most, bytes);
  const std::string full = scale.unit + unit;
  TableRow row{{escape_html(full.empty() || !any ? name : fmt::format("{} ({})", name, full))}, false};
  for (const ArmCost& c : result.costs)
    row.cells_html.push_back(mean_and_sd(c.*pick, scale.factor, scale.decimals));
  rows.push_back(std::move(row));
}

using Named = std::vector<std::pair<std::string, MeanEstimate>> ArmCost::*;

void add_named_rows(const StudyResult& result, const char* prefix, Named pick, bool bytes,
                    std::vector<TableRow>& rows) {
  std::vector<std::string> names;
  for (const ArmCost& c : result.costs) {
    for (const auto& entry : c.*pick) {
      if (std::find(names.begin(), names.end(), entry.first) == names.end()) names.push_back(entry.first);
    }
  }
  for (const std::string& name : names) {
    double most = 0;
    std::vector<std::optional<MeanEstimate>> cells;
    for (const ArmCost& c : result.costs) {
      cells.emplace_back();
      for (const auto& [key, estimate] : c.*pick) {
        if (key == name) cells.back() = estimate;
      }
      if (cells.back()) most = std::max(most, cells.back()->mean);
    }
    const Scale scale = scale_for(most, bytes);
    TableRow row{
        {escape_html(fmt::format("{}{}{}", prefix, name, scale.unit.empty() ? "" : " (" + scale.unit + ")"))},
        false};
    for (const auto& cell : cells) row.cells_html.push_back(mean_and_sd(cell, scale.factor, scale.decimals));
    rows.push_back(std::move(row));
  }
}

std::string target_figure(const StudyResult& result, const Comparison& c) {
  std::vector<Panel> panels;
  for (const TargetComparison& t : c.targets) {
    panels.push_back({axis_label(t.axis), drawing({860, 240}, {360, 220}, [&](ChartSize size) {
                        return target_chart(result, c, t, size);
                      })});
  }
  return fmt::format(
      "<figure><div class=\"legend\">{}{}</div>{}<figcaption>Share of runs that had reached the target; open "
      "marks: runs that ended without it. {}</figcaption></figure>\n",
      arm_key(0, result.study.arms[0].arm.name), arm_key(c.other, result.study.arms[c.other].arm.name),
      tabs(fmt::format("target{}", c.other), panels),
      csv_link(target_csv(result, c), "time_to_target.csv", "CSV"));
}

TableRow target_row(const StudyResult& result, std::size_t arm, Axis axis, const SurvivalEstimate& s,
                    const MlperfMean& mlperf) {
  const std::string bounds = s.median_low || s.median_high
                                 ? fmt::format("{} to {}", amount(s.median_low, axis, "0"),
                                               amount(s.median_high, axis, "beyond the budget"))
                                 : kNone;
  return {{arm_key(arm, result.study.arms[arm].arm.name), axis_label(axis),
           fmt::format("{} of {}", s.reached, s.n), amount(s.median, axis, "not reached by half"), bounds,
           quantity(s.restricted_mean, axis),
           fmt::format("{} to {}", quantity(std::max(0.0, s.restricted_mean_interval.low), axis),
                       quantity(s.restricted_mean_interval.high, axis)),
           mlperf.mean ? quantity(*mlperf.mean, axis) : fmt::format("void: {}", escape_html(mlperf.why))},
          false};
}

std::string target_tables(const StudyResult& result, const Comparison& c,
                          const std::vector<const TargetComparison*>& targets) {
  std::vector<TableRow> rows;
  std::vector<TableRow> tests;
  for (const TargetComparison* t : targets) {
    rows.push_back(target_row(result, 0, t->axis, t->baseline_estimate, t->baseline_mlperf));
    rows.push_back(target_row(result, c.other, t->axis, t->other_estimate, t->other_mlperf));
    tests.push_back({{axis_label(t->axis), signed_quantity(t->restricted_mean_difference, t->axis),
                      fmt::format("{} to {}", signed_quantity(t->restricted_mean_interval.low, t->axis),
                                  signed_quantity(t->restricted_mean_interval.high, t->axis)),
                      escape_html(p_value(t->log_rank.p))},
                     false});
  }
  return table({{"arm", false},
                {"unit", false},
                {"reached", true},
                {"median", true},
                {"interval of the median", true},
                {"restricted mean", true},
                {"interval", true},
                {"MLPerf mean", true}},
               rows) +
         table({{"unit", false},
                {"difference of restricted means", true},
                {"interval", true},
                {"log-rank p", true}},
               tests);
}

}  // namespace

std::string target_section(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  if (!e.target || result.comparisons.empty()) return "";
  std::string out = paragraph(
      fmt::format("Time is that of the first evaluation with {} {} {}. Runs that never get there count "
                  "as later than their budget (censored), not as missing.",
                  e.metric, e.lower_is_better ? "at or below" : "at or above", compact(*e.target)));
  for (const Comparison& c : result.comparisons) {
    if (c.targets.empty()) continue;
    out += target_figure(result, c);
    const TargetComparison* deciding = target_on(c, e.budget.kind);
    if (deciding != nullptr) out += target_tables(result, c, {deciding});
    std::vector<const TargetComparison*> others;
    for (const TargetComparison& t : c.targets) {
      if (&t != deciding) others.push_back(&t);
    }
    if (!others.empty()) {
      out += "<details><summary>The same in other units</summary>\n" + target_tables(result, c, others) +
             "</details>\n";
    }
  }
  out += paragraph(
      "The log-rank test and the intervals here do not use the pairing. MLPerf mean: of five or more runs "
      "the fastest "
      "and the slowest are dropped.",
      "note");
  return section("Time to target", out);
}

std::string cost_section(const StudyResult& result) {
  const Study& s = result.study;
  std::vector<TableColumn> columns{{"mean \u00b1 SD over runs (no SD: all equal)", false}};
  for (std::size_t a = 0; a < s.arms.size(); ++a) columns.push_back({arm_key(a, s.arms[a].arm.name), true});
  std::vector<TableRow> rows;
  add_cost_row(result, "samples per second", "", &ArmCost::samples_per_s, false, rows);
  add_cost_row(result, "tokens per second", "", &ArmCost::tokens_per_s, false, rows);
  add_cost_row(result, "wall time", "s", &ArmCost::wall_s, false, rows);
  add_cost_row(result, "checkpoint stall", "s", &ArmCost::stall_s, false, rows);
  add_cost_row(result, "share of communication hidden", "", &ArmCost::hidden_comm_share, false, rows);
  add_cost_row(result, "waiting for bytes, a rank", "s", &ArmCost::exposed_comm_s, false, rows);
  add_cost_row(result, "waiting for late ranks, a rank", "s", &ArmCost::late_s, false, rows);
  add_cost_row(result, "bytes sent", "", &ArmCost::bytes_sent, true, rows);
  add_named_rows(result, "bytes sent: ", &ArmCost::bytes_by_purpose, true, rows);
  add_cost_row(result, "peak memory", "MB", &ArmCost::peak_rss_mb, false, rows);
  add_named_rows(result, "quantized operands: ", &ArmCost::quantized_operands, false, rows);
  std::string out = table(columns, rows);
  if (!s.wall_clock_valid()) {
    out += paragraph(fmt::format("Times are blank because {} runs shared the machine.", s.jobs), "note");
  }
  return section("Cost", out);
}

std::string secondary_section(const StudyResult& result) {
  const Study& s = result.study;
  std::vector<TableRow> rows;
  std::string skipped;
  for (const Comparison& c : result.comparisons) {
    for (const PairedMetric& m : c.secondary) {
      const int decimals = metric_decimals(m.difference, m.baseline_mean.mean);
      rows.push_back({{escape_html(m.metric), arm_key(c.other, s.arms[c.other].arm.name),
                       fixed(m.baseline_mean.mean, decimals), fixed(m.other_mean.mean, decimals),
                       fixed_signed(m.difference.mean, decimals),
                       interval_text(m.difference.interval, decimals), escape_html(p_value(m.t_test.p)),
                       escape_html(p_value(m.sign_flip.p)), escape_html(p_value(m.adjusted_p))},
                      false});
    }
    for (const std::string& why : c.skipped_metrics) skipped += paragraph("Not compared: " + why, "note");
  }
  if (rows.empty() && skipped.empty()) return "";
  std::string out = paragraph(
      "The primary metric was chosen before the runs; these were not, so their p-values are adjusted "
      "together (Holm) and decide nothing.",
      "note");
  if (!rows.empty()) {
    out += table({{"metric", false},
                  {"arm", false},
                  {escape_html(s.arms[0].arm.name), true},
                  {"arm's mean", true},
                  {"difference", true},
                  {"interval", true},
                  {"p, t test", true},
                  {"p, exact", true},
                  {"p, Holm", true}},
                 rows);
  }
  return section("Secondary metrics", out + skipped);
}

std::string self_check_section(const StudyResult& result) {
  if (!result.self_check) return "";
  const SelfCheck& c = *result.self_check;
  const double alpha = result.study.experiment.alpha;
  std::string out = paragraph(fmt::format(
      "One arm against itself: a difference found here is a false alarm. Of {} relabellings of these pairs "
      "the t test calls "
      "{:.3g}% a difference at level {:.4g}{}.",
      c.relabellings, 100 * c.rate_t, alpha,
      std::isnan(c.rate_sign_flip) ? "" : fmt::format(", the exact test {:.3g}%", 100 * c.rate_sign_flip)));
  out += paragraph(fmt::format("Of {} metrics tested in this study, {} had p at or below {:.4g}.", c.metrics,
                               c.metrics_rejected, alpha));
  return section("A/A check: the false-positive rate of this pipeline", out);
}

}  // namespace tenon::ab
