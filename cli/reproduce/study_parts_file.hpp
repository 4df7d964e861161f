// The tables [simulate], [[evaluate]] and [[agree]] of a study file.
#pragma once

#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <string>

namespace tenon::reproduce {

/// Names of the tables, for the check of the file's keys.
std::vector<std::string> study_part_names();

/// Reads the tables that are present. `study` has its path and metric. Throws Error(kConfig) for an unknown
/// key, with the nearest one.
void read_study_parts(const Value& root, StudyFile& study);

/// Checks the tables against arms, sizes and one another. `say(key, problem)` is called once per problem,
/// with the place of the value as "evaluate[0].name".
void check_study_parts(const StudyFile& study,
                       const std::function<void(const std::string& key, const std::string& problem)>& say,
                       const std::function<void(const std::string& key, const std::string& arm)>& arm_named);

}  // namespace tenon::reproduce
