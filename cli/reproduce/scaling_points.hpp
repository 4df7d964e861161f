// A study of scaling as runs: every arm at every number of trainers becomes an arm of its own, "easgd.5",
// whose steps divide the fixed number of samples among the trainers. The result is an ordinary study.
#pragma once

#include "reproduce/study_file.hpp"

#include <string>

namespace tenon::reproduce {

/// The study with an arm per arm and point. The arm `alone` has the point 1, and no other arm of the same
/// clock has it; an arm under the wall clock has the measured points. Studies without [scaling] are returned
/// unchanged. Throws Error(kConfig) naming the arm whose configuration has no data.batch, whose samples
/// cannot be divided among the trainers in whole batches, or whose clock is not the one that the study names.
StudyFile at_points(const StudyFile& study, const Size& size);

/// Number of arms that at_points makes, without reading any configuration.
std::size_t point_count(const StudyFile& study, const Size& size);

/// "easgd.5": the arm `name` at `trainers`.
std::string point_name(const std::string& name, std::int64_t trainers);

}  // namespace tenon::reproduce
