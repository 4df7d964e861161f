// A study of slabs as text and drawing: parts of table.md and table.json, the figure, the last words of the
// command. Every number comes from slabs_results.hpp.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// Efficiency by link, what was measured, simulated and counted, and how to read it.
std::string slab_tables(const StudyResult& result);
/// Member "slabs": an object per arm, with its points.
void slab_json(JsonWriter& json, const StudyResult& result);
/// Efficiency against the logarithm of the ranks, a line per arm and link.
std::string slab_figure(const StudyResult& result);
/// An arm per line with its efficiencies, for the terminal.
std::string slab_text(const StudyResult& result);
/// "2 arms on up to 512 ranks x 1 seed x 8 updates".
std::string slab_size_text(const StudyFile& study, const Size& size);

}  // namespace tenon::reproduce
