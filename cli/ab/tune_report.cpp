// Tuning in words and drawings: what the verdict says about it, and the report's section with a basin for
// each key.
#include "ab/ab.hpp"
#include "ab/charts.hpp"
#include "ab/csv.hpp"
#include "ab/format.hpp"
#include "ab/html.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::ab {
namespace {

const Trial& chosen_trial(const Basin& basin) {
  return basin.trials[*basin.chosen];
}

std::string seeds_text(const TuneRule& rule) {
  return fmt::format("{}", fmt::join(rule.seeds, ", "));
}

std::string keys_text(const TuneRule& rule) {
  std::vector<std::string> names;
  for (const TunedKey& key : rule.keys) names.push_back(key.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// "would be worse: val/loss differs by +0.21 (95% interval ..., 3 tuning seeds)".
std::string reading(const Experiment& e, const PairedMetric& m) {
  const double p = deciding_p(e, m);
  const int decimals = metric_decimals(m.difference, m.baseline_mean.mean);
  const bool improved = m.lower_is_better ? m.difference.mean < 0 : m.difference.mean > 0;
  const char* word = !(p <= e.alpha) ? "no difference would be shown"
                     : improved      ? "it would be better"
                                     : "it would be worse";
  return fmt::format("{}: {} differs by {} ({} interval {} to {}, {} tuning seeds)", word, e.metric,
                     fixed_signed(m.difference.mean, decimals), coverage_text(e.alpha),
                     fixed_signed(m.difference.interval.low, decimals),
                     fixed_signed(m.difference.interval.high, decimals), m.differences.size());
}

}  // namespace

void add_tuning_to_verdict(const Study& study, Comparison& c) {
  const Tuning& tuning = *study.tuning;
  const std::string& baseline = study.arms[0].arm.name;
  const std::string& other = study.arms[c.other].arm.name;
  std::vector<std::string>& out = c.verdict.sentences;
  const Basin& left = *tuning.of(baseline);
  if (tuning.rule.arms == TuneArms::kShared) {
    c.verdict.headline += fmt::format(" Only {} was tuned.", baseline);
    out.push_back(
        fmt::format("{} was tuned over {} settings on seeds {}, for {} alone: {}. What is best for it "
                    "need not be best for {}.",
                    keys_text(tuning.rule), tuning.rule.trials, seeds_text(tuning.rule), baseline,
                    settings_text(tuning.rule, baseline, chosen_trial(left).position), other));
    return;
  }
  const Basin& right = *tuning.of(other);
  out.push_back(fmt::format("Each arm was tuned over {} settings on seeds {}: {} with {}, {} with {}.",
                            tuning.rule.trials, seeds_text(tuning.rule), baseline,
                            settings_text(tuning.rule, baseline, chosen_trial(left).position), other,
                            settings_text(tuning.rule, other, chosen_trial(right).position)));
  if (*left.chosen == *right.chosen) return;
  const Trial& there = right.trials[*left.chosen];
  const std::string lead = fmt::format("With {}'s setting for {}, too,", baseline, other);
  if (!there.usable()) {
    out.push_back(fmt::format("{} {} does not train ({}).", lead, other, there.failure));
    return;
  }
  const Experiment& e = study.experiment;
  c.untuned = compare_metric(e.metric, e.lower_is_better, chosen_trial(left).values, there.values, e.alpha);
  out.push_back(fmt::format("{} {}.", lead, reading(e, *c.untuned)));
}

namespace {

/// What the charts of the basins show: the better half of each arm's trials, with some room; worse trials
/// leave the plot.
Range shown(const Tuning& tuning, bool lower_is_better) {
  std::vector<double> values;
  for (const Basin& basin : tuning.basins) {
    std::vector<double> means;
    for (const Trial& trial : basin.trials) {
      if (trial.usable()) means.push_back(trial.mean);
    }
    std::sort(means.begin(), means.end());
    if (!lower_is_better) std::reverse(means.begin(), means.end());
    means.resize((2 * means.size() + 2) / 3);
    values.insert(values.end(), means.begin(), means.end());
  }
  return range_of(values, 0.15);
}

void draw_positions(Svg& svg, const Frame& frame, const TunedKey& key, const std::vector<double>& positions) {
  double free_from = 0;
  for (const double position : positions) {
    const std::string label = key.setting(position);
    const double half = 3.5 * static_cast<double>(label.size()) + 4, x = frame.x(position);
    svg.line({x, frame.bottom()}, {x, frame.bottom() + 4}, "axis");
    if (x - half < free_from) continue;
    free_from = x + half;
    svg.text({std::min(x, svg.width() - half), frame.bottom() + 17}, label, "tick", Anchor::kMiddle);
  }
  svg.text({(frame.left() + frame.right()) / 2, svg.height() - 5}, key.name, "axis-title", Anchor::kMiddle);
}

/// Positions of the settings of one key, ascending, each once; of many only round ones.
std::vector<double> ticks_of(const TuneRule& rule, std::size_t key, const Basin& basin) {
  std::vector<double> out;
  if (rule.keys[key].is_range() && rule.keys.size() > 1) return {0, 0.25, 0.5, 0.75, 1};
  for (const Trial& trial : basin.trials) out.push_back(trial.position[key]);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void draw_basin(Svg& svg, const Frame& frame, const Tuning& tuning, std::size_t arm, std::size_t key) {
  const Basin& basin = tuning.basins[arm];
  const auto styled = [&](const char* what) { return fmt::format("{} arm{}", what, arm % 6); };
  std::vector<Point> smooth;
  for (const Trial& trial : basin.trials) {
    const double x = trial.position[key];
    smooth.push_back(trial.usable() ? frame.at(x, trial.smoothed) : Point{NAN, NAN});
    if (!trial.usable()) continue;
    if (std::isfinite(trial.interval.low)) {
      const Point whisker[] = {frame.at(x, trial.interval.low), frame.at(x, trial.interval.high)};
      svg.polyline(whisker, styled("trace"), "");
    }
    const bool chosen = basin.chosen && &trial == &basin.trials[*basin.chosen];
    svg.marker(marker_of(arm), frame.at(x, trial.mean), chosen ? 6.5 : 3.5, styled(chosen ? "dot" : "open"),
               fmt::format("{}, {}: {}{}", basin.arm, settings_text(tuning.rule, basin.arm, trial.position),
                           compact(trial.mean), chosen ? ", chosen" : ""));
  }
  if (tuning.rule.keys.size() == 1 && tuning.rule.keys[key].choices.empty())
    svg.polyline(smooth, styled("curve"), basin.arm + ", smoothed");
}

std::string basin_chart(const StudyResult& result, std::size_t key, ChartSize size) {
  const Tuning& tuning = *result.study.tuning;
  const Experiment& e = result.study.experiment;
  Svg svg(size.width, size.height, "chart", fmt::format("{} by {}", e.metric, tuning.rule.keys[key].name));
  Frame frame(svg, {.x = {-0.03, 1.03},
                    .y = shown(tuning, e.lower_is_better),
                    .x_title = "",
                    .y_title = e.metric,
                    .x_is_quantity = false,
                    .draw_x = false});
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left() + 6, frame.bottom() - frame.top());
  for (std::size_t a = 0; a < tuning.basins.size(); ++a) {
    if (tuning.rule.keys[key].belongs_to(tuning.basins[a].arm)) draw_basin(svg, frame, tuning, a, key);
  }
  svg.end_clip();
  draw_positions(svg, frame, tuning.rule.keys[key], ticks_of(tuning.rule, key, tuning.basins.front()));
  return svg.take();
}

std::string choices_table(const StudyResult& result) {
  const Tuning& tuning = *result.study.tuning;
  const bool timed = result.study.wall_clock_valid();
  std::vector<TableRow> rows;
  for (std::size_t a = 0; a < tuning.basins.size(); ++a) {
    const Basin& basin = tuning.basins[a];
    TableRow row{{arm_key(a, basin.arm)}, false};
    if (basin.chosen) {
      const Trial& trial = chosen_trial(basin);
      const int decimals = decimals_for(trial.interval.high - trial.interval.low);
      row.cells_html.push_back(
          fmt::format("<code>{}</code>", escape_html(settings_text(tuning.rule, basin.arm, trial.position))));
      row.cells_html.push_back(fixed(trial.mean, decimals));
      row.cells_html.push_back(std::isfinite(trial.interval.low) ? interval_text(trial.interval, decimals)
                                                                 : "\u2013");
    } else {
      row.cells_html.insert(row.cells_html.end(), {"none trained", "\u2013", "\u2013"});
    }
    row.cells_html.push_back(basin.cost.ended_early > 0
                                 ? fmt::format("{} ({} ended early)", basin.cost.runs, basin.cost.ended_early)
                                 : fmt::format("{}", basin.cost.runs));
    row.cells_html.push_back(quantity(basin.cost.samples, Axis::kSamples));
    row.cells_html.push_back(quantity(basin.cost.bytes, Axis::kBytes));
    row.cells_html.push_back(timed ? quantity(basin.cost.seconds, Axis::kSeconds) : "\u2013");
    rows.push_back(std::move(row));
  }
  return table({{"arm", false},
                {"chosen", false},
                {escape_html(result.study.experiment.metric), true},
                {"interval", true},
                {"runs", true},
                {"samples", true},
                {"bytes sent", true},
                {"seconds", true}},
               rows);
}

std::string trials_table(const StudyResult& result) {
  const Tuning& tuning = *result.study.tuning;
  std::vector<TableRow> rows;
  for (std::size_t a = 0; a < tuning.basins.size(); ++a) {
    const Basin& basin = tuning.basins[a];
    for (std::size_t t = 0; t < basin.trials.size(); ++t) {
      const Trial& trial = basin.trials[t];
      rows.push_back({{arm_key(a, basin.arm),
                       fmt::format("<code>{}</code>",
                                   escape_html(settings_text(tuning.rule, basin.arm, trial.position))),
                       trial.usable() ? fmt::format("{:.6g}", trial.mean) : escape_html(trial.failure),
                       trial.usable() ? interval_text(trial.interval,
                                                      decimals_for(trial.interval.high - trial.interval.low))
                                      : "",
                       trial.usable() ? fmt::format("{:.6g}", trial.smoothed) : ""},
                      basin.chosen && t == *basin.chosen});
    }
  }
  return "<details><summary>Every setting</summary>\n" +
         table({{"arm", false}, {"setting", false}, {"mean", true}, {"interval", true}, {"smoothed", true}},
               rows) +
         "</details>\n";
}

std::string untuned_notes(const StudyResult& result) {
  std::string out;
  for (const Comparison& c : result.comparisons) {
    if (!c.untuned) continue;
    out +=
        paragraph(fmt::format("With {}'s setting for {}, too, {}. That is a reading of the tuning runs, not "
                              "a verdict.",
                              result.study.arms[0].arm.name, result.study.arms[c.other].arm.name,
                              reading(result.study.experiment, *c.untuned)));
  }
  return out;
}

}  // namespace

std::string tuning_section(const StudyResult& result) {
  if (!result.study.tuning) return "";
  const Tuning& tuning = *result.study.tuning;
  const Budget budget = tuning.rule.budget.value_or(result.study.experiment.budget);
  std::string out = paragraph(fmt::format(
      "{} settings of {}, on seeds {}, {} {} a run{}.", tuning.rule.trials, keys_text(tuning.rule),
      seeds_text(tuning.rule), compact(budget.amount), axis_name(budget.kind),
      tuning.rule.arms == TuneArms::kShared ? "; for the baseline alone, whose choice all arms have"
                                            : "; every arm has tried the same ones"));
  std::string keys;
  for (std::size_t a = 0; a < tuning.basins.size(); ++a) keys += arm_key(a, tuning.basins[a].arm);
  out += legend(keys);
  const bool several = tuning.rule.keys.size() > 1;
  out += several ? "<div class=\"two even\">" : "";
  for (std::size_t k = 0; k < tuning.rule.keys.size(); ++k) {
    out += "<figure>" +
           drawing(several ? ChartSize{430, 280} : ChartSize{860, 300}, {360, 260},
                   [&](ChartSize size) { return basin_chart(result, k, size); }) +
           "</figure>\n";
  }
  out += several ? "</div>" : "";
  out += paragraph(
      fmt::format("Open marks: means over the tuning seeds, with intervals from the deviation of the better "
                  "half of an arm's settings; filled: chosen{}. Much worse settings leave the plot.",
                  several ? "" : "; line: smoothed, its least point is what is chosen"),
      "note");
  out += choices_table(result) + untuned_notes(result) + trials_table(result) +
         csv_link(csv_name("tuning"), "CSV");
  return section("Tuning", out);
}

}  // namespace tenon::ab
