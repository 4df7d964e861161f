// The runs that only time: per link and arm the same parameters, messages, strategy and slots under the
// simulated clock, with a tiny batch and without evaluations. Their slots re-time the trajectories of the
// study's own runs.
#pragma once

#include "reproduce/plan.hpp"

namespace tenon::reproduce {

struct TimingPlan {
  std::string link;
  std::string folder;  ///< DIR/timing/<link>
  Plan plan;           ///< arms as in the study; runs of the seeds that are needed
};

/// One plan per link, none without links. Throws Error(kConfig) for arms that cannot run, for a run that
/// would not be under the simulated clock, and for one whose parameters differ from those of the study's run
/// of the arm.
std::vector<TimingPlan> make_timing_plans(const StudyFile& study, const Size& size, const Plan& runs,
                                          const ab::RunnerOptions& options, const Resolver& resolve);

/// Evaluations at slots without a training line cannot be distinguished from training: throws Error(kConfig)
/// that names the arm.
void require_lines_at_evaluations(const StudyFile& study, const Plan& runs);

/// The seed whose timing run is used for `seed`.
std::int64_t timing_seed(const StudyFile& study, const Size& size, const std::string& arm, std::int64_t seed);

}  // namespace tenon::reproduce
