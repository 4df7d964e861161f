// A study of simulations as text and drawing; every number comes from map_results.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// Rates and efficiencies with an arm per row and a number of workers per column, and how to read them.
std::string map_tables(const StudyResult& result);
/// Everything about every arm by every number of workers.
std::string map_points_table(const StudyResult& result);
/// Member "map": an object per arm and number of workers.
void map_json(JsonWriter& json, const StudyResult& result);
/// Tasks per second and efficiency against workers.
std::string map_figure(const StudyResult& result);
/// An arm per line, for the terminal.
std::string map_text(const StudyResult& result);
/// "5 arms x 2 numbers of workers x 3 seeds x 100 tasks".
std::string map_size_text(const StudyFile& study, const Size& size);

}  // namespace tenon::reproduce
