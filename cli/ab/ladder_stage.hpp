// The studies of a ladder: one for each point, in DIR/points/<name>, each complete by itself with its own
// reports. DIR/ladder.json has the sizes and budgets that were found before the first run.
#pragma once

#include "ab/experiment.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

struct StudyOptions;
struct StudyOutcome;

/// What a configuration's model and data give.
struct ModelSize {
  std::int64_t parameters = 0;  ///< that are trained, tied ones once
  std::int64_t samples_per_step = 0, tokens_per_step = 0;
};

/// A point as it is made.
struct PlannedPoint {
  LadderPoint point;
  double size = 0;
  std::int64_t parameters = 0;  ///< of the baseline's model; 0 = not counted
  Budget budget = {};           ///< of every run
};

/// What the study of a point says about an arm.
struct PointEffect {
  std::string arm;
  LadderEffect effect;
  Interval interval;
  std::string verdict;  ///< "better", "equivalent", ...
};

struct PointStudy {
  PlannedPoint plan;
  bool held_out = false;
  std::vector<PointEffect> effects = {};
  std::vector<std::string> refusals = {};  ///< why there are no effects
  std::size_t runs = 0;
  std::optional<double> seconds = {};  ///< of all runs; empty if they shared the machine
  double bytes = 0;                    ///< sent by all runs

  const PointEffect* of(const std::string& arm) const;  ///< null if the arm is not in the study
};

struct LadderResult {
  Experiment experiment;
  std::string folder;
  int jobs = 1;
  std::vector<PointStudy> points = {};
  std::vector<LadderLine> lines = {};  ///< of every arm after the baseline
  std::vector<std::string> refusals = {};
};

/// The experiment of one point: no ladder, its settings under those of the arms, its budget.
Experiment experiment_of_point(const Experiment& experiment, const PlannedPoint& planned);

/// Steps of a run that sees `each` samples or tokens for each parameter; at least 1.
std::int64_t steps_for(double each, std::int64_t parameters, std::int64_t per_step);

/// Makes the studies of all points, or what is missing of them, and fits. Finished runs are used as they are;
/// those of an arm that was edited are made anew. Called by run_study.
StudyOutcome run_ladder(const Experiment& experiment, const StudyOptions& options);
/// The same from a folder, without a run. Called by report_study.
StudyOutcome report_ladder(const Experiment& experiment, const std::string& folder, int jobs);

/// Fits the lines; fills `lines` and `refusals`.
void analyse_ladder(LadderResult& result);

/// The headline and the sentences of an arm.
struct LadderWords {
  std::string headline;
  std::vector<std::string> sentences;
};
LadderWords words_of(const LadderResult& result, const LadderLine& line);

/// DIR/report.json of a ladder; in one line and without the experiment as member of the verdict's line.
std::string ladder_json(const LadderResult& result, bool whole);
/// DIR/report.html.
std::string ladder_html(const LadderResult& result);
/// DIR/csv/ladder.csv, with an effect a line.
std::string ladder_csv(const LadderResult& result);
/// What the command prints, without the path of the report.
std::string ladder_text(const LadderResult& result);

}  // namespace tenon::ab
