// The transport `mpi` (contract transport/1): one rank is one process that mpirun or srun started.
// Collectives, counts and errors are those of <tenon/ring_transport.hpp>, over MPI's point-to-point messages;
// MPI's own reductions promise no order.
#pragma once

#include "session.hpp"

#include <tenon/plugin.hpp>
#include <tenon/ring_transport.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::mpi_transport {

class MpiTransport final : public Transport {
 public:
  // With one library installed `mpi` is enough; with two it is ambiguous, and the message lists both.
  static constexpr const char* kAliases[] = {"mpi", nullptr};
  static constexpr ComponentInfo kInfo{
      .id = TENON_MPI_ID, .summary = "ranks as processes, over " TENON_MPI_VENDOR, .aliases = kAliases};

  MpiTransport() = default;
  explicit MpiTransport(const Options&) {}

  /// Takes the ranks of MPI, and refuses a rendezvous that knows others.
  void connect(const WorldSpec& world) override;
  std::span<const int> local_ranks() const override;
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) override;
  void cancel(std::string_view reason) override;
  LinkCounts counts(int world_rank, Purpose purpose) const override;
  /// Rendezvous::kId: that of the launcher, before connect as well.
  void* query(std::string_view interface_id) override;

 private:
  RingTransport& ring() const;

  MpiRendezvous rendezvous_;
  std::unique_ptr<RingTransport> ring_;
};

}  // namespace tenon::mpi_transport
