// The table [ladder] of an experiment, which asks whether an effect lasts: the sizes at which the experiment
// is made, and the line that is fitted to its effect against the logarithm of the size. Plain data and pure
// functions; ladder_stage.hpp makes and reads the studies of the points.
#pragma once

#include "ab/axis.hpp"
#include "ab/statistics.hpp"
#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::ab {

/// One size.
struct LadderPoint {
  std::string name;                   ///< names a folder
  std::vector<std::string> set = {};  ///< "a.b=c", for all arms; an arm's own `set` goes over it
  std::int64_t steps = 0;             ///< of every run; 0 = by the rule, or the experiment's budget
  std::optional<double> size = {};    ///< empty: the parameters of the baseline's model
  std::string where = {};             ///< file and line
};

struct LadderRule {
  std::vector<LadderPoint> points = {};
  std::string held_out = {};  ///< a point that is not fitted; "" = none
  /// Budget of a point without steps, in samples or tokens for each parameter of its model.
  std::optional<double> samples_per_parameter = {}, tokens_per_parameter = {};
  std::string where = {};

  /// Whether every point has a budget of its own, so that the experiment needs none.
  bool has_budgets() const;
  /// Whether the parameters of a point's model have to be counted.
  bool counts(const LadderPoint& point) const;
};

/// A line takes two; a third can contradict it.
inline constexpr std::size_t kLeastLadderPoints = 3;
/// Pairs of a point: the weight of its effect comes from their spread.
inline constexpr std::size_t kLeastLadderPairs = 3;

/// Reads the table. Throws Error(kConfig).
LadderRule read_ladder(const Value& table);
/// Its tables, for schemas.
std::vector<config::TableSpecs> ladder_tables();
/// One line per problem of the rule by itself, each with its place.
std::vector<std::string> problems_of(const LadderRule& rule);
/// The same for the sizes, which may have to be counted first; in the order of the points.
std::vector<std::string> problems_of(const LadderRule& rule, const std::vector<double>& sizes);

/// An effect as its study measured it.
struct LadderEffect {
  double size = 0;
  MeanEstimate effect;  ///< of the paired differences
};

/// A straight line through effects against the logarithm of the size, by least squares with the weights
/// 1 / se^2. The weights are estimates from few pairs. Its variances therefore have the correction of Kenward
/// and Roger (1997), its degrees of freedom are Satterthwaite's, and the test of the fit is that of Johansen
/// (1980), which for equal sizes is Welch's.
class LadderFit {
 public:
  /// At least kLeastLadderPoints effects of different sizes with se > 0.
  explicit LadderFit(std::vector<LadderEffect> effects);

  double at(double size) const;
  /// The size at which the line crosses zero; infinite or 0 where it is flat or far off.
  double crossing() const;
  /// Rise of the effect where the size doubles.
  double slope() const { return slope_; }
  Interval slope_interval(double alpha) const;

  /// Weighted sum of squared residuals, its degrees of freedom, and the probability of one as large if the
  /// effects are on a line.
  double chi_square() const { return chi_square_; }
  std::size_t degrees() const { return effects_.size() - 2; }
  double p() const { return p_; }

  /// Interval of the line.
  Interval interval(double size, double alpha) const;
  /// Interval for what a study of that size measures: `measured` gives its size, se and pairs.
  Interval prediction(const LadderEffect& measured, double alpha) const;

  const std::vector<LadderEffect>& effects() const { return effects_; }

 private:
  /// Variance of a + b u with its degrees of freedom, and of `more` added to it.
  struct Variance {
    double value = 0, degrees = 0;
  };
  Variance variance(double a, double b, const MeanEstimate* more) const;
  double position(double size) const;

  std::vector<LadderEffect> effects_;
  double centre_ = 0;  ///< weighted mean of log2(size): there, level and slope are independent
  double level_ = 0, slope_ = 0;
  double weight_ = 0, moment_ = 0;                          ///< sums of w and of w u^2
  double level_more_ = 0, both_more_ = 0, slope_more_ = 0;  ///< the correction's covariance
  double chi_square_ = 0, p_ = 1;
};

/// How an arm's effect goes with size.
enum class Trend { kNone, kShrinks, kGrows, kTurns, kNotALine };
/// "no trend", "shrinks", "grows", "turns", "not a line".
const char* trend_name(Trend trend);

struct LadderPrediction {
  double size = 0;
  double effect = 0;
  Interval interval;
};

/// One arm beside the baseline, over all sizes.
struct LadderLine {
  std::string arm;
  std::vector<std::string> refusals = {};  ///< why there is no fit
  std::optional<LadderFit> fit = {};
  Trend trend = Trend::kNone;
  std::optional<LadderPrediction> held_out =
      {};                                     ///< what the fit predicts there; empty if it does not describe
  std::optional<bool> within = {};            ///< whether the measured effect is in that interval
  std::vector<LadderPrediction> beyond = {};  ///< at 2 and 10 times the greatest size; without held_out
};

/// Fits a line; `held_out` is not among `effects`. A fit that its test rejects at alpha predicts nothing.
LadderLine fit_line(const std::string& arm, const std::vector<LadderEffect>& effects,
                    const std::optional<LadderEffect>& held_out, double alpha);

}  // namespace tenon::ab
