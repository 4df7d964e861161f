// A study of scaling as text and drawing: parts of table.md and table.json, the figure, the last words of the
// command. Every number comes from scaling.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// Tables with an arm per row and a number of trainers per column, and how to read them.
std::string scaling_tables(const StudyResult& result);
/// Everything about every arm at every point.
std::string scaling_points_table(const StudyResult& result);
/// Member "scaling": an object per arm, with its points.
void scaling_json(JsonWriter& json, const StudyResult& result);
/// Examples per second, loss and sync gap against trainers, one panel each.
std::string scaling_figure(const StudyResult& result);
std::string scaling_size_text(const StudyFile& study, const Size& size);
/// An arm per line with its rates, for the terminal.
std::string scaling_text(const StudyResult& result);

}  // namespace tenon::reproduce
