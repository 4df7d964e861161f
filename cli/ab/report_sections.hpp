// Sections of report.html that are mostly tables; each returns markup, or "" when it has nothing to say.
#pragma once

#include "ab/analysis.hpp"

#include <string>

namespace tenon::ab {

std::string target_section(const StudyResult& result);
std::string cost_section(const StudyResult& result);
std::string secondary_section(const StudyResult& result);
std::string self_check_section(const StudyResult& result);
std::string provenance_section(const StudyResult& result);
std::string reproduce_section(const StudyResult& result);

}  // namespace tenon::ab
