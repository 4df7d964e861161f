// Which samples of a simulation a run uses: those of a finished one, or those of one moment, written down
// under a name so that every rank, every resumed run and every arm of a study takes the same.
#pragma once

#include <tenon/sdk/simulation.hpp>

#include <string>

namespace tenon::simulated {

/// `set` = "": the simulation in `folder` must be complete. Else the set of this name, recorded now if nobody
/// has; of several processes that do so at once one wins, and all get its set. Error(kConfig).
SimulationManifest sample_set(FileSystem& files, const std::string& folder, const std::string& set);

/// SHA-256 of what the chosen samples are: the simulation, their indices and their digests.
std::string sample_set_hash(const SimulationManifest& manifest, std::span<const std::int64_t> indices);

}  // namespace tenon::simulated
