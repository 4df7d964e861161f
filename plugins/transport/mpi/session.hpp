// The one MPI library of this process: started at first use, ended with the process, every call checked. MPI
// allows one call at a time here (MPI_THREAD_SERIALIZED); the mutex ensures this.
#pragma once

#include <tenon/transport.hpp>

#include <mpi.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::mpi_transport {

/// Throws Error(kRun) with the library's own message unless `status` is MPI_SUCCESS.
void check(int status, std::string_view call);
/// "Open MPI" or "MPICH".
std::string_view vendor();

class MpiRendezvous;
/// Returns a communicator of all ranks, separate from other traffic of this process. Collective; throws
/// DeadlineError.
MPI_Comm duplicate_world(const MpiRendezvous& session, double deadline_s);

/// Rendezvous of ranks started by mpirun or srun. MPI starts at the first call of rank(), ranks() or
/// exchange(), which must come from one thread; without a launcher they throw Error(kConfig).
class MpiRendezvous final : public Rendezvous {
 public:
  int rank() const override;
  int ranks() const override;
  std::vector<std::string> exchange(const std::string& text) override;

  void set_deadline(double seconds) { deadline_s_ = seconds; }
  /// Serialises all calls of the library in this process.
  std::mutex& mutex() const;

 private:
  void start() const;

  mutable int rank_ = -1, ranks_ = 0;
  double deadline_s_ = 60;
};

}  // namespace tenon::mpi_transport
