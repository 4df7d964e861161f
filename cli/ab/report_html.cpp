// report.html, its sections from top to bottom: verdict, difference of the configurations, primary metric and
// curves; then time to target, cost, secondary metrics and the check against itself, which are mostly tables;
// then the origin of the numbers and how to reproduce them. A section that has nothing to say is "".
#include "ab/ab.hpp"
#include "ab/analysis.hpp"
#include "ab/csv.hpp"
#include "ab/factorial.hpp"
#include "ab/format.hpp"
#include "ab/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

namespace tenon::ab {
namespace {

constexpr std::size_t kListedSeeds = 12;  // more that follow each other are a range
constexpr std::size_t kOpenLooks = 12;    // more of them are folded; the last one is in sight

std::string arms_legend(const Study& study) {
  std::string keys;
  for (std::size_t a = 0; a < study.arms.size(); ++a) keys += arm_key(a, study.arms[a].arm.name);
  return legend(keys);
}

/// Stands where p-values and intervals for a fixed number of pairs are printed.
std::string looking_note(const StudyResult& result) {
  if (!result.study.experiment.sequential) return "";
  return paragraph(
      "The p-values and intervals here are for a number of pairs fixed beforehand. The study looked at its "
      "pairs as they "
      "came, so they are not valid; the evidence by look is.",
      "note");
}

/// Begins the name of such a number in a table.
std::string fixed_only(const StudyResult& result, const std::string& name) {
  return result.study.experiment.sequential ? name + " (not valid under looking)" : name;
}

std::string rule_text(const Experiment& e) {
  if (e.sequential) {
    const SequentialRule& rule = *e.sequential;
    std::string out = fmt::format(
        "{}, a first look at {} pairs, then every {}, at most {}",
        rule.method == SequentialMethod::kSign ? "sign process" : "mixture for normal differences",
        rule.first_look, rule.block == 1 ? std::string("pair") : fmt::format("{} pairs", rule.block),
        rule.max_seeds);
    if (rule.futility)
      out +=
          fmt::format("; given up where fewer than {:.3g}% of continuations conclude", 100 * *rule.futility);
    return out;
  }
  return e.decide_by == DecideBy::kTimeToTarget ? "time to target, log-rank test"
         : e.test == DecidingTest::kStudentT    ? "paired t test on final values"
                                                : "exact sign-flip test on final values";
}

std::string facts(const StudyResult& result) {
  const Study& s = result.study;
  const Experiment& e = s.experiment;
  std::string arms;
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    arms += (a ? "<br>" : "") + arm_key(a, s.arms[a].arm.name) +
            (a == 0 ? " <span class=\"note\">baseline</span>" : "");
  }
  std::string seeds = fmt::format("{}", fmt::join(e.seeds, ", "));
  const auto gap = std::adjacent_find(e.seeds.begin(), e.seeds.end(),
                                      [](std::int64_t a, std::int64_t b) { return b != a + 1; });
  if (e.seeds.size() > kListedSeeds && gap == e.seeds.end())
    seeds = fmt::format("{} to {}", e.seeds.front(), e.seeds.back());
  const bool factorial = !e.factors.empty();
  std::string out = "<dl class=\"facts\">\n" + (factorial ? factorial_facts(result) : fact("Arms", arms));
  out += fact(factorial ? "Seeds" : "Pairs",
              e.seeds.empty() ? "none" : fmt::format("{}, seeds {}", e.seeds.size(), seeds));
  const std::string unit = e.budget.kind == Axis::kSeconds || e.budget.kind == Axis::kBytes
                               ? ""
                               : std::string(" ") + axis_name(e.budget.kind);
  out += fact("Stop rule, fixed beforehand", quantity(e.budget.amount, e.budget.kind) + unit + " per run");
  out += fact("Primary metric",
              fmt::format("{}, {} is better", escape_html(e.metric), e.lower_is_better ? "lower" : "higher"));
  out += fact("Decided by", rule_text(e));
  out += fact("Significance level", e.family ? fmt::format("{:.3g}, question {} of a family at {:.4g}",
                                                           e.alpha, e.family->question, e.family->alpha)
                                             : fmt::format("{:.4g}", e.alpha));
  if (e.margin) out += fact("Equivalence margin", compact(*e.margin));
  if (e.target) out += fact("Target", fmt::format("{} = {}", escape_html(e.metric), compact(*e.target)));
  if (!result.comparisons.empty() && !e.sequential) {
    const Comparison& c =
        result.factorial ? result.factorial->main.front().contrast : result.comparisons.front();
    out += fact("Smallest p the exact test can give", escape_html(p_value(c.smallest_sign_flip_p)));
    const int decimals = metric_decimals(c.primary.difference, c.primary.baseline_mean.mean);
    out += fact(
        fmt::format("Detectable with {:.4g}% power", 100 * e.power),
        fmt::format("{} ({} paired SD)", fixed(c.detectable_effect, decimals), fixed(c.detectable_sd, 2)));
  }
  return out + "</dl>\n";
}

std::string config_section(const Study& s) {
  if (s.config_difference.empty()) {
    return section(
        "What differs between the arms",
        paragraph(s.self_check
                      ? "Nothing but the order of the data and the rounding streams: this is an A/A study."
                      : "No configuration key has different values.",
                  ""));
  }
  std::vector<TableColumn> columns{{"key", false}};
  for (std::size_t a = 0; a < s.arms.size(); ++a) columns.push_back({arm_key(a, s.arms[a].arm.name), false});
  std::vector<TableRow> rows;
  for (const ConfigRow& row : s.config_difference) {
    TableRow cells{{fmt::format("<code>{}</code>", escape_html(row.key))}, false};
    for (const std::string& value : row.values) {
      cells.cells_html.push_back(value.empty() ? "<span class=\"absent\">absent</span>"
                                               : fmt::format("<code>{}</code>", escape_html(value)));
    }
    rows.push_back(std::move(cells));
  }
  return section(
      "What differs between the arms",
      table(columns, rows) +
          paragraph(
              "Every key of the resolved configurations whose values differ; seeds and run names aside.",
              "note"));
}

std::string arm_means(const StudyResult& result) {
  const Study& s = result.study;
  std::vector<TableRow> rows;
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    const Comparison& c = result.comparisons[a == 0 ? 0 : a - 1];
    const MeanEstimate& m = a == 0 ? c.primary.baseline_mean : c.primary.other_mean;
    const int decimals = metric_decimals(c.primary.difference, m.mean);
    rows.push_back({{arm_key(a, s.arms[a].arm.name), fixed(m.mean, decimals),
                     std::isnan(m.sd) ? "\u2013" : fixed(m.sd, decimals), interval_text(m.interval, decimals),
                     std::to_string(m.n)},
                    false});
  }
  return table({{"arm", false},
                {"mean", true},
                {"SD over seeds", true},
                {coverage_text(s.experiment.alpha) + " interval", true},
                {"runs", true}},
               rows);
}

// Two decimals, and more where the differences are finer than that.
int percent_decimals(const PairedMetric& m) {
  return m.difference.sd > 0
             ? std::clamp(decimals_for(100 * m.difference.sd / std::abs(m.baseline_mean.mean)), 2, 6)
             : 2;
}

// One column per comparison.
std::string effect_table(const StudyResult& result) {
  const Study& s = result.study;
  const Experiment& e = s.experiment;
  std::vector<TableColumn> columns{{"", false}};
  std::vector<TableRow> rows;
  for (const Comparison& c : result.comparisons) {
    columns.push_back(
        {arm_key(c.other, s.arms[c.other].arm.name) + " \u2212 " + escape_html(s.arms[0].arm.name), true});
    const PairedMetric& m = c.primary;
    const int decimals = metric_decimals(m.difference, m.baseline_mean.mean);
    std::size_t next = 0;
    const auto add = [&](const std::string& name, const std::string& value) {
      if (next == rows.size()) rows.push_back({{escape_html(name)}, next == 0});
      rows[next++].cells_html.push_back(escape_html(value));
    };
    add("mean difference", fixed_signed(m.difference.mean, decimals));
    add(fixed_only(result, coverage_text(e.alpha) + " t interval"),
        interval_text(m.difference.interval, decimals));
    add("Hodges-Lehmann shift", fixed_signed(m.hodges_lehmann, decimals));
    add("relative change", m.relative_change
                               ? fixed_signed(100 * *m.relative_change, percent_decimals(m)) + "%"
                               : "not given: the baseline's interval includes zero");
    add("pairs won, tied, lost",
        fmt::format("{}, {}, {}", m.other_better, m.ties, m.differences.size() - m.other_better - m.ties));
    add(fixed_only(result, "paired t test, p"), p_value(m.t_test.p));
    add(fixed_only(result, m.sign_flip.exact ? "exact sign-flip test, p" : "sign-flip test (sampled), p"),
        p_value(m.sign_flip.p));
    if (s.arms.size() > 2) add(fixed_only(result, "deciding p, Holm over arms"), p_value(m.adjusted_p));
    if (c.equivalence) {
      add(fixed_only(result, fmt::format("equivalence within \u00b1{}, p", compact(c.equivalence->margin))),
          p_value(c.adjusted_equivalence_p));
      add(fixed_only(result, fmt::format("{} interval of that test", coverage_text(2 * e.alpha))),
          interval_text(c.equivalence->interval, decimals));
    }
    add("SD of the differences", std::isnan(m.difference.sd) ? "\u2013" : fixed(m.difference.sd, decimals));
    add("correlation of the pairs", std::isnan(m.correlation) ? "\u2013" : fixed(m.correlation, 2));
    if (!e.sequential)
      add(fmt::format("detectable with {:.4g}% power", 100 * e.power), fixed(c.detectable_effect, decimals));
  }
  return table(columns, rows, result.comparisons.size() == 1 ? "list" : "");
}

std::string effect_figure(const StudyResult& result, const Comparison& c) {
  const double height = effect_chart_height(c.primary.differences.size());
  std::string out = fmt::format("<figure>{}", drawing({470, height}, {360, height},
                                                      [&](ChartSize size) { return effect_chart(c, size); }));
  return out + fmt::format(
                   "<figcaption>{} \u2212 {} by pair; diamond and bar: mean and {} "
                   "{}{}.</figcaption></figure>\n",
                   escape_html(result.study.arms[c.other].arm.name),
                   escape_html(result.study.arms[0].arm.name), coverage_text(result.study.experiment.alpha),
                   fixed_only(result, "interval"), c.equivalence ? "; shaded: the margin" : "");
}

std::string primary_section(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  std::string out = result.comparisons.empty() ? "" : arm_means(result);
  if (result.factorial) {
    out = paragraph("Means of the cells and effects of the factors are above, under Factors.", "note") +
          "<details><summary>Each cell against the first one</summary>\n" + out + effect_table(result) +
          paragraph("These p-values are adjusted over the cells alone, and the verdicts do not rest on them.",
                    "note") +
          "</details>\n";
    return section("Primary metric: " + e.metric, out);
  }
  const double height =
      result.comparisons.empty() ? 260 : std::max(240.0, effect_chart_height(e.seeds.size()));
  std::string seeds =
      "<figure>" +
      drawing({310, height}, {360, 260}, [&](ChartSize size) { return seeds_chart(result, size); }) +
      "<figcaption>Final value of every run; lines join the pairs. " +
      csv_link(csv_name("final_values"), "CSV") + "</figcaption></figure>\n";
  if (result.comparisons.empty()) {
    out += "<div class=\"two\">" + seeds + "</div>\n";
  } else {
    out += "<div class=\"two\">" + seeds + "<div>";
    for (const Comparison& c : result.comparisons) out += effect_figure(result, c);
    out += "</div></div>\n";
    out += effect_table(result);
  }
  out += looking_note(result);
  return section("Primary metric: " + e.metric, out);
}

std::string looks_table(const Comparison& c, const Experiment& e) {
  const int decimals = metric_decimals(c.primary.difference, c.primary.baseline_mean.mean);
  std::vector<TableColumn> columns{{"pairs", true},
                                   {"mean difference", true},
                                   {"confidence sequence", true},
                                   {"e-value of a difference", true}};
  if (e.margin) {
    columns.push_back({fmt::format("e-value above \u2212{}", compact(*e.margin)), true});
    columns.push_back({fmt::format("e-value below +{}", compact(*e.margin)), true});
  }
  std::vector<TableRow> rows;
  for (const Evidence& look : c.sequential->course.looks) {
    TableRow row{{std::to_string(look.pairs), fixed_signed(look.mean, decimals),
                  std::isfinite(look.interval.low) ? interval_text(look.interval, decimals) : "unbounded",
                  e_value(look.log_e)},
                 &look == &c.sequential->course.looks.back()};
    if (e.margin)
      row.cells_html.insert(row.cells_html.end(), {e_value(*look.log_e_above), e_value(*look.log_e_below)});
    rows.push_back(std::move(row));
  }
  std::string whole = table(columns, rows);
  if (rows.size() <= kOpenLooks) return whole;
  return fmt::format("<details><summary>All {} looks</summary>\n{}</details>\n{}", rows.size(), whole,
                     table(columns, {rows.back()}));
}

std::string looks_section(const StudyResult& result) {
  const Study& s = result.study;
  std::string out;
  for (const Comparison& c : result.comparisons) {
    if (!c.sequential || c.sequential->course.looks.empty()) continue;
    const std::string arms =
        escape_html(s.arms[c.other].arm.name) + " \u2212 " + escape_html(s.arms[0].arm.name);
    out += "<div class=\"two even\"><figure>" +
           drawing({430, 260}, {360, 230}, [&](ChartSize size) { return evidence_chart(c, size); }) +
           fmt::format(
               "<figcaption>{}: filled, the e-value of a difference{}; dashed, the height that concludes "
               "({:.4g}). "
               "{}</figcaption></figure>\n<figure>",
               arms, s.experiment.margin ? "; open, the lesser one of equivalence" : "",
               1 / c.sequential->alpha, csv_link(csv_name("looks", s.arms[c.other].arm.name), "CSV")) +
           drawing({430, 260}, {360, 230}, [&](ChartSize size) { return confidence_chart(c, size); }) +
           fmt::format(
               "<figcaption>{}: mean and {} confidence sequence, which holds at all looks together if "
               "differences are normal{}.</figcaption></figure></div>\n",
               arms, coverage_text(c.sequential->alpha), s.experiment.margin ? "; shaded: the margin" : "") +
           looks_table(c, s.experiment);
  }
  return out.empty() ? "" : section("Evidence by look", out);
}

std::string curves_of(const StudyResult& result, const std::string& metric, const std::string& group) {
  std::vector<Panel> panels;
  for (Axis axis : usable_axes(result.study, metric)) {
    panels.push_back({axis_label(axis), drawing({860, 340}, {360, 260}, [&](ChartSize size) {
                        return curve_chart(result, metric, axis, size);
                      })});
  }
  if (panels.empty()) return "";
  std::string out = fmt::format("<h3>{}</h3>\n{}<figure>{}<figcaption>", escape_html(metric),
                                arms_legend(result.study), tabs(group, panels));
  if (is_crowd(result.study)) {
    out += fmt::format(
        "Thick lines: mean over seeds; bands: {:.0f}% of the runs; thin lines: some runs, from the least to "
        "the greatest final value. ",
        100 * (1 - 2 * kSpreadShare));
  } else {
    out += "Thin lines: runs; thick lines: mean over seeds. ";
  }
  out +=
      "Long curves show the smallest and largest value of each bucket of pixels; an early part beyond the "
      "scale leaves the plot. ";
  if (result.study.experiment.target && metric == result.study.experiment.metric)
    out += "Dashed: the target. ";
  return out +
         csv_link(csv_name("curves", metric),
                  curve_is_reduced(result.study, metric) ? "CSV (min and max per bucket)" : "CSV") +
         "</figcaption></figure>\n";
}

std::string difference_of(const StudyResult& result, const Comparison& c) {
  const Study& s = result.study;
  std::vector<Panel> panels;
  for (Axis axis : usable_axes(s, c.primary.metric)) {
    panels.push_back({axis_label(axis), drawing({860, 260}, {360, 230}, [&](ChartSize size) {
                        return difference_chart(result, c, axis, size);
                      })});
  }
  if (panels.empty()) return "";
  return fmt::format(
      "<h3>Difference of {}: {} \u2212 {}</h3>\n<figure>{}<figcaption>Mean over pairs with its pointwise {} "
      "interval; looking at many points, some intervals miss zero by chance{}. {}</figcaption></figure>\n",
      escape_html(c.primary.metric), escape_html(s.arms[c.other].arm.name), escape_html(s.arms[0].arm.name),
      tabs(fmt::format("difference{}", c.other), panels), coverage_text(s.experiment.alpha),
      c.equivalence ? ". Shaded: the margin" : "",
      csv_link(csv_name("difference", s.arms[c.other].arm.name), "CSV"));
}

std::string curves_section(const StudyResult& result) {
  const std::string& metric = result.study.experiment.metric;
  std::string out = curves_of(result, metric, "curve");
  for (const Comparison& c : result.comparisons)
    if (!result.factorial) out += difference_of(result, c);
  const std::string training = training_metric(metric);
  if (training != metric) out += curves_of(result, training, "training");
  return out.empty() ? "" : section("Curves", out);
}

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
      csv_link(csv_name("time_to_target", result.study.arms[c.other].arm.name), "CSV"));
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
  out += looking_note(result);
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
    // A factorial study has many cells: their rows are folded.
    if (result.factorial) out += "<details><summary>Each cell against the first one</summary>\n";
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
    if (result.factorial) out += "</details>\n";
  }
  return section("Secondary metrics", out + looking_note(result) + skipped);
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

// Entries that differ between any two runs by nature.
bool varies_by_nature(const std::string& key) {
  static constexpr std::string_view kParts[] = {"seed",        "command_line", "start",    "end",
                                                "exit_reason", "parent_run",   "segments", "config_sha256"};
  for (std::string_view part : kParts) {
    if (key.find(part) != std::string::npos) return true;
  }
  return false;
}

// key -> values seen over all runs, with the first run that has each.
std::map<std::string, std::set<std::string>> manifest_values(const Study& study) {
  std::map<std::string, std::set<std::string>> out;
  for (const ArmRuns& arm : study.arms) {
    for (const auto& run : arm.runs) {
      if (!run) continue;
      for (const auto& [key, value] : run->manifest) {
        if (!varies_by_nature(key)) out[key].insert(value);
      }
    }
  }
  return out;
}

std::string joined(const std::set<std::string>& values) {
  return fmt::format("{}", fmt::join(values, " | "));
}

std::string manifest_table(const Study& study) {
  const auto values = manifest_values(study);
  std::vector<TableRow> rows;
  std::vector<std::string_view> differing;
  for (const auto& [key, seen] : values) {
    rows.push_back(
        {{fmt::format("<code>{}</code>", escape_html(key)), escape_html(joined(seen))}, seen.size() > 1});
    if (seen.size() > 1) differing.push_back(key);
  }
  if (rows.empty()) return "";
  std::string out =
      differing.empty()
          ? paragraph("The manifests of all runs agree on program, machine, libraries and data.")
          : paragraph(
                fmt::format("The manifests of the runs do not agree on: {}.", fmt::join(differing, ", ")));
  static constexpr const char* kShort[] = {
      "program.version", "program.git", "program.compiler", "cpu.model", "kernels", "threads", "ranks"};
  std::vector<TableRow> brief;
  for (const char* key : kShort) {
    const auto found = values.find(key);
    if (found == values.end()) continue;
    brief.push_back({{fmt::format("<code>{}</code>", key), escape_html(joined(found->second))}, false});
  }
  if (!brief.empty()) out += table({{"manifest", false}, {"", false}}, brief, "list");
  return out + "<details><summary>All entries of the manifests</summary>\n" +
         table({{"entry", false}, {"value", false}}, rows) + "</details>\n";
}

// Entries by plugin: plugin.vendor.name.id, plugin.vendor.name.sha256, ...
std::string plugin_table(const Study& study) {
  struct Plugin {
    std::string version, sha256, abi;
    std::set<std::size_t> arms;
  };
  std::map<std::string, Plugin>
      plugins;  // by id and file digest: the same id with two digests is worth two rows
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    for (const auto& run : study.arms[a].runs) {
      if (!run) continue;
      for (const auto& [key, value] : run->plugins_lock) {
        if (!key.ends_with(".id")) continue;
        const std::string stem = key.substr(0, key.size() - 3);
        const auto field = [&](const char* name) {
          const auto found = run->plugins_lock.find(stem + name);
          return found == run->plugins_lock.end() ? std::string() : found->second;
        };
        Plugin& p = plugins[value + "\n" + field(".sha256")];
        p.version = field(".version");
        p.sha256 = field(".sha256");
        p.abi = field(".abi");
        p.arms.insert(a);
      }
    }
  }
  if (plugins.empty()) return "";
  const auto unquoted = [](const std::string& text) {
    return text.size() >= 2 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2)
                                                                         : text;
  };
  std::vector<TableRow> rows;
  for (const auto& [id, p] : plugins) {
    std::string arms;
    for (std::size_t a : p.arms) arms += arm_key(a, study.arms[a].arm.name) + " ";
    const std::string digest = unquoted(p.sha256);
    rows.push_back(
        {{fmt::format("<code>{}</code>", escape_html(unquoted(id.substr(0, id.find('\n'))))),
          escape_html(unquoted(p.version)),
          fmt::format("<code title=\"{}\">{}</code>", escape_html(digest), escape_html(digest.substr(0, 16))),
          arms},
         false});
  }
  return "<h3>Plugins</h3>\n" +
         table({{"plugin", false}, {"version", false}, {"SHA-256", false}, {"loaded by", false}}, rows);
}

std::string run_table(const StudyResult& result) {
  const Study& s = result.study;
  std::vector<TableRow> rows;
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    for (std::size_t i = 0; i < s.arms[a].runs.size(); ++i) {
      const auto& run = s.arms[a].runs[i];
      if (!run) {
        rows.push_back({{escape_html(s.arms[a].arm.name), std::to_string(s.experiment.seeds[i]), "missing",
                         "", "", "", "", "", ""},
                        false});
        continue;
      }
      const std::optional<double> value = run->final_value(s.experiment.metric);
      rows.push_back({{escape_html(s.arms[a].arm.name), std::to_string(s.experiment.seeds[i]),
                       escape_html(run->status), value ? fmt::format("{:.6g}", *value) : "\u2013",
                       quantity(run->steps, Axis::kSteps), quantity(run->samples, Axis::kSamples),
                       s.wall_clock_valid() ? quantity(run->wall_s, Axis::kSeconds) : "\u2013",
                       quantity(run->bytes_sent, Axis::kBytes),
                       fmt::format("<code>{}</code>", escape_html(run->weights_hash.substr(0, 16)))},
                      false});
    }
  }
  return "<details><summary>Every run</summary>\n" +
         table({{"arm", false},
                {"seed", true},
                {"status", false},
                {escape_html(s.experiment.metric), true},
                {"steps", true},
                {"samples", true},
                {"wall time", true},
                {"bytes sent", true},
                {"weights hash", false}},
               rows) +
         "</details>\n";
}

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                          "_./=:,+-@%") == std::string::npos;
  if (plain) return text;
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string provenance_section(const StudyResult& result) {
  const Study& s = result.study;
  std::string out;
  if (!s.notes.empty()) {
    out += "<ul>\n";
    for (const std::string& note : s.notes) out += fmt::format("<li>{}</li>\n", escape_html(note));
    out += "</ul>\n";
  }
  return section("Where the numbers come from",
                 out + manifest_table(s) + plugin_table(s) + run_table(result));
}

std::string reproduce_section(const StudyResult& result) {
  const Study& s = result.study;
  const Experiment& e = s.experiment;
  std::string out;
  if (!e.path.empty()) {
    out += fmt::format("<pre>tenon ab {} --out {} --jobs {}{}</pre>\n", escape_html(shell_word(e.path)),
                       escape_html(shell_word(s.folder)), s.jobs, s.self_check ? " --aa" : "");
  }
  std::string commands;
  for (const ArmRuns& arm : s.arms) {
    for (const auto& run : arm.runs) {
      if (!run) continue;
      const auto found = run->manifest.find("command_line");
      if (found != run->manifest.end()) commands += found->second + "\n";
    }
  }
  if (!commands.empty()) {
    out += fmt::format("<details><summary>Single runs</summary>\n<pre>{}</pre></details>\n",
                       escape_html(commands));
  }
  out += paragraph(
      "The same program, plugins, thread count and processor give the same bits; compare the weights hashes.",
      "note");
  return section("How to reproduce", out);
}

}  // namespace

std::string verdict_block(const Verdict& v) {
  static constexpr const char* kWords[] = {"Better",    "Worse",     "Equivalent", "Inconclusive",
                                           "Identical", "Undecided", "No verdict"};
  std::string out = fmt::format("<div class=\"verdict {}\">\n<p class=\"word\">{}</p>\n",
                                outcome_name(v.outcome), kWords[static_cast<int>(v.outcome)]);
  // The word is already above the sentence.
  std::string headline = v.headline;
  for (const char* lead : {"Inconclusive: ", "Identical: ", "Undecided: ", "No verdict: "}) {
    if (headline.starts_with(lead)) {
      headline = headline.substr(std::string_view(lead).size());
      headline[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(headline[0])));
    }
  }
  out += paragraph(headline, "headline") + "<ul>\n";
  for (const std::string& s : v.sentences) out += fmt::format("<li>{}</li>\n", escape_html(s));
  return out + "</ul>\n</div>\n";
}

std::string report_html(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  const std::string question = e.question.empty() ? "A/B study " + e.name : e.question;
  std::string out =
      paragraph(fmt::format("{} study: {}", result.study.self_check ? "A/A" : "A/B", e.name), "eyebrow");
  out += fmt::format("<h1>{}</h1>\n", escape_html(question));
  if (result.comparisons.empty()) out += verdict_block(result.refusal);
  if (result.factorial) {
    out += factorial_verdicts(result);
  } else {
    for (const Comparison& c : result.comparisons) out += verdict_block(c.verdict);
  }
  out += facts(result);
  out += factorial_section(result);
  out += tuning_section(result);
  // A study whose tuning gave no settings has no runs to speak of.
  if (result.study.tuning && e.seeds.empty()) {
    out += reproduce_section(result);
    return page(question, out);
  }
  out += config_section(result.study);
  out += looks_section(result);
  out += primary_section(result);
  out += curves_section(result);
  out += target_section(result);
  out += cost_section(result);
  out += secondary_section(result);
  out += self_check_section(result);
  out += provenance_section(result);
  out += reproduce_section(result);
  out +=
      "<footer>Every number of this page, and more digits, are in report.json beside it, those of the "
      "drawings "
      "in csv/. The page loads nothing from the network.</footer>\n";
  return page(question, share_drawings(out));
}

}  // namespace tenon::ab
