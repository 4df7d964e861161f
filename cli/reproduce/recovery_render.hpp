// A study of recovery, printed: its parts of table.md and table.json, the figure, the last words of the
// command. Every number comes from recovery_results.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// Costs of failures and saves, schedules without training, differences of arms.
std::string recovery_tables(const StudyResult& result);
/// Member "recovery".
void recovery_json(JsonWriter& json, const StudyResult& result);
/// An arm per bar: hours charged for saves, loads, restarts and repeated work.
std::string recovery_figure(const StudyResult& result, double width, double& height);
/// For a study with lines: the loss in the metric over the portion of lost samples. The whole file.
std::string recovery_lines_figure(const StudyResult& result);
/// An arm per line, for the terminal.
std::string recovery_text(const StudyResult& result);

}  // namespace tenon::reproduce
