// The one MPI library of this process: started at first use, ended with the process, every call checked. MPI
// allows one call at a time here (MPI_THREAD_SERIALIZED), which the mutex sees to.
#pragma once

#include <tenon/transport.hpp>

#include <mpi.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::mpi_transport {

/// Throws Error(kRun) with the library's own words unless `status` is MPI_SUCCESS.
void check(int status, std::string_view call);
/// "Open MPI" or "MPICH".
std::string_view vendor();

class MpiRendezvous;
/// A communicator of all ranks, apart from what others of this process send. Collective; throws
/// DeadlineError.
MPI_Comm duplicate_world(const MpiRendezvous& session, double deadline_s);

/// Where ranks that mpirun or srun started meet. MPI starts at the first call of rank(), ranks() or
/// exchange(), which come from one thread; without a launcher they throw Error(kConfig).
class MpiRendezvous final : public Rendezvous {
 public:
  int rank() const override;
  int ranks() const override;
  std::vector<std::string> exchange(const std::string& text) override;

  void set_deadline(double seconds) { deadline_s_ = seconds; }
  /// Of all calls of the library in this process.
  std::mutex& mutex() const;

 private:
  void start() const;

  mutable int rank_ = -1, ranks_ = 0;
  double deadline_s_ = 60;
};

}  // namespace tenon::mpi_transport
