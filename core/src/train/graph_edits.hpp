// Edits of a model's graph in TOML: [[model.layer]] writes it out, [[model.override]] changes options of the
// nodes that a pattern matches, [[model.insert]] adds a node behind another, or
// behind a data field.
#pragma once

#include <tenon/config.hpp>
#include <tenon/model.hpp>

namespace tenon::train {

/// Applies `edits` (the tables layer, override and insert as written). Errors name file and line.
GraphSpec edit_graph(GraphSpec graph, const Value& edits);

}  // namespace tenon::train
