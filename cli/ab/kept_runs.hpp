// Runs of an earlier start that a study with a fixed number of pairs may use: those that completed, of arms
// whose configuration is what it was. DIR/kept.json has the digest of each arm's configuration.
#pragma once

#include "ab/runner.hpp"

#include <vector>

namespace tenon::ab {

/// The planned jobs whose runs are not there. Runs of arms that were edited since go to DIR/earlier first;
/// `options.progress` is told.
std::vector<Job> missing_jobs(const Experiment& experiment, const RunnerOptions& options);

}  // namespace tenon::ab
