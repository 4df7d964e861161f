#include "run/mesh.hpp"

#include "loop/traced_communicator.hpp"
#include "loop/update.hpp"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <utility>

namespace tenon::train {

Mesh::Mesh(World& world, int rank, Device& device, const CommunicatorWatch& watch) {
  const auto& parallel = world.settings.parallel;
  const auto grid_size = static_cast<int>(parallel.ranks_per_replica());
  const int replica = rank / grid_size, place = rank % grid_size;
  const auto open = [&](const std::vector<int>& members, const std::string& name, Purpose purpose) {
    auto opened = world.links.transport->open(rank, {members, name, purpose, world.start.epoch});
    return traced(for_device(std::move(opened), *world.links.transport, device), watch, members, name);
  };
  if (grid_size > 1) {
    std::vector<int> members(static_cast<std::size_t>(grid_size));
    std::iota(members.begin(), members.end(), replica * grid_size);
    grid_ = open(members, "grid", Purpose::kStatistics);
    model_ = open(members, "model", Purpose::kModel);
  }
  std::vector<Communicator*> along_axes;
  for (std::size_t axis = 0; axis < parallel.grid.size(); ++axis) {
    axes_.push_back(nullptr);
    if (parallel.grid[axis] > 1) {
      std::vector<int> members, along = grid_coordinates(place, parallel.grid);
      for (int i = 0; i < parallel.grid[axis]; ++i) {
        along[axis] = i;
        members.push_back(replica * grid_size + grid_index(along, parallel.grid));
      }
      axes_.back() = open(members, fmt::format("axis{}", axis), Purpose::kModel);
    }
    along_axes.push_back(axes_.back().get());
  }
  model_grid_ = ModelGrid(parallel.grid, place, model_.get(), along_axes, replica);
  if (parallel.ranks == 1) return;
  std::vector<int> peers;
  for (int r = 0; r < parallel.ranks; ++r) peers.push_back(r * grid_size + place);
  const std::string name = fmt::format("lookups#{}", place);
  lookups_ =
      traced(for_device(world.links.transport->open(rank, {peers, name, Purpose::kModel, world.start.epoch}),
                        *world.links.transport, device),
             watch, peers, "lookups");
}

}  // namespace tenon::train
