// Tuning before the verdict: makes the runs of every arm's trials in DIR/tuning/<digest>/<seed>/<attempt> and
// reads them. The digest is that of the resolved configuration, so a range that is widened or an arm that is
// added repeats no run. DIR/tuning.json says which run belongs to which trial.
#pragma once

#include "ab/runner.hpp"
#include "ab/tuning.hpp"

#include <string>

namespace tenon::ab {

/// Makes the runs that are missing and chooses. Failed and diverged runs are trials that are not usable, not
/// exceptions. Throws Error(kConfig), before any run, for settings that an arm's configuration refuses.
Tuning tune(const Experiment& experiment, const RunnerOptions& options, RunnerResult& runs);

/// The same from DIR/tuning.json and the runs that it names, which are not made again. Throws Error(kRun) if
/// the file is damaged or absent.
Tuning stored_tuning(const Experiment& experiment, const std::string& folder);

/// The experiment whose arms have the settings that were chosen, without arms that were dropped; no longer to
/// be tuned.
Experiment tuned_experiment(const Experiment& experiment, const Tuning& tuning);

/// DIR/tuning.json, with all numbers of the choice.
std::string tuning_json(const Tuning& tuning);

}  // namespace tenon::ab
