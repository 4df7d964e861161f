// Factorial effects in words and drawings: the end of `tenon ab`, the page's verdicts, its matrix of means,
// its table of effects and its interaction plots.
#include "ab/ab.hpp"
#include "ab/charts.hpp"
#include "ab/csv.hpp"
#include "ab/factorial.hpp"
#include "ab/format.hpp"
#include "ab/html.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

constexpr double kDodge = 5;  // pixels between the lines of a plot, so that their intervals can be told apart

/// One number of decimals for all effects, so that they can be compared at a glance.
int decimals_of_effects(const FactorialResult& f) {
  int out = 0;
  for (const MainEffect& effect : f.main)
    out = std::max(out, metric_decimals(effect.contrast.primary.difference, f.cells.front().mean));
  return out;
}

std::string signed_interval(const MeanEstimate& m, int decimals) {
  if (!std::isfinite(m.interval.low)) return "\u2013";
  return fmt::format("{} to {}", fixed_signed(m.interval.low, decimals),
                     fixed_signed(m.interval.high, decimals));
}

std::string against_first(const Factor& factor, std::size_t level) {
  return fmt::format("{}: {} \u2212 {}", factor.name, factor.levels[level].name, factor.levels[0].name);
}

std::string seeds_of(const StudyResult& result) {
  const std::size_t n = result.study.experiment.seeds.size();
  return fmt::format("{} seed{}", n, n == 1 ? "" : "s");
}

std::string interactions_block(const FactorialResult& f) {
  const bool present = std::any_of(f.interactions.begin(), f.interactions.end(), [](const Interaction& i) {
    return i.reading == InteractionReading::kPresent;
  });
  std::string out = fmt::format("<div class=\"verdict {}\">\n<p class=\"word\">{}</p>\n<ul>\n",
                                present ? "identical" : "inconclusive",
                                present ? "Interaction present" : "No interaction shown");
  for (const Interaction& i : f.interactions) out += fmt::format("<li>{}</li>\n", escape_html(i.sentence));
  return out + "</ul>\n</div>\n";
}

/// Rows: all factors but the last one; columns: the levels of the last one.
std::string matrix_of_means(const StudyResult& result) {
  const std::vector<Factor>& factors = result.study.experiment.factors;
  const FactorialResult& f = *result.factorial;
  const int decimals = decimals_of_effects(f);
  const Factor& across = factors.back();
  std::vector<TableColumn> columns;
  for (std::size_t k = 0; k + 1 < factors.size(); ++k)
    columns.push_back({escape_html(factors[k].name), false});
  for (std::size_t l = 0; l < across.levels.size(); ++l)
    columns.push_back({escape_html(level_text(across, l)), true});
  std::vector<TableRow> rows;
  for (std::size_t cell = 0; cell < f.cells.size(); ++cell) {
    const std::vector<std::size_t> levels = levels_of_cell(factors, cell);
    if (levels.back() == 0) {
      rows.emplace_back();
      for (std::size_t k = 0; k + 1 < factors.size(); ++k)
        rows.back().cells_html.push_back(escape_html(factors[k].levels[levels[k]].name));
    }
    const MeanEstimate& m = f.cells[cell];
    const double half = (m.interval.high - m.interval.low) / 2;
    rows.back().cells_html.push_back(
        std::isfinite(half) ? fmt::format("{} \u00b1 {}", fixed(m.mean, decimals), fixed(half, decimals))
                            : fixed(m.mean, decimals));
  }
  return table(columns, rows);
}

TableRow effect_row(const std::string& name, const Comparison& c, const char* reading, int decimals,
                    bool strong) {
  const PairedMetric& m = c.primary;
  return {{escape_html(name), fixed_signed(m.difference.mean, decimals),
           signed_interval(m.difference, decimals), escape_html(p_value(m.t_test.p)),
           escape_html(p_value(m.sign_flip.p)), escape_html(p_value(m.adjusted_p)), reading},
          strong};
}

std::string effects_table(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  const FactorialResult& f = *result.factorial;
  const int decimals = decimals_of_effects(f);
  std::vector<TableRow> rows;
  for (const MainEffect& effect : f.main) {
    const Outcome outcome = effect.contrast.verdict.outcome;
    rows.push_back(effect_row(against_first(e.factors[effect.factor], effect.level), effect.contrast,
                              outcome_name(outcome), decimals,
                              outcome == Outcome::kBetter || outcome == Outcome::kWorse));
  }
  for (const Interaction& i : f.interactions) {
    rows.push_back(effect_row(interaction_text(e.factors, i), i.contrast, reading_name(i.reading), decimals,
                              i.reading == InteractionReading::kPresent));
  }
  return table({{"contrast", false},
                {"effect", true},
                {coverage_text(e.alpha) + " interval", true},
                {"p, t test", true},
                {"p, exact", true},
                {"p, Holm", true},
                {"verdict", false}},
               rows);
}

std::string one_at_a_time_table(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  const FactorialResult& f = *result.factorial;
  const int decimals = decimals_of_effects(f);
  std::vector<TableRow> rows;
  for (const MainEffect& effect : f.main) {
    const PairedMetric& alone = effect.one_at_a_time.primary;
    rows.push_back(
        {{escape_html(against_first(e.factors[effect.factor], effect.level)),
          fixed_signed(effect.contrast.primary.difference.mean, decimals),
          outcome_name(effect.contrast.verdict.outcome), fixed_signed(alone.difference.mean, decimals),
          signed_interval(alone.difference, decimals), escape_html(p_value(alone.adjusted_p)),
          outcome_name(effect.one_at_a_time.verdict.outcome), effect.misleads ? "yes" : "no"},
         effect.misleads});
  }
  return table({{"level", false},
                {"main effect", true},
                {"verdict", false},
                {"one at a time", true},
                {"interval", true},
                {"p, Holm", true},
                {"verdict", false},
                {"misleads", false}},
               rows);
}

/// Difference from the first levels of both, by seed, with its interval.
MeanEstimate plotted(const StudyResult& result, const Held& held) {
  const Experiment& e = result.study.experiment;
  const CellValues& values = result.factorial->values;
  const std::vector<double> here = margin_of(e.factors, values, held);
  const std::vector<double> origin = margin_of(e.factors, values, {{held[0].first, 0}, {held[1].first, 0}});
  std::vector<double> differences;
  for (std::size_t s = 0; s < here.size(); ++s) differences.push_back(here[s] - origin[s]);
  return mean_with_interval(differences, e.alpha);
}

/// Values that every interaction plot shows, so that all have one scale.
std::vector<double> plotted_values(const StudyResult& result) {
  const std::vector<Factor>& factors = result.study.experiment.factors;
  std::vector<double> out;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    for (std::size_t g = f + 1; g < factors.size(); ++g) {
      for (std::size_t l = 0; l < factors[f].levels.size(); ++l) {
        for (std::size_t m = 0; m < factors[g].levels.size(); ++m) {
          const MeanEstimate y = plotted(result, {{f, l}, {g, m}});
          out.insert(out.end(), {y.mean, y.interval.low, y.interval.high});
        }
      }
    }
  }
  return out;
}

std::string interaction_plot(const StudyResult& result, std::size_t f, std::size_t g, Range y,
                             ChartSize size) {
  const Experiment& e = result.study.experiment;
  const Factor& along = e.factors[f];
  const Factor& lines = e.factors[g];
  Svg svg(size.width, size.height, "chart",
          fmt::format("Effect of {} on {}, a line for each level of {}", along.name, e.metric, lines.name));
  Frame frame(svg, {.x = {-0.3, static_cast<double>(along.levels.size()) - 0.7},
                    .y = y,
                    .x_title = "",
                    .y_title = "difference of " + e.metric,
                    .x_is_quantity = false,
                    .draw_x = false});
  svg.line({frame.left(), frame.y(0)}, {frame.right(), frame.y(0)}, "zero");
  for (std::size_t m = 0; m < lines.levels.size(); ++m) {
    const double dodge = kDodge * (static_cast<double>(m) - static_cast<double>(lines.levels.size() - 1) / 2);
    std::vector<Point> path;
    std::vector<MeanEstimate> estimates;
    for (std::size_t l = 0; l < along.levels.size(); ++l) {
      estimates.push_back(plotted(result, {{f, l}, {g, m}}));
      path.push_back({frame.x(static_cast<double>(l)) + dodge, frame.y(estimates.back().mean)});
    }
    svg.polyline(path, fmt::format("curve arm{}", m % 6), level_text(lines, m));
    for (std::size_t l = 0; l < path.size(); ++l) {
      const Interval& interval = estimates[l].interval;
      if (std::isfinite(interval.low) && interval.high > interval.low) {
        const Point whisker[] = {{path[l].x, frame.y(interval.low)}, {path[l].x, frame.y(interval.high)}};
        svg.polyline(whisker, fmt::format("whisker arm{}", m % 6), "");
      }
      svg.marker(
          marker_of(m), path[l], 5, fmt::format("dot arm{}", m % 6),
          fmt::format("{}, {}: {}", level_text(along, l), level_text(lines, m), compact(estimates[l].mean)));
    }
  }
  for (std::size_t l = 0; l < along.levels.size(); ++l) {
    const double x = frame.x(static_cast<double>(l));
    svg.line({x, frame.bottom()}, {x, frame.bottom() + 4}, "axis");
    svg.text({x, frame.bottom() + 17}, along.levels[l].name, "label", Anchor::kMiddle);
  }
  svg.text({(frame.left() + frame.right()) / 2, svg.height() - 5}, along.name, "axis-title", Anchor::kMiddle);
  return svg.take();
}

std::string interaction_plots(const StudyResult& result) {
  const std::vector<Factor>& factors = result.study.experiment.factors;
  const Range y = range_of(plotted_values(result), 0.08);
  const bool several = factors.size() > 2;
  std::string out = several ? "<div class=\"two even\">" : "";
  for (std::size_t f = 0; f < factors.size(); ++f) {
    for (std::size_t g = f + 1; g < factors.size(); ++g) {
      std::string keys;
      for (std::size_t m = 0; m < factors[g].levels.size(); ++m)
        keys += arm_key(m, level_text(factors[g], m));
      out += "<figure>" + legend(keys) +
             drawing(several ? ChartSize{430, 280} : ChartSize{720, 300}, {360, 260},
                     [&](ChartSize size) { return interaction_plot(result, f, g, y, size); }) +
             "</figure>\n";
    }
  }
  return out + (several ? "</div>\n" : "");
}

}  // namespace

std::string factorial_text(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  const FactorialResult& f = *result.factorial;
  const int decimals = decimals_of_effects(f);
  std::string out = f.verdict.headline + "\n";
  for (const std::string& s : f.verdict.sentences) out += "  " + s + "\n";
  std::vector<std::vector<std::string>> rows{{"main effect", "effect", coverage_text(e.alpha) + " interval",
                                              "p (Holm)", "verdict", "one at a time"}};
  const auto add = [&](const std::string& name, const Comparison& c, const char* reading) {
    rows.push_back({name, fixed_signed(c.primary.difference.mean, decimals),
                    signed_interval(c.primary.difference, decimals), p_value(c.primary.adjusted_p), reading});
  };
  for (const MainEffect& effect : f.main) {
    add(against_first(e.factors[effect.factor], effect.level), effect.contrast,
        outcome_name(effect.contrast.verdict.outcome));
    rows.back().push_back(fmt::format("{}, {}",
                                      fixed_signed(effect.one_at_a_time.primary.difference.mean, decimals),
                                      outcome_name(effect.one_at_a_time.verdict.outcome)));
  }
  rows.push_back({"interaction"});
  for (const Interaction& i : f.interactions)
    add(interaction_text(e.factors, i), i.contrast, reading_name(i.reading));
  out += text_table(rows, "  ");
  for (const MainEffect& effect : f.main) {
    out += fmt::format("{}: {}{}{}\n", level_text(e.factors[effect.factor], effect.level), effect.caution,
                       effect.caution.empty() ? "" : " ", effect.sentence);
  }
  return out;
}

std::string factorial_verdicts(const StudyResult& result) {
  const FactorialResult& f = *result.factorial;
  std::string out =
      "<div class=\"verdict undecided\">\n" + paragraph(f.verdict.headline, "headline") + "<ul>\n";
  for (const std::string& s : f.verdict.sentences) out += fmt::format("<li>{}</li>\n", escape_html(s));
  out += "</ul>\n</div>\n";
  for (const MainEffect& effect : f.main) {
    Verdict v = effect.contrast.verdict;
    v.sentences.insert(v.sentences.begin(), effect.sentence);
    if (!effect.caution.empty()) v.sentences.insert(v.sentences.begin(), effect.caution);
    out += verdict_block(v);
  }
  return out + interactions_block(f);
}

std::string factorial_facts(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  std::string factors, product;
  for (const Factor& factor : e.factors) {
    std::string levels;
    for (const FactorLevel& level : factor.levels) levels += (levels.empty() ? "" : ", ") + level.name;
    factors +=
        fmt::format("{}{}: {}", factors.empty() ? "" : "<br>", escape_html(factor.name), escape_html(levels));
    product += fmt::format("{}{}", product.empty() ? "" : " \u00d7 ", factor.levels.size());
  }
  return fact("Factors, the baseline level first", factors) +
         fact("Cells", fmt::format("{} = {}", product, cell_count(e.factors)));
}

std::string factorial_section(const StudyResult& result) {
  if (!result.factorial) return "";
  const Experiment& e = result.study.experiment;
  std::string out = "<h3>Means of the cells</h3>\n" + matrix_of_means(result);
  out += paragraph(
      fmt::format("Mean of {} and half its {} interval over {}. Much of that is the seeds' own; the "
                  "effects are differences within a seed, which leave it out.",
                  e.metric, coverage_text(e.alpha), seeds_of(result)),
      "note");
  out += csv_link(csv_name("cells"), "CSV");
  out += "<h3>Effects</h3>\n" + effects_table(result);
  out += paragraph(
      "A main effect is the mean over all levels of the other factors. An interaction is the effect of the "
      "first "
      "level beside the second one, minus the same effect beside the second factor's first level. The "
      "verdicts take "
      "the p-values adjusted over all contrasts (Holm).",
      "note");
  out += "<h3>Interactions</h3>\n" + interaction_plots(result);
  out += paragraph(fmt::format("Difference from the first levels of both factors, within seeds, with {} "
                               "intervals; means over the other factors. Parallel lines: no interaction.",
                               coverage_text(e.alpha)),
                   "note");
  out += "<h3>One factor at a time</h3>\n" + one_at_a_time_table(result);
  out += paragraph(
      "One at a time: the other factors at their first levels, as a study without the remaining cells would "
      "have "
      "it, its p-values adjusted over these levels alone.",
      "note");
  return section("Factors", out);
}

}  // namespace tenon::ab
