// Reading of [ladder], and the fit. With w = 1 / se^2 and u = log2(size) - centre, where the centre is the
// weighted mean, the covariance of level and slope is Phi = diag(1 / sum w, 1 / sum w u^2).
#include "ab/ladder.hpp"

#include "ab/experiment.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tenon::ab {
namespace {

constexpr OptionSpec kLadderOptions[] = {
    option::text("held_out", "\"\"")
        .doc_text("name of a point that is not fitted, to test what the fit predicts"),
    option::real("samples_per_parameter", nullptr)
        .between(1e-9, 1e9)
        .doc_text("budget of points without steps: samples for each parameter of the model"),
    option::real("tokens_per_parameter", nullptr)
        .between(1e-9, 1e9)
        .doc_text("budget of points without steps: tokens for each parameter of the model"),
};

constexpr OptionSpec kLadderPointOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the point and its folder"),
    option::texts("set", "[]").doc_text("\"a.b=c\" for all arms; what an arm sets goes over it"),
    option::integer("steps", nullptr).between(1, 1e12).doc_text("slots of every run of the point"),
    option::real("size", nullptr)
        .between(1e-300, 1e300)
        .doc_text("in place of the parameters of the baseline's model"),
};

LadderPoint read_point(const Value& table, std::size_t index) {
  OptionRequest request{.table = table,
                        .owner = fmt::format("ladder.points[{}]", index),
                        .specs = option_list(kLadderPointOptions)};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  LadderPoint point;
  point.name = options.text("name");
  const auto set = options.texts("set");
  point.set.assign(set.begin(), set.end());
  if (options.has("steps")) point.steps = options.integer("steps");
  if (options.has("size")) point.size = options.real("size");
  point.where = table.origin.text();
  return point;
}

std::string place(const std::string& where) {
  return where.empty() ? "ladder: " : where + ": ladder: ";
}

void check_names(const LadderRule& rule, std::vector<std::string>& out) {
  std::set<std::string> names;
  for (const LadderPoint& point : rule.points) {
    if (!usable_as_folder(point.name)) {
      out.push_back(
          fmt::format("{}point name '{}' cannot name a folder; use letters, digits, '.', '_' and "
                      "'-', at most 64, not starting with '.' or '-'",
                      place(point.where), point.name));
    }
    if (!names.insert(point.name).second)
      out.push_back(fmt::format("{}two points are called '{}'", place(point.where), point.name));
    for (const std::string& set : point.set) {
      if (!set.starts_with("run.steps=")) continue;
      out.push_back(
          fmt::format("{}point '{}' sets {}, which its budget replaces; write steps = {} beside set",
                      place(point.where), point.name, set, set.substr(set.find('=') + 1)));
    }
  }
  if (!rule.held_out.empty() && !names.contains(rule.held_out)) {
    out.push_back(fmt::format("{}held_out names '{}', which is no point; the points are {}",
                              place(rule.where), rule.held_out, fmt::join(names, ", ")));
  }
}

}  // namespace

bool LadderRule::has_budgets() const {
  return samples_per_parameter || tokens_per_parameter ||
         (!points.empty() &&
          std::all_of(points.begin(), points.end(), [](const LadderPoint& p) { return p.steps > 0; }));
}

bool LadderRule::counts(const LadderPoint& point) const {
  return !point.size || (point.steps == 0 && (samples_per_parameter || tokens_per_parameter));
}

LadderRule read_ladder(const Value& table) {
  if (!table.is_table())
    fail_config(
        fmt::format("{}: expected the table [ladder], found {}", table.origin.text(), table.description()));
  OptionRequest request{
      .table = table, .owner = "ladder", .specs = option_list(kLadderOptions), .other_keys = {"points"}};
  const Resolution resolved = resolve_options(request);
  const Options& options = *resolved.options;
  LadderRule rule;
  rule.held_out = options.text("held_out");
  if (options.has("samples_per_parameter"))
    rule.samples_per_parameter = options.real("samples_per_parameter");
  if (options.has("tokens_per_parameter")) rule.tokens_per_parameter = options.real("tokens_per_parameter");
  rule.where = table.origin.text();
  if (const Value* points = table.find("points")) {
    if (!points->is_array()) {
      fail_config(
          fmt::format("{}: points is a list of tables: points = [{{ name = \"w64\", set = "
                      "[\"model.width=64\"] }}, ...]; found {}",
                      points->origin.text(), points->description()));
    }
    rule.where = points->origin.text();
    for (std::size_t i = 0; i < points->array().size(); ++i)
      rule.points.push_back(read_point(points->array()[i], i));
  }
  return rule;
}

std::vector<config::TableSpecs> ladder_tables() {
  return {{"ladder", kLadderOptions}, {"ladder.points", kLadderPointOptions, true}};
}

std::vector<std::string> problems_of(const LadderRule& rule) {
  std::vector<std::string> out;
  check_names(rule, out);
  const auto fitted = static_cast<std::size_t>(
      std::count_if(rule.points.begin(), rule.points.end(),
                    [&](const LadderPoint& point) { return point.name != rule.held_out; }));
  if (fitted < kLeastLadderPoints) {
    out.push_back(
        fmt::format("{}{} points to fit; a line through fewer than {} cannot be contradicted. Add points{}",
                    place(rule.where), fitted, kLeastLadderPoints,
                    rule.held_out.empty() ? "" : fmt::format(", or do not hold out '{}'", rule.held_out)));
  }
  if (rule.samples_per_parameter && rule.tokens_per_parameter)
    out.push_back(fmt::format("{}samples_per_parameter and tokens_per_parameter are two budgets; name one",
                              place(rule.where)));
  return out;
}

std::vector<std::string> problems_of(const LadderRule& rule, const std::vector<double>& sizes) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (sizes[i] != sizes[j]) continue;
      out.push_back(
          fmt::format("{}points '{}' and '{}' have the same size, {:.10g}{}; a ladder needs different sizes: "
                      "change `set`, "
                      "or write size = ... where parameters do not tell",
                      place(rule.points[i].where), rule.points[j].name, rule.points[i].name, sizes[i],
                      rule.points[i].size ? "" : " parameters"));
    }
  }
  return out;
}

LadderFit::LadderFit(std::vector<LadderEffect> effects) : effects_(std::move(effects)) {
  double sum_x = 0, sum_y = 0;
  const auto weight_of = [](const LadderEffect& e) { return 1 / (e.effect.se * e.effect.se); };
  for (const LadderEffect& e : effects_) {
    weight_ += weight_of(e);
    sum_x += weight_of(e) * std::log2(e.size);
    sum_y += weight_of(e) * e.effect.mean;
  }
  centre_ = sum_x / weight_;
  level_ = sum_y / weight_;
  double product = 0;
  for (const LadderEffect& e : effects_) {
    const double u = position(e.size);
    moment_ += weight_of(e) * u * u;
    product += weight_of(e) * u * e.effect.mean;
  }
  slope_ = product / moment_;
  double lack = 0;
  for (const LadderEffect& e : effects_) {
    const double w = weight_of(e), u = position(e.size), nu = static_cast<double>(e.effect.n) - 1;
    const double leverage = w * (1 / weight_ + u * u / moment_);
    // 2 Phi Lambda Phi with Lambda = sum of 2 / nu w (1 - h) x x'.
    const double share = 4 / nu * w * (1 - leverage);
    level_more_ += share / (weight_ * weight_);
    both_more_ += share * u / (weight_ * moment_);
    slope_more_ += share * u * u / (moment_ * moment_);
    const double residual = e.effect.mean - at(e.size);
    chi_square_ += w * residual * residual;
    lack += (1 - leverage) * (1 - leverage) / nu;
  }
  const double r = static_cast<double>(degrees());
  const double scale = r + 2 * lack - 6 * lack / (r + 2);
  p_ = upper_tail_f(chi_square_ / scale, r, r * (r + 2) / (3 * lack));
}

double LadderFit::position(double size) const {
  return std::log2(size) - centre_;
}

double LadderFit::at(double size) const {
  return level_ + slope_ * position(size);
}

double LadderFit::crossing() const {
  return std::exp2(centre_ - level_ / slope_);
}

LadderFit::Variance LadderFit::variance(double a, double b, const MeanEstimate* more) const {
  // Each effect has a part of the variance, which is known as well as its own is.
  double sum = 0, doubt = 0;
  const auto add = [&](double part, std::size_t pairs) {
    sum += part;
    doubt += part * part / (static_cast<double>(pairs) - 1);
  };
  for (const LadderEffect& e : effects_) {
    const double share = a / weight_ + b * position(e.size) / moment_;  // of a + b u in the effect, by its w
    add(share * share / (e.effect.se * e.effect.se), e.effect.n);
  }
  if (more != nullptr) add(more->se * more->se, more->n);
  return {sum + a * a * level_more_ + 2 * a * b * both_more_ + b * b * slope_more_, sum * sum / doubt};
}

namespace {

Interval around(double centre, double variance, double degrees, double alpha) {
  const double half = upper_quantile(alpha / 2, degrees) * std::sqrt(variance);
  return {centre - half, centre + half};
}

}  // namespace

Interval LadderFit::slope_interval(double alpha) const {
  const Variance v = variance(0, 1, nullptr);
  return around(slope_, v.value, v.degrees, alpha);
}

Interval LadderFit::interval(double size, double alpha) const {
  const Variance v = variance(1, position(size), nullptr);
  return around(at(size), v.value, v.degrees, alpha);
}

Interval LadderFit::prediction(const LadderEffect& measured, double alpha) const {
  const Variance v = variance(1, position(measured.size), &measured.effect);
  return around(at(measured.size), v.value, v.degrees, alpha);
}

const char* trend_name(Trend trend) {
  static constexpr const char* kNames[] = {"no trend", "shrinks", "grows", "turns", "not a line"};
  return kNames[static_cast<int>(trend)];
}

namespace {

Trend trend_of(const LadderFit& fit, double alpha) {
  if (fit.p() <= alpha) return Trend::kNotALine;
  const Interval slope = fit.slope_interval(alpha);
  if (slope.low <= 0 && slope.high >= 0) return Trend::kNone;
  const auto by_size = [](const LadderEffect& a, const LadderEffect& b) { return a.size < b.size; };
  const std::vector<LadderEffect>& effects = fit.effects();
  const double least = fit.at(std::min_element(effects.begin(), effects.end(), by_size)->size);
  const double greatest = fit.at(std::max_element(effects.begin(), effects.end(), by_size)->size);
  if (least * greatest < 0) return Trend::kTurns;
  return std::abs(greatest) < std::abs(least) ? Trend::kShrinks : Trend::kGrows;
}

}  // namespace

LadderLine fit_line(const std::string& arm, const std::vector<LadderEffect>& effects,
                    const std::optional<LadderEffect>& held_out, double alpha) {
  LadderLine out;
  out.arm = arm;
  for (const LadderEffect& e : effects) {
    if (e.effect.n >= kLeastLadderPairs && e.effect.se > 0) continue;
    out.refusals.push_back(fmt::format(
        "arm '{}', size {:.10g}: {} pairs with a standard error of {:.4g} give the effect no weight; a fit "
        "needs at least {} pairs whose differences are not all the same",
        arm, e.size, e.effect.n, e.effect.se, kLeastLadderPairs));
  }
  if (effects.size() < kLeastLadderPoints) {
    out.refusals.push_back(fmt::format("arm '{}': {} points were measured, and a fit needs at least {}", arm,
                                       effects.size(), kLeastLadderPoints));
  }
  if (!out.refusals.empty()) return out;
  out.fit.emplace(effects);
  out.trend = trend_of(*out.fit, alpha);
  if (out.trend == Trend::kNotALine) return out;
  if (held_out) {
    const Interval interval = out.fit->prediction(*held_out, alpha);
    out.held_out = LadderPrediction{held_out->size, out.fit->at(held_out->size), interval};
    out.within = interval.low <= held_out->effect.mean && held_out->effect.mean <= interval.high;
    return out;
  }
  double greatest = 0;
  for (const LadderEffect& e : effects) greatest = std::max(greatest, e.size);
  for (const double times : {2.0, 10.0}) {
    const double size = times * greatest;
    out.beyond.push_back({size, out.fit->at(size), out.fit->interval(size, alpha)});
  }
  return out;
}

}  // namespace tenon::ab
