// The choice of tuning.hpp.
#include "ab/tuning.hpp"

#include "ab/run_record.hpp"

#include <boost/math/distributions/chi_squared.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tenon::ab {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

std::vector<std::size_t> usable_trials(const Basin& basin) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < basin.trials.size(); ++i) {
    if (basin.trials[i].usable()) out.push_back(i);
  }
  return out;
}

/// Usable trials whose mean is not worse than the median: what a worse one adds says little about the best.
std::vector<std::size_t> better_half(const Basin& basin, double sign) {
  std::vector<std::size_t> out = usable_trials(basin);
  std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) {
    return sign * basin.trials[a].mean < sign * basin.trials[b].mean;
  });
  out.resize((out.size() + 1) / 2);
  return out;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void set_means(Basin& basin) {
  for (Trial& trial : basin.trials) {
    trial.mean = trial.smoothed = kMissing;
    trial.interval = {kMissing, kMissing};
    if (trial.usable()) trial.mean = trial.smoothed = mean_of(trial.values);
  }
}

/// Deviation of a value within a trial, pooled over trials, with its degrees of freedom.
void set_intervals(Basin& basin, const std::vector<std::size_t>& half, double alpha) {
  double squares = 0, freedom = 0;
  for (const std::size_t i : half) {
    const Trial& trial = basin.trials[i];
    for (const double v : trial.values) squares += (v - trial.mean) * (v - trial.mean);
    freedom += static_cast<double>(trial.values.size() - 1);
  }
  if (!(freedom > 0)) return;
  for (Trial& trial : basin.trials) {
    if (!trial.usable()) continue;
    const double se = std::sqrt(squares / freedom / static_cast<double>(trial.values.size()));
    const double width = upper_quantile(alpha / 2, freedom) * se;
    trial.interval = {trial.mean - width, trial.mean + width};
  }
}

/// A seed moves all trials of an arm alike; what is left after that is what a comparison of trials feels.
/// Medians over trials, because a setting near a cliff spreads more than all others together.
double noise_between_trials(const Basin& basin, const std::vector<std::size_t>& half) {
  if (half.size() < 2) return 0;
  const std::size_t seeds = basin.trials[half.front()].values.size();
  if (seeds < 2) return 0;
  std::vector<double> of_seed(seeds, 0), column(half.size(), 0), variance(half.size(), 0);
  for (std::size_t s = 0; s < seeds; ++s) {
    for (std::size_t i = 0; i < half.size(); ++i)
      column[i] = basin.trials[half[i]].values[s] - basin.trials[half[i]].mean;
    of_seed[s] = median(column);
  }
  const double freedom = static_cast<double>(seeds - 1);
  for (std::size_t i = 0; i < half.size(); ++i) {
    for (std::size_t s = 0; s < seeds; ++s) {
      const double rest = basin.trials[half[i]].values[s] - basin.trials[half[i]].mean - of_seed[s];
      variance[i] += rest * rest / freedom;
    }
  }
  const double of_normal = boost::math::median(boost::math::chi_squared(freedom)) / freedom;
  return std::sqrt(median(variance) / of_normal / static_cast<double>(seeds));
}

/// Keys of the arm whose positions are distances, and those whose are not.
struct Axes {
  std::vector<std::size_t> numeric, named;
};

Axes axes_of(const TuneRule& rule, const std::string& arm) {
  Axes out;
  for (std::size_t k = 0; k < rule.keys.size(); ++k) {
    if (rule.keys[k].belongs_to(arm)) (rule.keys[k].choices.empty() ? out.numeric : out.named).push_back(k);
  }
  return out;
}

/// Solves the symmetric system by elimination with pivots; false if it is singular.
bool solve(std::vector<std::vector<double>>& m, std::vector<double>& rhs) {
  const std::size_t n = rhs.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c + 1; r < n; ++r) {
      if (std::abs(m[r][c]) > std::abs(m[pivot][c])) pivot = r;
    }
    if (std::abs(m[pivot][c]) < 1e-9) return false;
    std::swap(m[c], m[pivot]);
    std::swap(rhs[c], rhs[pivot]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double factor = m[r][c] / m[c][c];
      for (std::size_t k = c; k < n; ++k) m[r][k] -= factor * m[c][k];
      rhs[r] -= factor * rhs[c];
    }
  }
  for (std::size_t c = 0; c < n; ++c) rhs[c] /= m[c][c];
  return true;
}

/// 1, x, x^2 and products of two, of the offsets.
std::vector<double> quadratic_terms(const std::vector<double>& x) {
  std::vector<double> out{1};
  out.insert(out.end(), x.begin(), x.end());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = i; j < x.size(); ++j) out.push_back(x[i] * x[j]);
  }
  return out;
}

struct QuadraticFit {
  double at_origin = 0;
  double residual = 0;  ///< variance, by the degrees of freedom that are left
};

std::optional<QuadraticFit> fit(const std::vector<std::vector<double>>& offsets,
                                const std::vector<double>& y) {
  const std::size_t p = quadratic_terms(offsets.front()).size();
  if (offsets.size() < p + 1) return std::nullopt;
  std::vector<std::vector<double>> normal(p, std::vector<double>(p, 0));
  std::vector<double> coefficients(p, 0);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::vector<double> terms = quadratic_terms(offsets[i]);
    for (std::size_t a = 0; a < p; ++a) {
      for (std::size_t b = 0; b < p; ++b) normal[a][b] += terms[a] * terms[b];
      coefficients[a] += terms[a] * y[i];
    }
  }
  if (!solve(normal, coefficients)) return std::nullopt;
  QuadraticFit out{coefficients[0], 0};
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::vector<double> terms = quadratic_terms(offsets[i]);
    const double rest = y[i] - std::inner_product(terms.begin(), terms.end(), coefficients.begin(), 0.0);
    out.residual += rest * rest / static_cast<double>(offsets.size() - p);
  }
  return out;
}

double distance(const Trial& a, const Trial& b, const Axes& axes) {
  double out = 0;
  for (const std::size_t k : axes.numeric)
    out += (a.position[k] - b.position[k]) * (a.position[k] - b.position[k]);
  return std::sqrt(out);
}

/// The usable trials of equal choices that are nearest to `centre`, itself first.
std::vector<std::size_t> neighbours(const Basin& basin, std::size_t centre, const Axes& axes,
                                    std::size_t most) {
  std::vector<std::size_t> out;
  const Trial& here = basin.trials[centre];
  for (const std::size_t i : usable_trials(basin)) {
    const bool alike = std::all_of(axes.named.begin(), axes.named.end(), [&](std::size_t k) {
      return basin.trials[i].position[k] == here.position[k];
    });
    if (alike) out.push_back(i);
  }
  std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) {
    return distance(basin.trials[a], here, axes) < distance(basin.trials[b], here, axes);
  });
  out.resize(std::min(out.size(), most));
  return out;
}

double smoothed_mean(const Basin& basin, std::size_t centre, const Axes& axes) {
  const Trial& here = basin.trials[centre];
  const std::size_t d = axes.numeric.size();
  if (d == 0 || basin.noise == 0) return here.mean;
  const std::size_t coefficients = (d + 1) * (d + 2) / 2;
  const std::vector<std::size_t> near = neighbours(basin, centre, axes, 2 * coefficients - 1);
  const double reach = distance(basin.trials[near.back()], here, axes);
  if (reach == 0) return here.mean;
  std::vector<std::vector<double>> offsets;
  std::vector<double> y;
  for (const std::size_t i : near) {
    offsets.emplace_back();
    for (const std::size_t k : axes.numeric)
      offsets.back().push_back((basin.trials[i].position[k] - here.position[k]) / reach);
    y.push_back(basin.trials[i].mean);
  }
  const std::optional<QuadraticFit> curve = fit(offsets, y);
  if (!curve) return here.mean;
  const double noise = basin.noise * basin.noise;
  const double weight = curve->residual <= noise ? 1 : noise / curve->residual;
  return weight * curve->at_origin + (1 - weight) * here.mean;
}

void find_edges(Basin& basin, const TuneRule& rule) {
  const Trial& winner = basin.trials[*basin.chosen];
  for (std::size_t k = 0; k < rule.keys.size(); ++k) {
    const TunedKey& key = rule.keys[k];
    // Two numbers, or names, are a choice and no range.
    if (!key.belongs_to(basin.arm) || (!key.is_range() && key.values.size() < 3)) continue;
    double low = winner.position[k], high = low;
    for (const Trial& trial : basin.trials) {
      low = std::min(low, trial.position[k]);
      high = std::max(high, trial.position[k]);
    }
    const bool hard_low = key.hard == HardEnds::kLow || key.hard == HardEnds::kBoth;
    const bool hard_high = key.hard == HardEnds::kHigh || key.hard == HardEnds::kBoth;
    if (winner.position[k] <= low && !hard_low) basin.edges.push_back({k, false});
    if (winner.position[k] >= high && !hard_high) basin.edges.push_back({k, true});
  }
}

/// How to widen a key: for an even grid by two of its steps, which keeps all runs that are there.
std::string advice(const TuneRule& rule, const TuneEdge& edge) {
  const TunedKey& key = rule.keys[edge.key];
  if (!key.is_range()) return fmt::format("add {} numbers to values", edge.high ? "greater" : "smaller");
  const double steps = static_cast<double>(rule.trials - 1);
  const bool even = rule.keys.size() == 1 && !key.whole;
  const double reach = even ? 2 / steps : 0.5;
  const std::string end = key.setting(edge.high ? 1 + reach : -reach);
  const std::string change = fmt::format("{} = {}", edge.high ? "to" : "from", end);
  return even ? fmt::format("write {} and trials = {}, which keeps the runs that are there", change,
                            rule.trials + 2)
              : fmt::format("write e.g. {}", change);
}

}  // namespace

const Basin* Tuning::of(const std::string& arm) const {
  if (rule.arms == TuneArms::kShared) return basins.empty() ? nullptr : &basins.front();
  for (const Basin& basin : basins) {
    if (basin.arm == arm) return &basin;
  }
  return nullptr;
}

void choose(Basin& basin, const TuneRule& rule, bool lower_is_better, double alpha) {
  const double sign = lower_is_better ? 1 : -1;
  set_means(basin);
  const std::vector<std::size_t> half = better_half(basin, sign);
  set_intervals(basin, half, alpha);
  basin.noise = noise_between_trials(basin, half);
  const Axes axes = axes_of(rule, basin.arm);
  basin.chosen.reset();
  basin.edges.clear();
  for (const std::size_t i : usable_trials(basin)) {
    basin.trials[i].smoothed = smoothed_mean(basin, i, axes);
    if (!basin.chosen || sign * basin.trials[i].smoothed < sign * basin.trials[*basin.chosen].smoothed)
      basin.chosen = i;
  }
  if (basin.chosen) find_edges(basin, rule);
}

std::vector<std::string> settings(const TuneRule& rule, const std::string& arm,
                                  const std::vector<double>& position) {
  std::vector<std::string> out;
  for (std::size_t k = 0; k < rule.keys.size(); ++k) {
    const TunedKey& key = rule.keys[k];
    if (key.belongs_to(arm)) out.push_back(fmt::format("{}={}", key.name, key.setting(position[k])));
  }
  return out;
}

std::string settings_text(const TuneRule& rule, const std::string& arm, const std::vector<double>& position) {
  std::string out;
  for (std::string word : settings(rule, arm, position)) {
    word.replace(word.find('='), 1, " = ");
    out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

TuneCost& TuneCost::operator+=(const TuneCost& other) {
  runs += other.runs;
  ended_early += other.ended_early;
  steps += other.steps;
  samples += other.samples;
  tokens += other.tokens;
  bytes += other.bytes;
  seconds += other.seconds;
  return *this;
}

double TuneCost::consumed(Axis axis) const {
  const MetricPoint p{static_cast<std::int64_t>(steps), 0, seconds, samples, tokens, bytes};
  return p.at(axis);
}

std::vector<std::string> cost_refusals(const Tuning& tuning, Axis budget) {
  const auto difference = [&](const Basin& arm) -> std::string {
    const Basin& baseline = tuning.basins.front();
    for (std::size_t t = 0; t < arm.trials.size(); ++t) {
      for (std::size_t s = 0; s < arm.trials[t].costs.size(); ++s) {
        const TuneCost &a = baseline.trials[t].costs[s], &b = arm.trials[t].costs[s];
        if (a.runs == 0 || b.runs == 0 || a.ended_early > 0 || b.ended_early > 0) continue;
        for (const SharedAmount& shared : shared_amounts(budget)) {
          const double there = a.consumed(shared.axis), here = b.consumed(shared.axis);
          if (shared.equal(there, here)) continue;
          return fmt::format(
              "arm '{}', {}, seed {}: its tuning run used {:.0f} {}, that of '{}' {:.0f}, so the arms are "
              "not tuned at equal cost; give [tune] a budget that both share, such as samples",
              arm.arm, settings_text(tuning.rule, arm.arm, arm.trials[t].position), tuning.rule.seeds[s],
              here, axis_name(shared.axis), baseline.arm, there);
        }
      }
    }
    return "";
  };
  std::vector<std::string> out;
  for (std::size_t a = 1; a < tuning.basins.size(); ++a) {
    if (std::string found = difference(tuning.basins[a]); !found.empty()) out.push_back(std::move(found));
  }
  return out;
}

std::vector<std::string> edge_refusals(const Basin& basin, const TuneRule& rule) {
  std::vector<std::string> out;
  for (const TuneEdge& edge : basin.edges) {
    const TunedKey& key = rule.keys[edge.key];
    out.push_back(
        fmt::format("arm '{}': its best {} is {}, the {} that was tried, so a better one may lie beyond. "
                    "Widen the range: "
                    "{}; "
                    "or say hard_ends = \"{}\" if there is nothing beyond",
                    basin.arm, key.name, key.setting(basin.trials[*basin.chosen].position[edge.key]),
                    edge.high ? "greatest" : "least", advice(rule, edge), edge.high ? "high" : "low"));
  }
  return out;
}

}  // namespace tenon::ab
