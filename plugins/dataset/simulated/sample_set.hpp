// The set of samples of a simulation that a run uses: all of a finished one, or those present at one moment,
// recorded under a name so that every rank, every resumed run and every arm of a study uses the same set.
#pragma once

#include <tenon/sdk/simulation.hpp>

#include <string>

namespace tenon::simulated {

/// `set` = "": the simulation in `folder` must be complete. Otherwise returns the set of this name, recorded
/// now if absent; of several processes that record it at once one wins, and all get its set. Throws
/// Error(kConfig).
SimulationManifest sample_set(FileSystem& files, const std::string& folder, const std::string& set);

/// Returns the SHA-256 that identifies the chosen samples: the simulation, their indices and their digests.
std::string sample_set_hash(const SimulationManifest& manifest, std::span<const std::int64_t> indices);

}  // namespace tenon::simulated
