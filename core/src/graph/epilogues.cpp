// A map is folded where this has no visible effect: the product has no other reader, and no backward reads
// the value between product and map, which is never stored.
#include "graph/epilogues.hpp"

#include "base/at.hpp"

namespace tenon::graph {
namespace {

GraphValue& value_at(Build& build, int index) {
  return base::at(build.values, index);
}

/// Position of a value among the outputs of its producer.
int output_of(const Node& producer, int value) {
  for (std::size_t i = 0; i < producer.outputs.size(); ++i) {
    if (producer.outputs[i] == value) return static_cast<int>(i);
  }
  return -1;
}

/// True if the elements of this output are those of one or several products that have no map yet.
bool is_product(const Node& node, int output) {
  bool found = false;
  for (const auto& site : node.sites) {
    if (site->declared.output != output) continue;
    if (site->declared.epilogue != Epilogue::kNone) return false;
    found = true;
  }
  return found;
}

bool can_fold(Build& build, const Node& map) {
  if (map.offered == Epilogue::kNone || map.inputs.size() != 1 || map.outputs.size() != 1) return false;
  const int index = map.inputs[0].value;
  const GraphValue& between = value_at(build, index);
  const GraphValue& result = value_at(build, map.outputs[0]);
  if (between.producer < 0 || between.readers.size() != 1) return false;
  if (!(between.spec.shape == result.spec.shape) || between.spec.dtype != result.spec.dtype) return false;
  if (map.runs_backward && map.keeps_input[0]) return false;
  const Node& producer = base::at(build.nodes, between.producer);
  const int output = output_of(producer, index);
  if (producer.runs_backward && base::at(producer.keeps_output, output)) return false;
  return is_product(producer, output);
}

}  // namespace

void fold_epilogues(Build& build) {
  for (Node& map : build.nodes) {
    if (!can_fold(build, map)) continue;
    GraphValue& between = value_at(build, map.inputs[0].value);
    Node& producer = base::at(build.nodes, between.producer);
    const int output = output_of(producer, map.inputs[0].value);
    for (auto& site : producer.sites) {
      if (site->declared.output == output) site->declared.epilogue = map.offered;
    }
    between.stored_as = map.outputs[0];
    map.folded_into = between.producer;
  }
}

}  // namespace tenon::graph
