// A rank with the role `server`: it makes the sync component alone and lets it serve the trainers.
#pragma once

namespace tenon::train {

struct World;

/// Runs server rank `rank` of `world` to its end. Throws Error(kConfig) when the strategy places nothing on
/// servers.
void run_server(World& world, int rank);

}  // namespace tenon::train
