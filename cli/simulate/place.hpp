// The place of this process among those that a launcher started for one simulation: mpirun of Open MPI or
// MPICH, srun of Slurm.
#pragma once

#include <cstdint>
#include <optional>

namespace tenon::simulate {

struct Place {
  std::int64_t index = 0, count = 1;
  /// Whether this process makes that sample.
  bool makes(std::int64_t sample) const { return sample % count == index; }
};
/// The place from the launcher's environment; empty without one, or for one process. Throws Error(kConfig)
/// for impossible numbers.
std::optional<Place> launched();

}  // namespace tenon::simulate
