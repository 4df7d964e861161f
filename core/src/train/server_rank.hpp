// A rank with the role `server`: it makes the sync component alone and lets it serve the trainers.
#pragma once

#include <string>
#include <string_view>

namespace tenon::train {

struct World;

/// Runs server rank `rank` of `world` to its end. Throws Error(kConfig) when the strategy places nothing on
/// servers.
void run_server(World& world, int rank);

/// Name of the communicator between a trainer and a server.
std::string pair_name(std::string_view name);

}  // namespace tenon::train
