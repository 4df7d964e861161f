// The tables [simulate], [[evaluate]] and [[agree]] of a study file.
#pragma once

#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <string>

namespace tenon::reproduce {

/// Names of the tables, for whoever checks the keys of the file.
std::vector<std::string> study_part_names();

/// Reads what is there of them. `study` has its path and metric. Throws Error(kConfig) for a key that is not
/// known, with the nearest one.
void read_study_parts(const Value& root, StudyFile& study);

/// What the tables say about arms, sizes and one another. `say(key, problem)` is called once per problem,
/// with the place of the value as "evaluate[0].name".
void check_study_parts(const StudyFile& study,
                       const std::function<void(const std::string& key, const std::string& problem)>& say,
                       const std::function<void(const std::string& key, const std::string& arm)>& arm_named);

}  // namespace tenon::reproduce
