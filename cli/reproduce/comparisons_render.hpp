// Parts of table.md and table.json about the results of comparisons.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// Sections for trained weights on other data, verdicts and first losses; "" for each that is absent.
std::string comparisons_markdown(const StudyResult& result);
/// Lines for the last words of the command.
std::string comparisons_text(const StudyResult& result);
void comparisons_json(JsonWriter& json, const StudyResult& result);

}  // namespace tenon::reproduce
