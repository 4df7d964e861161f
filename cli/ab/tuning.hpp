// The record of tuning: the tries of every arm, the choice among them, and whether the range was wide enough.
// Pure functions of final values; tune_stage.hpp makes and reads the runs.
#pragma once

#include "ab/statistics.hpp"
#include "ab/tune_rule.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

/// What tuning runs consumed, together.
struct TuneCost {
  std::size_t runs = 0;
  std::size_t ended_early = 0;  ///< of them: diverged or failed, so they consumed less than the budget
  double steps = 0, samples = 0, tokens = 0, bytes = 0, seconds = 0;

  TuneCost& operator+=(const TuneCost& other);
  double consumed(Axis axis) const;
};

/// One setting of one arm, on all tuning seeds.
struct Trial {
  std::vector<double> position = {};      ///< by key of the rule
  std::vector<double> values = {};        ///< by seed; NaN where there is no finite value
  std::string failure = {};               ///< why a value is missing or not finite; the first such run
  std::vector<std::string> folders = {};  ///< by seed, below the study's folder
  std::vector<TuneCost> costs = {};       ///< by seed

  double mean = 0;         ///< over the seeds; NaN if a value is missing
  Interval interval = {};  ///< of the mean; the deviation is pooled over the better half of the arm's trials
  double smoothed = 0;     ///< the mean after smoothing; NaN if a value is missing

  bool usable() const { return failure.empty(); }
};

/// The chosen setting of a key is the least or greatest that was tried.
struct TuneEdge {
  std::size_t key = 0;
  bool high = false;
};

/// The tries of one arm.
struct Basin {
  std::string arm;
  std::vector<Trial> trials = {};          ///< in the order of tune_points
  std::optional<std::size_t> chosen = {};  ///< empty: no trial is usable
  std::vector<TuneEdge> edges = {};
  double noise = 0;  ///< standard error of a trial's mean beside another's: what the seeds share left out
  TuneCost cost;
};

struct Tuning {
  TuneRule rule;
  std::vector<Basin> basins = {};  ///< of every arm, or of the baseline alone
  /// Why there is no verdict: runs that are missing, an arm without a usable trial, a winner at the edge.
  std::vector<std::string> refusals = {};
  std::vector<std::string> dropped = {};  ///< arms that left, each with the reason after ": "

  const Basin* of(const std::string& arm) const;  ///< that decides for the arm
};

/// Fills means, intervals, smoothed values, noise, choice and edges of a basin whose trials have positions
/// and values.
///
/// Smoothing: a quadratic in the positions of the numeric keys is fitted to the 2p - 1 nearest usable trials
/// of equal choices, p being its number of coefficients, and mixed with the trial's own mean: by a weight
/// of 1 where the noise between seeds explains the residuals, else of noise^2 / residual^2. A cliff is thus
/// left as it is. With fewer than p + 1 trials nothing is smoothed.
void choose(Basin& basin, const TuneRule& rule, bool lower_is_better, double alpha);

/// "optimizer.lr = 0.003, optimizer.beta1 = 0.9": a trial's settings of the keys that the arm has.
std::string settings_text(const TuneRule& rule, const std::string& arm, const std::vector<double>& position);
/// The same as words of `--set`.
std::vector<std::string> settings(const TuneRule& rule, const std::string& arm,
                                  const std::vector<double>& position);

/// One sentence per arm whose runs did not consume the shared amounts of the budget that the baseline's of
/// the same setting and seed did. Runs that ended early are left out.
std::vector<std::string> cost_refusals(const Tuning& tuning, Axis budget);

/// One sentence: which setting is at the edge of which key, and how to widen it. Empty without edges.
std::vector<std::string> edge_refusals(const Basin& basin, const TuneRule& rule);

}  // namespace tenon::ab
