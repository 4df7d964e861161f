// Whether a launcher started several processes for one simulation: mpirun of Open MPI or MPICH, srun of
// Slurm.
#pragma once

#include <cstdint>
#include <optional>

namespace tenon::simulate {

struct Place {
  std::int64_t index = 0, count = 1;
  /// Whether this process makes that sample.
  bool makes(std::int64_t sample) const { return sample % count == index; }
};
/// What the launcher's environment says; nothing without one, or of one process. Throws Error(kConfig) for
/// numbers that cannot be.
std::optional<Place> launched();

}  // namespace tenon::simulate
