// Hash of a parameter set as logical, unsharded tensors: the same for every layout of the mesh.
#pragma once

#include <tenon/device.hpp>
#include <tenon/parameter.hpp>
#include <tenon/transport.hpp>

#include <string>
#include <vector>

namespace tenon::train {

/// The ranks over which a set is spread.
struct SetLayout {
  Communicator* mesh = nullptr;  ///< of the replica; null: one rank
  std::span<const int> extents = {};
  Communicator* replicas = nullptr;  ///< at this place of the mesh; null: one replica
  int replica = 0;
};

/// Digests for StateHasher::merge of replica 0's set, on the first rank of its mesh; "" on the others. Other
/// replicas only send the rows of tables that are sharded over them. Collective over both groups.
std::string logical_digests(const ParameterSet& set, Device& device, const SetLayout& layout);

}  // namespace tenon::train
