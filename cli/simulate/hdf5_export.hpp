// All samples of a simulation in one HDF5 file, beside the folder of each. The only place of the program that
// knows HDF5.
#pragma once

#include <tenon/sdk/simulation.hpp>

#include <string>

namespace tenon::simulate {

/// "samples.h5" in the folder of the simulation.
std::string hdf5_path(const std::string& folder);

/// Writes the finished samples: per field a dataset [samples, ...], a sample a chunk; /simulation/index, the
/// indices of the samples; /simulation/shared/NAME; as attributes simulator, version, config, seed and the
/// digest of all of it. The path holds the old file or the whole new one; a file with the same digest stays.
/// Throws Error(kRun), FileError. Returns whether it wrote.
bool write_hdf5(FileSystem& files, const std::string& folder, const SimulationManifest& manifest);

}  // namespace tenon::simulate
