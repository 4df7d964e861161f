// A ladder in words, drawing, table, JSON and CSV. It prints what ladder.hpp computed; the studies of the
// points have reports of their own, which the page links.
#include "ab/ab.hpp"
#include "ab/csv.hpp"
#include "ab/format.hpp"
#include "ab/html.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace tenon::ab {
namespace {

using nlohmann::ordered_json;

constexpr double kNearby = 4;  // times the greatest size: farther off, a crossing says nothing

/// Whether sizes are parameters that were counted.
bool sizes_are_parameters(const LadderResult& result) {
  return std::none_of(result.points.begin(), result.points.end(),
                      [](const PointStudy& p) { return p.plan.point.size.has_value(); });
}

/// "512", "35.1 k", "120 k": three digits of thousands and more.
std::string count_text(double count) {
  static constexpr std::pair<double, const char*> kPrefixes[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, prefix] : kPrefixes) {
    if (count < std::max(scale, 1e4)) continue;
    const double v = count / scale;
    return fmt::format("{} {}", fixed(v, v < 9.995 ? 2 : v < 99.95 ? 1 : 0), prefix);
  }
  return fixed(count, 0);
}

/// "35.1 k parameters", "size 3".
std::string size_text(const LadderResult& result, double size) {
  if (sizes_are_parameters(result)) return count_text(size) + " parameters";
  return "size " + compact(size);
}

std::string times_text(double times) {
  return times == 2 ? "twice" : fmt::format("{:.4g} times", times);
}

double half_width(const Interval& interval) {
  return (interval.high - interval.low) / 2;
}

/// Decimals of the effects of an arm: as the most precise of them.
int effect_decimals(const LadderFit& fit) {
  double least = std::numeric_limits<double>::infinity();
  for (const LadderEffect& e : fit.effects()) least = std::min(least, 2 * e.effect.se);
  return decimals_for(least);
}

std::string signed_interval(const Interval& interval, int decimals) {
  return fmt::format("{} to {}", fixed_signed(interval.low, decimals), fixed_signed(interval.high, decimals));
}

std::pair<double, double> range_of_sizes(const LadderFit& fit) {
  std::pair<double, double> out{std::numeric_limits<double>::infinity(), 0};
  for (const LadderEffect& e : fit.effects())
    out = {std::min(out.first, e.size), std::max(out.second, e.size)};
  return out;
}

const PointStudy* held_out_point(const LadderResult& result) {
  const auto found = std::find_if(result.points.begin(), result.points.end(),
                                  [](const PointStudy& p) { return p.held_out; });
  return found == result.points.end() ? nullptr : &*found;
}

std::string chi_square_text(const LadderFit& fit) {
  return fmt::format("chi-square {:.3g} on {} degree{} of freedom, {}", fit.chi_square(), fit.degrees(),
                     fit.degrees() == 1 ? "" : "s", p_text(fit.p()));
}

std::string trend_headline(const LadderResult& result, const LadderLine& line) {
  const LadderFit& fit = *line.fit;
  const Experiment& e = result.experiment;
  if (line.trend == Trend::kNotALine) {
    return fmt::format(
        "The effect of {} follows no line in the logarithm of the size, so nothing is extrapolated: "
        "the fit does not describe the points ({}).",
        line.arm, chi_square_text(fit));
  }
  const int decimals = effect_decimals(fit);
  const Interval slope = fit.slope_interval(e.alpha);
  const int fine = decimals_for(half_width(slope));
  const std::string per_doubling =
      fmt::format("{} per doubling of the size ({} interval {})", fixed_signed(fit.slope(), fine),
                  coverage_text(result.experiment.alpha), signed_interval(slope, fine));
  const auto [least, greatest] = range_of_sizes(fit);
  const std::string ends = fmt::format("{} differs by {} at {} and by {} at {} on the fitted line", e.metric,
                                       fixed_signed(fit.at(least), decimals), size_text(result, least),
                                       fixed_signed(fit.at(greatest), decimals), size_text(result, greatest));
  if (line.trend == Trend::kNone) {
    return fmt::format("No trend with size is shown in the effect of {}: {} changes by {}.", line.arm,
                       "its difference of " + e.metric, per_doubling);
  }
  const char* how = line.trend == Trend::kShrinks ? "shrinks with size"
                    : line.trend == Trend::kGrows ? "grows with size"
                                                  : "changes its sign with size";
  return fmt::format("The effect of {} {}: {}, {}.", line.arm, how, ends, per_doubling);
}

void add_held_out(const LadderResult& result, const LadderLine& line, std::vector<std::string>& out) {
  const PointStudy& point = *held_out_point(result);
  const PointEffect& measured = *point.of(line.arm);
  const int decimals = effect_decimals(*line.fit);
  out.push_back(fmt::format(
      "At {}, which was held out ({}), the fit predicts {} ({} prediction interval {}) and the study "
      "measured {} "
      "({} to {}): the held-out effect is {}.",
      point.plan.point.name, size_text(result, point.plan.size),
      fixed_signed(line.held_out->effect, decimals), coverage_text(result.experiment.alpha),
      signed_interval(line.held_out->interval, decimals), fixed_signed(measured.effect.effect.mean, decimals),
      fixed_signed(measured.interval.low, decimals), fixed_signed(measured.interval.high, decimals),
      *line.within ? "within the prediction interval"
                   : "outside the prediction interval, so the line does not hold as far as that size"));
}

void add_beyond(const LadderResult& result, const LadderLine& line, std::vector<std::string>& out) {
  const int decimals = effect_decimals(*line.fit);
  const double greatest = range_of_sizes(*line.fit).second;
  std::string text;
  for (const LadderPrediction& p : line.beyond) {
    text += fmt::format("{}{} ({} interval {}) at {} the greatest size", text.empty() ? "" : ", and ",
                        fixed_signed(p.effect, decimals), coverage_text(result.experiment.alpha),
                        signed_interval(p.interval, decimals), times_text(p.size / greatest));
  }
  out.push_back(fmt::format(
      "If the line goes on, the effect is {}. No point was held out, so that is not tested.", text));
}

}  // namespace

LadderWords words_of(const LadderResult& result, const LadderLine& line) {
  if (!line.fit)
    return {fmt::format("No ladder for {}: its effects cannot be fitted.", line.arm), line.refusals};
  LadderWords out{trend_headline(result, line), {}};
  const auto [least, greatest] = range_of_sizes(*line.fit);
  const double crossing = line.fit->crossing();
  const bool has_trend = line.trend != Trend::kNotALine && line.trend != Trend::kNone;
  if (has_trend && crossing > least && crossing < kNearby * greatest)
    out.sentences.push_back(fmt::format("The fitted line crosses zero at {}.", size_text(result, crossing)));
  if (line.held_out) add_held_out(result, line, out.sentences);
  if (!line.beyond.empty()) add_beyond(result, line, out.sentences);
  if (line.trend == Trend::kNotALine) {
    out.sentences.push_back(
        "Look at the points one by one, or fit a range of sizes in which the effect is a line.");
  } else {
    out.sentences.push_back(
        fmt::format("Nothing contradicts the line: {}.{}", chi_square_text(*line.fit),
                    line.fit->degrees() == 1 ? " Three points show only a strong bend." : ""));
  }
  return out;
}

std::string ladder_text(const LadderResult& result) {
  std::string out;
  if (result.lines.empty()) {
    out = "No verdict: effects cannot be fitted over sizes.\n";
    for (const std::string& why : result.refusals) out += "  - " + why + "\n";
  }
  for (const LadderLine& line : result.lines) {
    const LadderWords words = words_of(result, line);
    out += words.headline + "\n";
    for (const std::string& s : words.sentences) out += "  " + s + "\n";
  }
  for (const PointStudy& point : result.points) {
    for (const PointEffect& e : point.effects) {
      const int decimals = decimals_for(half_width(e.interval));
      out += fmt::format("  {}{}, {}: {} {} ({} to {}, {} pairs), {}\n", point.plan.point.name,
                         point.held_out ? " (held out)" : "", size_text(result, point.plan.size), e.arm,
                         fixed_signed(e.effect.effect.mean, decimals), fixed_signed(e.interval.low, decimals),
                         fixed_signed(e.interval.high, decimals), e.effect.effect.n, e.verdict);
    }
  }
  return out;
}

namespace {

ordered_json finite_or_null(double v) {
  return std::isfinite(v) ? ordered_json(v) : ordered_json(nullptr);
}

ordered_json bounds_json(const Interval& interval) {
  return ordered_json::array({finite_or_null(interval.low), finite_or_null(interval.high)});
}

ordered_json prediction_json(const LadderPrediction& p) {
  return {{"size", p.size}, {"effect", finite_or_null(p.effect)}, {"interval", bounds_json(p.interval)}};
}

ordered_json ladder_line_json(const LadderResult& result, const LadderLine& line) {
  const LadderWords words = words_of(result, line);
  ordered_json out{{"arm", line.arm}, {"headline", words.headline}, {"sentences", words.sentences}};
  out["trend"] = line.fit ? ordered_json(trend_name(line.trend)) : ordered_json(nullptr);
  out["slope_per_doubling"] = nullptr;
  if (line.fit) {
    const LadderFit& fit = *line.fit;
    out["slope_per_doubling"] = finite_or_null(fit.slope());
    out["slope_interval"] = bounds_json(fit.slope_interval(result.experiment.alpha));
    out["chi_square"] = finite_or_null(fit.chi_square());
    out["degrees_of_freedom"] = fit.degrees();
    out["p_of_fit"] = finite_or_null(fit.p());
  }
  out["held_out"] = nullptr;
  if (line.held_out) {
    const PointStudy& point = *held_out_point(result);
    out["held_out"] = prediction_json(*line.held_out);
    out["held_out"]["point"] = point.plan.point.name;
    out["held_out"]["measured"] = finite_or_null(point.of(line.arm)->effect.effect.mean);
    out["held_out"]["within"] = *line.within;
  }
  out["extrapolated"] = ordered_json::array();
  for (const LadderPrediction& p : line.beyond) out["extrapolated"].push_back(prediction_json(p));
  out["refusals"] = line.refusals;
  return out;
}

ordered_json point_json(const PointStudy& point) {
  ordered_json effects = ordered_json::array();
  for (const PointEffect& e : point.effects) {
    effects.push_back({{"arm", e.arm},
                       {"effect", finite_or_null(e.effect.effect.mean)},
                       {"se", finite_or_null(e.effect.effect.se)},
                       {"interval", bounds_json(e.interval)},
                       {"pairs", e.effect.effect.n},
                       {"verdict", e.verdict}});
  }
  const PlannedPoint& plan = point.plan;
  return {{"name", plan.point.name},
          {"size", plan.size},
          {"parameters", plan.parameters > 0 ? ordered_json(plan.parameters) : ordered_json(nullptr)},
          {"set", plan.point.set},
          {"budget", {{"kind", axis_name(plan.budget.kind)}, {"amount", plan.budget.amount}}},
          {"held_out", point.held_out},
          {"effects", effects},
          {"runs", point.runs},
          {"seconds", point.seconds ? finite_or_null(*point.seconds) : ordered_json(nullptr)},
          {"bytes_sent", finite_or_null(point.bytes)},
          {"report", fmt::format("points/{}/report.json", plan.point.name)},
          {"refusals", point.refusals}};
}

}  // namespace

std::string ladder_json(const LadderResult& result, bool whole) {
  ordered_json points = ordered_json::array(), lines = ordered_json::array();
  for (const PointStudy& point : result.points) points.push_back(point_json(point));
  for (const LadderLine& line : result.lines) lines.push_back(ladder_line_json(result, line));
  ordered_json out;
  if (whole) {
    out["format"] = "tenon.ab.ladder/1";
    out["experiment"] =
        ordered_json::parse(study_record_json({result.experiment, result.jobs, false}))["experiment"];
    out["jobs"] = result.jobs;
  }
  out["points"] = points;
  out["lines"] = lines;
  if (whole) out["refusals"] = result.refusals;
  return out.dump(whole ? 1 : -1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ladder_csv(const LadderResult& result) {
  std::string out = "point,size,held_out,arm,effect,se,low,high,pairs,fitted,fitted_low,fitted_high\n";
  const auto digits = [](double v) { return std::isfinite(v) ? fmt::format("{}", v) : std::string(); };
  for (const PointStudy& point : result.points) {
    for (const PointEffect& e : point.effects) {
      out +=
          fmt::format("{},{},{},{},{},{},{},{},{}", point.plan.point.name, point.plan.size,
                      point.held_out ? 1 : 0, e.arm, digits(e.effect.effect.mean), digits(e.effect.effect.se),
                      digits(e.interval.low), digits(e.interval.high), e.effect.effect.n);
      const auto line = std::find_if(result.lines.begin(), result.lines.end(),
                                     [&](const LadderLine& l) { return l.arm == e.arm; });
      if (line == result.lines.end() || !line->fit) {
        out += ",,,\n";
        continue;
      }
      const Interval interval = line->fit->interval(point.plan.size, result.experiment.alpha);
      out += fmt::format(",{},{},{}\n", digits(line->fit->at(point.plan.size)), digits(interval.low),
                         digits(interval.high));
    }
  }
  return out;
}

namespace {

std::size_t position_of(const LadderResult& result, const std::string& arm) {
  const std::vector<Arm>& arms = result.experiment.arms;
  const auto found = std::find_if(arms.begin(), arms.end(), [&](const Arm& a) { return a.name == arm; });
  return static_cast<std::size_t>(found - arms.begin());
}

/// Ticks at the sizes of the points; labels that would touch are left out.
void draw_sizes(Svg& svg, const Frame& frame, const LadderResult& result) {
  std::set<double> sizes;
  for (const PointStudy& point : result.points) sizes.insert(point.plan.size);
  double free_from = 0;
  for (const double size : sizes) {
    const std::string label = sizes_are_parameters(result) ? count_text(size) : compact(size);
    const double half = 3.5 * static_cast<double>(label.size()) + 4, x = frame.x(std::log2(size));
    svg.line({x, frame.bottom()}, {x, frame.bottom() + 4}, "axis");
    if (x - half < free_from) continue;
    free_from = x + half;
    svg.text({std::min(x, svg.width() - half), frame.bottom() + 17}, label, "tick", Anchor::kMiddle);
  }
  svg.text({(frame.left() + frame.right()) / 2, svg.height() - 5},
           sizes_are_parameters(result) ? "parameters" : "size", "axis-title", Anchor::kMiddle);
}

void whisker(Svg& svg, const Frame& frame, double x, const Interval& interval, double cap,
             const std::string& css_class) {
  const double low = frame.y(interval.low), high = frame.y(interval.high);
  svg.line({x, low}, {x, high}, css_class);
  for (const double end : {low, high}) svg.line({x - cap, end}, {x + cap, end}, css_class);
}

std::string ladder_chart(const LadderResult& result, const LadderLine& line, ChartSize size) {
  constexpr int kLinePoints = 60;
  const double alpha = result.experiment.alpha;
  const std::size_t arm = position_of(result, line.arm);
  const bool predicts = line.fit && line.trend != Trend::kNotALine;
  std::vector<double> values{0}, sizes;
  for (const PointStudy& point : result.points) {
    sizes.push_back(std::log2(point.plan.size));
    if (const PointEffect* e = point.of(line.arm))
      values.insert(values.end(), {e->effect.effect.mean, e->interval.low, e->interval.high});
  }
  // Intervals of few pairs can be so wide that they would flatten all effects; they leave the plot.
  if (line.held_out) values.insert(values.end(), {line.held_out->interval.low, line.held_out->interval.high});
  Range x = range_of(sizes, 0.08);
  Svg svg(size.width, size.height, "chart",
          fmt::format("Difference of {} against size, with the fitted line", result.experiment.metric));
  Frame frame(svg, {.x = x,
                    .y = range_of(values, 0.08),
                    .x_title = "",
                    .y_title = "difference of " + result.experiment.metric,
                    .x_is_quantity = false,
                    .draw_x = false});
  draw_sizes(svg, frame, result);
  const auto styled = [&](const char* what) { return fmt::format("{} arm{}", what, arm % 6); };
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left(), frame.bottom() - frame.top());
  svg.line({frame.left(), frame.y(0)}, {frame.right(), frame.y(0)}, "zero");
  if (line.fit) {
    std::vector<Point> middle, upper, lower;
    for (int i = 0; i <= kLinePoints; ++i) {
      const double at = x.low + (x.high - x.low) * i / kLinePoints;
      const Interval interval = line.fit->interval(std::exp2(at), alpha);
      middle.push_back(frame.at(at, line.fit->at(std::exp2(at))));
      upper.push_back(frame.at(at, interval.high));
      lower.push_back(frame.at(at, interval.low));
    }
    if (predicts) svg.band(upper, lower, styled("band"));
    svg.polyline(middle, styled(predicts ? "curve" : "trace"),
                 predicts ? "fitted line" : "a line that does not fit");
  }
  for (const PointStudy& point : result.points) {
    const PointEffect* e = point.of(line.arm);
    if (e == nullptr) continue;
    const double at = frame.x(std::log2(point.plan.size));
    if (point.held_out && line.held_out) whisker(svg, frame, at + 9, line.held_out->interval, 5, "interval");
    whisker(svg, frame, at, e->interval, 4, styled("mark"));
    svg.marker(marker_of(arm), {at, frame.y(e->effect.effect.mean)}, 5.5,
               styled(point.held_out ? "open" : "dot"),
               fmt::format("{}: {}", point.plan.point.name, compact(e->effect.effect.mean)));
  }
  svg.end_clip();
  return svg.take();
}

std::string ladder_figure(const LadderResult& result, const LadderLine& line) {
  const Experiment& e = result.experiment;
  std::string caption =
      fmt::format("{} \u2212 {}: mean of the pairs of each point with its {} interval", escape_html(line.arm),
                  escape_html(e.arms.front().name), coverage_text(result.experiment.alpha));
  if (line.fit && line.trend == Trend::kNotALine) {
    caption += "; faint: the least-squares line, which does not describe the points";
  } else if (line.fit) {
    caption += "; line and band: weighted fit with its interval";
  }
  if (const PointStudy* held = held_out_point(result)) {
    caption += fmt::format("; open: {}, held out", escape_html(held->plan.point.name));
    if (line.held_out) caption += ", with the prediction interval beside it";
  }
  return "<figure>" + legend(arm_key(position_of(result, line.arm), line.arm)) +
         drawing({860, 340}, {360, 280}, [&](ChartSize size) { return ladder_chart(result, line, size); }) +
         fmt::format("<figcaption>{}. {}</figcaption></figure>\n", caption,
                     csv_link(csv_name("ladder"), "CSV"));
}

std::string ladder_verdict(const LadderResult& result, const LadderLine& line) {
  static constexpr std::pair<const char*, const char*> kWords[] = {
      {"No trend", "inconclusive"},
      {"Shrinks with size", "identical"},
      {"Grows with size", "identical"},
      {"Changes its sign with size", "identical"},
      {"Not a line", "inconclusive"}};
  const auto [word, tone] = line.fit ? kWords[static_cast<int>(line.trend)] : std::pair{"No verdict", "none"};
  const LadderWords words = words_of(result, line);
  std::string out = fmt::format("<div class=\"verdict {}\">\n<p class=\"word\">{}</p>\n", tone, word);
  out += paragraph(words.headline, "headline") + "<ul>\n";
  for (const std::string& s : words.sentences) out += fmt::format("<li>{}</li>\n", escape_html(s));
  return out + "</ul>\n</div>\n";
}

std::string refused_ladder(const LadderResult& result) {
  std::string out = "<div class=\"verdict none\">\n<p class=\"word\">No verdict</p>\n" +
                    paragraph("Effects cannot be fitted over sizes.", "headline") + "<ul>\n";
  for (const std::string& why : result.refusals) out += fmt::format("<li>{}</li>\n", escape_html(why));
  return out + "</ul>\n</div>\n";
}

std::string budget_text_of(const Budget& budget) {
  const std::string unit = budget.kind == Axis::kSeconds || budget.kind == Axis::kBytes
                               ? ""
                               : std::string(" ") + axis_name(budget.kind);
  return quantity(budget.amount, budget.kind) + unit;
}

std::string points_table(const LadderResult& result) {
  std::vector<TableRow> rows;
  for (const PointStudy& point : result.points) {
    const PlannedPoint& plan = point.plan;
    const std::string name =
        fmt::format("<a href=\"points/{0}/report.html\">{0}</a>{1}", escape_html(plan.point.name),
                    point.held_out ? " <span class=\"note\">held out</span>" : "");
    const std::string size = sizes_are_parameters(result) ? count_text(plan.size) : compact(plan.size);
    const std::string runs = fmt::format("{} of {}", point.runs, budget_text_of(plan.budget));
    if (point.effects.empty()) rows.push_back({{name, size, runs, "", "no verdict", "", ""}, false});
    for (const PointEffect& e : point.effects) {
      const int decimals = decimals_for(half_width(e.interval));
      const auto line = std::find_if(result.lines.begin(), result.lines.end(),
                                     [&](const LadderLine& l) { return l.arm == e.arm; });
      const bool fitted = line != result.lines.end() && line->fit;
      rows.push_back({{name, size, runs, arm_key(position_of(result, e.arm), e.arm), escape_html(e.verdict),
                       fmt::format("{} ({})", fixed_signed(e.effect.effect.mean, decimals),
                                   signed_interval(e.interval, decimals)),
                       fitted ? fixed_signed(line->fit->at(plan.size), decimals) : "\u2013"},
                      false});
    }
  }
  return table({{"point", false},
                {sizes_are_parameters(result) ? "parameters" : "size", true},
                {"runs", false},
                {"arm", false},
                {"verdict", false},
                {"effect (" + coverage_text(result.experiment.alpha) + " interval)", true},
                {"fitted", true}},
               rows);
}

std::string fits_table(const LadderResult& result) {
  std::vector<TableRow> rows;
  for (const LadderLine& line : result.lines) {
    if (!line.fit) continue;
    const LadderFit& fit = *line.fit;
    const Interval slope = fit.slope_interval(result.experiment.alpha);
    const int fine = decimals_for(half_width(slope));
    rows.push_back({{arm_key(position_of(result, line.arm), line.arm), fixed_signed(fit.slope(), fine),
                     signed_interval(slope, fine), fmt::format("{:.3g}", fit.chi_square()),
                     std::to_string(fit.degrees()), escape_html(p_value(fit.p()))},
                    false});
  }
  if (rows.empty()) return "";
  return table({{"arm", false},
                {"slope per doubling", true},
                {coverage_text(result.experiment.alpha) + " interval", true},
                {"chi-square", true},
                {"degrees of freedom", true},
                {"p of the fit", true}},
               rows);
}

std::string ladder_facts(const LadderResult& result) {
  const Experiment& e = result.experiment;
  std::string arms;
  for (std::size_t a = 0; a < e.arms.size(); ++a) {
    arms += (a ? "<br>" : "") + arm_key(a, e.arms[a].name) +
            (a == 0 ? " <span class=\"note\">baseline</span>" : "");
  }
  std::string out = "<dl class=\"facts\">\n" + fact("Arms", arms);
  const std::size_t held = held_out_point(result) != nullptr ? 1 : 0;
  out += fact("Points", fmt::format("{}{}", result.points.size(), held ? ", one of them held out" : ""));
  out += fact("Pairs at each point", std::to_string(e.seeds.size()));
  const LadderRule& rule = *e.ladder;
  if (rule.tokens_per_parameter)
    out += fact("Budget", fmt::format("{:.4g} tokens for each parameter", *rule.tokens_per_parameter));
  if (rule.samples_per_parameter)
    out += fact("Budget", fmt::format("{:.4g} samples for each parameter", *rule.samples_per_parameter));
  out += fact("Metric",
              fmt::format("{}, {} is better", escape_html(e.metric), e.lower_is_better ? "lower" : "higher"));
  out += fact("Significance level", fmt::format("{:.4g}", e.alpha));
  double seconds = 0;
  for (const PointStudy& point : result.points) seconds += point.seconds.value_or(NAN);
  if (std::isfinite(seconds)) out += fact("Wall time of all runs", quantity(seconds, Axis::kSeconds));
  return out + "</dl>\n";
}

}  // namespace

std::string ladder_html(const LadderResult& result) {
  const Experiment& e = result.experiment;
  const std::string question = e.question.empty() ? "Ladder " + e.name : e.question;
  std::string out = paragraph(fmt::format("Ladder: {}", e.name), "eyebrow");
  out += fmt::format("<h1>{}</h1>\n", escape_html(question));
  if (result.lines.empty()) out += refused_ladder(result);
  for (const LadderLine& line : result.lines) out += ladder_verdict(result, line);
  out += ladder_facts(result);
  std::string figures;
  for (const LadderLine& line : result.lines) figures += ladder_figure(result, line);
  if (!figures.empty()) {
    figures += fits_table(result) +
               paragraph(
                   "A straight line in the logarithm of the size, by least squares with weights of one over "
                   "the variance of each effect. Variances come from few pairs, so intervals have the "
                   "correction of Kenward and Roger, and p is Johansen's. Points count as independent of "
                   "each other.",
                   "note");
    out += section("Effect against size", figures);
  }
  out += section("Points", points_table(result));
  if (!e.path.empty()) {
    out += section("How to reproduce",
                   fmt::format("<pre>tenon ab {} --out {} --jobs {}</pre>\n", escape_html(e.path),
                               escape_html(result.folder), result.jobs));
  }
  out +=
      "<footer>Every number of this page, and more digits, are in report.json beside it. Each point has a "
      "report of its own. The page loads nothing from the network.</footer>\n";
  return page(question, out);
}

}  // namespace tenon::ab
