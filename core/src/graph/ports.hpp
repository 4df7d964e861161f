// The inputs and outputs that a layer declares, against those of a node. Apart from the building of graphs,
// because it knows nothing of them.
#pragma once

#include <tenon/plugin_abi.h>
#include <tenon/layer.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace tenon::graph {

enum class PortSide : std::uint8_t { kInputs, kOutputs };

/// What is wrong with the `count` values of one side of a node; "" where they are as declared, or nothing is
/// declared. `ports`: as in tenon_component_v1. A dtype "activations" is that of the run's activations.
std::string ports_problem(const tenon_port_v1* const* ports, PortSide side, int count,
                          const std::function<ValueSpec(int)>& value, DType activations);

}  // namespace tenon::graph
