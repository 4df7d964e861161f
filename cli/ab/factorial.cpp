// Contrasts, adjustment and sentences of factorial.hpp.
#include "ab/factorial.hpp"

#include "ab/format.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

std::vector<double> minus(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out;
  for (std::size_t s = 0; s < a.size(); ++s) out.push_back(a[s] - b[s]);
  return out;
}

/// Cell 0 with one factor at another level.
std::size_t changed_cell(std::span<const Factor> factors, std::size_t factor, std::size_t level) {
  std::vector<std::size_t> levels(factors.size(), 0);
  levels[factor] = level;
  return cell_of_levels(factors, levels);
}

/// Whether the level did nothing: every cell with it is, by its weights, the cell with the first level.
bool without_effect(std::span<const Factor> factors, std::size_t factor, std::size_t level,
                    const std::function<bool(std::size_t, std::size_t)>& same_weights) {
  for (std::size_t cell = 0; cell < cell_count(factors); ++cell) {
    std::vector<std::size_t> levels = levels_of_cell(factors, cell);
    if (levels[factor] != level) continue;
    levels[factor] = 0;
    if (!same_weights(cell_of_levels(factors, levels), cell)) return false;
  }
  return true;
}

/// The contrasts as a family.
void adjust_together(const Experiment& e, const std::vector<Comparison*>& family) {
  std::vector<double> p, equivalence;
  for (const Comparison* c : family) {
    p.push_back(deciding_p(e, c->primary));
    equivalence.push_back(c->equivalence ? c->equivalence->p : 1.0);
  }
  p = holm_adjust(p);
  equivalence = holm_adjust(equivalence);
  for (std::size_t i = 0; i < family.size(); ++i) {
    family[i]->primary.adjusted_p = p[i];
    family[i]->adjusted_equivalence_p = equivalence[i];
  }
}

InteractionReading reading_of(const Experiment& e, const Comparison& c) {
  if (c.equivalence && c.adjusted_equivalence_p <= e.alpha) return InteractionReading::kWithinMargin;
  const bool present = c.primary.differences.size() >= 2 && c.primary.adjusted_p <= e.alpha;
  return present ? InteractionReading::kPresent : InteractionReading::kNoneShown;
}

int decimals_of(const Comparison& c) {
  return metric_decimals(c.primary.difference, c.primary.baseline_mean.mean);
}

std::string percent_of(double share) {
  return fmt::format("{:.4g}%", 100 * share);
}

/// "+0.012 (95% interval +0.003 to +0.021)"; without the interval where there is none.
std::string effect_with_interval(const MeanEstimate& m, int decimals, double alpha) {
  if (!std::isfinite(m.interval.low)) return fixed_signed(m.mean, decimals);
  return fmt::format("{} ({} interval {} to {})", fixed_signed(m.mean, decimals), coverage_text(alpha),
                     fixed_signed(m.interval.low, decimals), fixed_signed(m.interval.high, decimals));
}

bool holds_zero(const MeanEstimate& m) {
  return !(m.interval.low > 0 || m.interval.high < 0);
}

std::string one_at_a_time_sentence(const Experiment& e, const MainEffect& effect) {
  const int decimals = decimals_of(effect.contrast);
  const std::string alone =
      fmt::format("with every other factor at its first level the effect is {}, which reads {}",
                  effect_with_interval(effect.one_at_a_time.primary.difference, decimals, e.alpha),
                  outcome_name(effect.one_at_a_time.verdict.outcome));
  const std::string gap = effect_with_interval(effect.gap, decimals, e.alpha);
  if (!effect.misleads) {
    std::string out = fmt::format("One factor at a time does not mislead here: {}, too.", alone);
    if (effect.gap.n >= 2 && !holds_zero(effect.gap))
      out += fmt::format(" Its size is another: it differs from the main effect by {}.", gap);
    return out;
  }
  return fmt::format(
      "One factor at a time misleads here: {}; over all levels of the others the verdict is {}. "
      "The two effects differ by {}{}.",
      alone, outcome_name(effect.contrast.verdict.outcome), gap,
      effect.gap.n < 2         ? ""
      : holds_zero(effect.gap) ? ": noise between seeds can explain that, and fewer runs see less"
                               : ": the effect itself depends on the other factors");
}

std::string interaction_sentence(const Experiment& e, const Interaction& i) {
  const PairedMetric& m = i.contrast.primary;
  const int decimals = decimals_of(i.contrast);
  const std::string one = level_text(e.factors[i.first], i.first_level);
  return fmt::format("{}: {}. The effect of {} is {} at {} and {} at {}, a change of {}, {}.",
                     interaction_text(e.factors, i), reading_name(i.reading), one,
                     fixed_signed(m.baseline_mean.mean, decimals), level_text(e.factors[i.second], 0),
                     fixed_signed(m.other_mean.mean, decimals),
                     level_text(e.factors[i.second], i.second_level),
                     effect_with_interval(m.difference, decimals, e.alpha), p_text(m.adjusted_p));
}

/// What the average over the levels of another factor hides, for both factors of an interaction.
void add_cautions(const Experiment& e, FactorialResult& result) {
  const auto effect_at = [&](std::size_t factor, std::size_t level, std::size_t other, std::size_t at) {
    return mean_with_interval(minus(margin_of(e.factors, result.values, {{factor, level}, {other, at}}),
                                    margin_of(e.factors, result.values, {{factor, 0}, {other, at}})),
                              e.alpha)
        .mean;
  };
  for (MainEffect& effect : result.main) {
    for (const Interaction& i : result.interactions) {
      const bool is_first = i.first == effect.factor && i.first_level == effect.level;
      const bool is_second = i.second == effect.factor && i.second_level == effect.level;
      if (i.reading != InteractionReading::kPresent || (!is_first && !is_second)) continue;
      const std::size_t other = is_first ? i.second : i.first, at = is_first ? i.second_level : i.first_level;
      const int decimals = decimals_of(effect.contrast);
      effect.caution +=
          fmt::format("{}The average hides an interaction: the effect is {} at {} and {} at {}.",
                      effect.caution.empty() ? "" : " ",
                      fixed_signed(effect_at(effect.factor, effect.level, other, 0), decimals),
                      level_text(e.factors[other], 0),
                      fixed_signed(effect_at(effect.factor, effect.level, other, at), decimals),
                      level_text(e.factors[other], at));
    }
  }
}

/// The verdict on the study: what is shown, and the cautions that hold for all effects.
Verdict overall(const Experiment& e, const FactorialResult& result) {
  Verdict out;
  std::vector<Outcome> outcomes;
  std::vector<std::string> misleading;
  std::size_t shown = 0, equivalent = 0, present = 0, within = 0;
  for (const MainEffect& effect : result.main) {
    const Outcome outcome = effect.contrast.verdict.outcome;
    outcomes.push_back(outcome);
    shown += outcome == Outcome::kBetter || outcome == Outcome::kWorse;
    equivalent += outcome == Outcome::kEquivalent;
    if (effect.misleads) misleading.push_back(level_text(e.factors[effect.factor], effect.level));
  }
  for (const Interaction& i : result.interactions) {
    present += i.reading == InteractionReading::kPresent;
    within += i.reading == InteractionReading::kWithinMargin;
  }
  out.outcome = by_interest(outcomes);
  const std::size_t seeds = result.values.front().size();
  out.headline = fmt::format(
      "{} of {} main effects and {} of {} interactions on {} are shown, with {} cells and {} seed{}{}.",
      shown, result.main.size(), present, result.interactions.size(), e.metric, result.values.size(), seeds,
      seeds == 1 ? "" : "s",
      e.margin
          ? fmt::format("; {} and {} are within the margin of {}", equivalent, within, compact(*e.margin))
          : "");
  out.sentences.push_back(
      fmt::format("The p-values of all {} contrasts are adjusted together (Holm): the chance that any "
                  "contrast without an effect is shown is at most {}.",
                  result.contrasts(), percent_of(e.alpha)));
  const double least = smallest_sign_flip_p(seeds) * static_cast<double>(result.contrasts());
  if (e.test == DecidingTest::kSignFlip && least > e.alpha) {
    out.sentences.push_back(fmt::format(
        "With {} seeds and {} contrasts the exact test cannot fall below {}, so it can show none; take "
        "more seeds, or test = \"t\".",
        seeds, result.contrasts(), p_text(std::min(1.0, least))));
  }
  if (misleading.empty()) {
    out.sentences.push_back("One factor at a time would have led to the same verdicts.");
  } else {
    out.sentences.push_back(
        fmt::format("One factor at a time would have misled on {} of {} main effects: {}.", misleading.size(),
                    result.main.size(), fmt::join(misleading, ", ")));
  }
  if (e.factors.size() > 2) {
    out.sentences.push_back(
        "Interactions of three or more factors are not tested; main effects and interactions are averages "
        "over "
        "the remaining factors.");
  }
  return out;
}

void add_main_effects(const Experiment& e, FactorialResult& result, double detectable_sd,
                      const std::function<bool(std::size_t, std::size_t)>& same_weights) {
  for (std::size_t f = 0; f < e.factors.size(); ++f) {
    for (std::size_t l = 1; l < e.factors[f].levels.size(); ++l) {
      MainEffect effect;
      effect.factor = f;
      effect.level = l;
      effect.contrast = compare_values(e, margin_of(e.factors, result.values, {{f, 0}}),
                                       margin_of(e.factors, result.values, {{f, l}}), detectable_sd);
      effect.contrast.same_weights = without_effect(e.factors, f, l, same_weights);
      const std::size_t cell = changed_cell(e.factors, f, l);
      effect.one_at_a_time = compare_values(e, result.values[0], result.values[cell], detectable_sd);
      effect.one_at_a_time.same_weights = same_weights(0, cell);
      effect.gap = mean_with_interval(
          minus(effect.one_at_a_time.primary.differences, effect.contrast.primary.differences), e.alpha);
      result.main.push_back(std::move(effect));
    }
  }
}

void add_interactions(const Experiment& e, FactorialResult& result, double detectable_sd) {
  for (std::size_t f = 0; f < e.factors.size(); ++f) {
    for (std::size_t g = f + 1; g < e.factors.size(); ++g) {
      for (std::size_t l = 1; l < e.factors[f].levels.size(); ++l) {
        for (std::size_t m = 1; m < e.factors[g].levels.size(); ++m) {
          const auto effect_at = [&](std::size_t level) {
            return minus(margin_of(e.factors, result.values, {{f, l}, {g, level}}),
                         margin_of(e.factors, result.values, {{f, 0}, {g, level}}));
          };
          Interaction interaction{f, l, g, m, {}, InteractionReading::kNoneShown, ""};
          interaction.contrast = compare_values(e, effect_at(0), effect_at(m), detectable_sd);
          result.interactions.push_back(std::move(interaction));
        }
      }
    }
  }
}

}  // namespace

const char* reading_name(InteractionReading reading) {
  switch (reading) {
    case InteractionReading::kPresent:
      return "present";
    case InteractionReading::kWithinMargin:
      return "within the margin";
    case InteractionReading::kNoneShown:
      return "none shown";
  }
  return "none shown";
}

std::string level_text(const Factor& factor, std::size_t level) {
  return factor.name + "=" + factor.levels[level].name;
}

std::string interaction_text(std::span<const Factor> factors, const Interaction& i) {
  return level_text(factors[i.first], i.first_level) + " \u00d7 " +
         level_text(factors[i.second], i.second_level);
}

std::vector<double> margin_of(std::span<const Factor> factors, const CellValues& values, const Held& held) {
  std::vector<double> sums(values.front().size(), 0.0);
  std::size_t cells = 0;
  for (std::size_t cell = 0; cell < values.size(); ++cell) {
    const std::vector<std::size_t> levels = levels_of_cell(factors, cell);
    if (!std::all_of(held.begin(), held.end(), [&](const auto& h) { return levels[h.first] == h.second; }))
      continue;
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] += values[cell][s];
    ++cells;
  }
  for (double& sum : sums) sum /= static_cast<double>(cells);
  return sums;
}

FactorialResult effects_of(const Experiment& e, CellValues values,
                           const std::function<bool(std::size_t, std::size_t)>& same_weights) {
  FactorialResult result;
  result.values = std::move(values);
  for (const std::vector<double>& cell : result.values)
    result.cells.push_back(mean_with_interval(cell, e.alpha));
  const double detectable_sd = minimum_detectable_effect(result.values.front().size(), e.power, e.alpha);
  add_main_effects(e, result, detectable_sd, same_weights);
  add_interactions(e, result, detectable_sd);

  std::vector<Comparison*> family, one_at_a_time;
  for (MainEffect& effect : result.main) {
    family.push_back(&effect.contrast);
    one_at_a_time.push_back(&effect.one_at_a_time);
  }
  for (Interaction& interaction : result.interactions) family.push_back(&interaction.contrast);
  adjust_together(e, family);
  adjust_together(e, one_at_a_time);

  for (MainEffect& effect : result.main) {
    const Factor& factor = e.factors[effect.factor];
    const std::string first = level_text(factor, 0), other = level_text(factor, effect.level);
    effect.contrast.verdict = decide(e, first, other, effect.contrast, "");
    effect.one_at_a_time.verdict = decide(e, first, other, effect.one_at_a_time, "");
    effect.misleads = effect.contrast.verdict.outcome != effect.one_at_a_time.verdict.outcome;
    effect.sentence = one_at_a_time_sentence(e, effect);
  }
  for (Interaction& interaction : result.interactions) {
    interaction.reading = reading_of(e, interaction.contrast);
    interaction.sentence = interaction_sentence(e, interaction);
  }
  add_cautions(e, result);
  result.verdict = overall(e, result);
  return result;
}

FactorialResult analyse_factors(const Study& study) {
  CellValues values;
  for (const ArmRuns& arm : study.arms) {
    values.emplace_back();
    for (const auto& run : arm.runs)
      values.back().push_back(run->final_value(study.experiment.metric).value());
  }
  const auto same_weights = [&](std::size_t a, std::size_t b) {
    for (std::size_t s = 0; s < study.arms[a].runs.size(); ++s) {
      const std::string& left = study.arms[a].runs[s]->weights_hash;
      if (left.empty() || left != study.arms[b].runs[s]->weights_hash) return false;
    }
    return true;
  };
  FactorialResult out = effects_of(study.experiment, std::move(values), same_weights);
  for (const LeftOutSeed& seed : study.left_out) {
    out.verdict.sentences.push_back(
        fmt::format("Seed {} is in no contrast: {}.", seed.seed, fmt::join(seed.why, "; ")));
  }
  if (!study.left_out.empty()) {
    out.verdict.sentences.push_back(
        "If a level made those runs fail, the effects leave that out and flatter the level.");
  }
  return out;
}

}  // namespace tenon::ab
