// The data of a study: `tenon simulate` as a child process before the first run.
#pragma once

#include "ab/runner.hpp"
#include "reproduce/study_file.hpp"

#include <string>

namespace tenon::reproduce {

/// Whether the study simulates its data at this size.
bool simulates(const StudyFile& study, const Size& size);

/// The size with which its runs are made: data.path is the simulation below `folder`, the study's folder as
/// given, so that a configuration names no folder of the machine unless the user did.
Size with_simulation(const StudyFile& study, const Size& size, const std::string& folder);

/// Makes or continues FOLDER/simulation and returns its description for the table: "navier_stokes, 240 of 240
/// samples, ...". A complete one is checked and kept. Throws Error(kRun) with the end of the child's log if
/// it fails or was interrupted; then the same command continues.
std::string simulate_data(const StudyFile& study, const Size& size, const std::string& folder,
                          const ab::RunnerOptions& runner);

}  // namespace tenon::reproduce
