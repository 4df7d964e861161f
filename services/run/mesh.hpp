// The communicators of one rank that do not depend on weights: along the axes of its model grid, over all of
// it, and between the replicas.
#pragma once

#include "loop/traced_communicator.hpp"
#include "run/world.hpp"

#include <tenon/device.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <span>
#include <vector>

namespace tenon::train {

class Mesh {
 public:
  /// `watch`: of communicators in which layers and optimizers wait.
  Mesh(World& world, int rank, Device& device, const CommunicatorWatch& watch);

  /// For layers.
  ModelGrid& grid() { return model_grid_; }
  std::span<const int> coordinates() const { return model_grid_.place().coordinates; }
  /// For norms and hashes; null when the grid has one rank.
  Communicator* all() const { return grid_.get(); }
  /// Between the replicas, for layers; null when there is one.
  Communicator* replicas() const { return lookups_.get(); }

 private:
  std::vector<std::unique_ptr<Communicator>> axes_;
  std::unique_ptr<Communicator> grid_, model_, lookups_;
  ModelGrid model_grid_;
};

}  // namespace tenon::train
