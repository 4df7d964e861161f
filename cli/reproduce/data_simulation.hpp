// The data of a study: `tenon simulate` as a child process before the first run.
#pragma once

#include "ab/runner.hpp"
#include "reproduce/study_file.hpp"

#include <string>

namespace tenon::reproduce {

/// Whether the study simulates its data at this size.
bool simulates(const StudyFile& study, const Size& size);

/// The size as its runs are made: data.path is the simulation below `folder`, which is the study's as it was
/// given, so that a configuration names no folder of the machine unless the user did.
Size with_simulation(const StudyFile& study, const Size& size, const std::string& folder);

/// Makes or continues FOLDER/simulation and returns what the table says of it: "navier_stokes, 240 of 240
/// samples, ...". One that is complete is checked and kept. Throws Error(kRun) with the end of the child's
/// log when it fails or was interrupted; then the same command continues.
std::string simulate_data(const StudyFile& study, const Size& size, const std::string& folder,
                          const ab::RunnerOptions& runner);

}  // namespace tenon::reproduce
