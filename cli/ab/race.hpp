// The race of a sequential study: a block of pairs, a look, and on with the arms that no look has judged. It
// starts no run that a look could make unnecessary.
#pragma once

#include "ab/look_record.hpp"
#include "ab/runner.hpp"
#include "ab/study.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tenon::ab {

struct RaceOptions {
  RunnerOptions runner;  ///< its program is "" where no run may be made: the last look then stands
  int jobs = 1;
  bool self_check = false;
  /// Makes the runs that the next look needs and that are not there. False ends the race.
  std::function<bool(std::vector<Job> jobs)> make = {};
  /// A line after each look.
  std::function<void(const std::string& line)> looked = {};
};

struct Race {
  Study study;        ///< pairs of the last look, or of the block that ended it
  bool over = false;  ///< the rule has stopped it, or its runs may not be compared
};

/// Runs the race from the start; runs that are there and completed are used as they are. Throws Error(kRun)
/// if a run that `record` names is gone or changed.
Race run_race(const Experiment& experiment, LookRecord& record, const RaceOptions& options);

}  // namespace tenon::ab
