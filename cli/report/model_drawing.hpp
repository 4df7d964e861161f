// A drawing of a model's graph: boxes in layers from top to bottom, long graphs in columns. Consecutive
// blocks that differ only in a number of their names ("h.0", "h.1", ...) are drawn once, in a frame that says
// how many there are.
#pragma once

#include "report/model_graph.hpp"

#include <string>

namespace tenon::report {

/// A whole SVG element with its own style, for a file or a page.
std::string graph_svg(const ModelGraph& graph);

}  // namespace tenon::report
