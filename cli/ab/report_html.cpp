// report.html, top to bottom: verdict, difference of the configurations, primary metric, curves. The sections
// on time to target, cost, secondary metrics and provenance are in report_html_tables.cpp.
#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/report.hpp"
#include "ab/report_sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

constexpr std::size_t kCsvLimit = 1'500'000;  // bytes per drawing; beyond it the buckets are embedded

std::string coverage(double alpha) {
  return fmt::format("{:.4g}%", 100 * (1 - alpha));
}

std::string legend(const Study& study) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t a = 0; a < study.arms.size(); ++a) out += arm_key(a, study.arms[a].arm.name);
  return out + "</div>\n";
}

std::string verdict_block(const Verdict& v) {
  static constexpr const char* kWords[] = {"Better",       "Worse",     "Equivalent",
                                           "Inconclusive", "Identical", "No verdict"};
  std::string out = fmt::format("<div class=\"verdict {}\">\n<p class=\"word\">{}</p>\n",
                                outcome_name(v.outcome), kWords[static_cast<int>(v.outcome)]);
  // The word is already above the sentence.
  std::string headline = v.headline;
  for (const char* lead : {"Inconclusive: ", "Identical: ", "No verdict: "}) {
    if (headline.starts_with(lead)) {
      headline = headline.substr(std::string_view(lead).size());
      headline[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(headline[0])));
    }
  }
  out += paragraph(headline, "headline") + "<ul>\n";
  for (const std::string& s : v.sentences) out += fmt::format("<li>{}</li>\n", escape_html(s));
  return out + "</ul>\n</div>\n";
}

std::string facts(const StudyResult& result) {
  const Study& s = result.study;
  const Experiment& e = s.experiment;
  std::string arms;
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    arms += (a ? "<br>" : "") + arm_key(a, s.arms[a].arm.name) +
            (a == 0 ? " <span class=\"note\">baseline</span>" : "");
  }
  std::string seeds;
  for (std::size_t i = 0; i < e.seeds.size(); ++i) seeds += fmt::format("{}{}", i ? ", " : "", e.seeds[i]);
  std::string out = "<dl class=\"facts\">\n" + fact("Arms", arms);
  out += fact("Pairs", fmt::format("{}, seeds {}", e.seeds.size(), seeds));
  const std::string unit = e.budget.kind == Axis::kSeconds || e.budget.kind == Axis::kBytes
                               ? ""
                               : std::string(" ") + axis_name(e.budget.kind);
  out += fact("Stop rule, fixed beforehand", quantity(e.budget.amount, e.budget.kind) + unit + " per run");
  out += fact("Primary metric",
              fmt::format("{}, {} is better", escape_html(e.metric), e.lower_is_better ? "lower" : "higher"));
  out += fact("Decided by", e.decide_by == DecideBy::kTimeToTarget ? "time to target, log-rank test"
                            : e.test == DecidingTest::kStudentT    ? "paired t test on final values"
                                                                   : "exact sign-flip test on final values");
  out += fact("Significance level", fmt::format("{:.4g}", e.alpha));
  if (e.margin) out += fact("Equivalence margin", compact(*e.margin));
  if (e.target) out += fact("Target", fmt::format("{} = {}", escape_html(e.metric), compact(*e.target)));
  if (!result.comparisons.empty()) {
    const Comparison& c = result.comparisons.front();
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
                {coverage(s.experiment.alpha) + " interval", true},
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
    add(coverage(e.alpha) + " t interval", interval_text(m.difference.interval, decimals));
    add("Hodges-Lehmann shift", fixed_signed(m.hodges_lehmann, decimals));
    add("relative change", m.relative_change
                               ? fixed_signed(100 * *m.relative_change, percent_decimals(m)) + "%"
                               : "not given: the baseline's interval includes zero");
    add("pairs won, tied, lost",
        fmt::format("{}, {}, {}", m.other_better, m.ties, m.differences.size() - m.other_better - m.ties));
    add("paired t test, p", p_value(m.t_test.p));
    add(m.sign_flip.exact ? "exact sign-flip test, p" : "sign-flip test (sampled), p",
        p_value(m.sign_flip.p));
    if (s.arms.size() > 2) add("deciding p, Holm over arms", p_value(m.adjusted_p));
    if (c.equivalence) {
      add(fmt::format("equivalence within \u00b1{}, p", compact(c.equivalence->margin)),
          p_value(c.adjusted_equivalence_p));
      add(fmt::format("{} interval of that test", coverage(2 * e.alpha)),
          interval_text(c.equivalence->interval, decimals));
    }
    add("SD of the differences", std::isnan(m.difference.sd) ? "\u2013" : fixed(m.difference.sd, decimals));
    add("correlation of the pairs", std::isnan(m.correlation) ? "\u2013" : fixed(m.correlation, 2));
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
                   "interval{}.</figcaption></figure>\n",
                   escape_html(result.study.arms[c.other].arm.name),
                   escape_html(result.study.arms[0].arm.name), coverage(result.study.experiment.alpha),
                   c.equivalence ? "; shaded: the margin" : "");
}

std::string primary_section(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  std::string out = result.comparisons.empty() ? "" : arm_means(result);
  const double height =
      result.comparisons.empty() ? 260 : std::max(240.0, effect_chart_height(e.seeds.size()));
  std::string seeds =
      "<figure>" +
      drawing({310, height}, {360, 260}, [&](ChartSize size) { return seeds_chart(result, size); }) +
      "<figcaption>Final value of every run; lines join the pairs. " +
      csv_link(seeds_csv(result), "final_values.csv", "CSV") + "</figcaption></figure>\n";
  if (result.comparisons.empty()) {
    out += "<div class=\"two\">" + seeds + "</div>\n";
  } else {
    out += "<div class=\"two\">" + seeds + "<div>";
    for (const Comparison& c : result.comparisons) out += effect_figure(result, c);
    out += "</div></div>\n";
    out += effect_table(result);
  }
  return section("Primary metric: " + e.metric, out);
}

std::string curves_of(const StudyResult& result, const std::string& metric, const std::string& group) {
  std::vector<Panel> panels;
  for (Axis axis : usable_axes(result.study, metric)) {
    panels.push_back({axis_label(axis), drawing({860, 340}, {360, 260}, [&](ChartSize size) {
                        return curve_chart(result, metric, axis, size);
                      })});
  }
  if (panels.empty()) return "";
  bool reduced = false;
  const std::string csv = curve_csv(result, metric, kCsvLimit, reduced);
  std::string out = fmt::format("<h3>{}</h3>\n{}<figure>{}", escape_html(metric), legend(result.study),
                                tabs(group, panels));
  out +=
      "<figcaption>Thin lines: runs; thick lines: mean over seeds. Long curves show the smallest and largest "
      "value of "
      "each pixel; an early part beyond the scale leaves the plot. ";
  if (result.study.experiment.target && metric == result.study.experiment.metric)
    out += "Dashed: the target. ";
  return out + csv_link(csv, "curves.csv", reduced ? "CSV (min and max per bucket)" : "CSV") +
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
      tabs(fmt::format("difference{}", c.other), panels), coverage(s.experiment.alpha),
      c.equivalence ? ". Shaded: the margin" : "",
      csv_link(difference_csv(result, c, s.experiment.budget.kind), "difference.csv", "CSV"));
}

std::string curves_section(const StudyResult& result) {
  const std::string& metric = result.study.experiment.metric;
  std::string out = curves_of(result, metric, "curve");
  for (const Comparison& c : result.comparisons) out += difference_of(result, c);
  const std::string training = "train" + metric.substr(std::min(metric.size(), metric.find('/')));
  if (training != metric) out += curves_of(result, training, "training");
  return out.empty() ? "" : section("Curves", out);
}

}  // namespace

std::string report_html(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  const std::string question = e.question.empty() ? "A/B study " + e.name : e.question;
  std::string out =
      paragraph(fmt::format("{} study: {}", result.study.self_check ? "A/A" : "A/B", e.name), "eyebrow");
  out += fmt::format("<h1>{}</h1>\n", escape_html(question));
  if (result.comparisons.empty()) out += verdict_block(result.refusal);
  for (const Comparison& c : result.comparisons) out += verdict_block(c.verdict);
  out += facts(result);
  out += config_section(result.study);
  out += primary_section(result);
  out += curves_section(result);
  out += target_section(result);
  out += cost_section(result);
  out += secondary_section(result);
  out += self_check_section(result);
  out += provenance_section(result);
  out += reproduce_section(result);
  out +=
      "<footer>Every number of this page, and more digits, are in report.json beside it. The page loads "
      "nothing from the "
      "network.</footer>\n";
  return page(question, out);
}

}  // namespace tenon::ab
