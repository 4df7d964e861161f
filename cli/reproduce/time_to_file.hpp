// The tables [time_to] and [[time_to.link]] of a study file.
#pragma once

#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <string>

namespace tenon::reproduce {

/// Reads the table. Throws Error(kConfig) for an unknown key, with the nearest one.
TimeTo read_time_to(const Value& table);

/// Checks the arms and links of the table. `say(key, problem)` is called once per problem, with the place of
/// the value as "time_to.link[0].set".
void check_time_to(const StudyFile& study,
                   const std::function<void(const std::string& key, const std::string& problem)>& say,
                   const std::function<void(const std::string& key, const std::string& arm)>& arm_named);

}  // namespace tenon::reproduce
