// The transport `mpi` (contract transport/1): one rank is one process that mpirun or srun started.
// Collectives, counts and errors are those of <tenon/ring/transport.hpp>, over MPI's point-to-point messages;
// MPI's own reductions promise no order.
#pragma once

#include "library_sums.hpp"
#include "session.hpp"

#include <tenon/plugin.hpp>
#include <tenon/ring/transport.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::mpi_transport {

class MpiTransport final : public Transport {
 public:
  // With one library installed `mpi` is enough; with two it is ambiguous, and the message lists both.
  static constexpr const char* kAliases[] = {"mpi", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::boolean("fast_nondeterministic", "false")
          .doc_text(
              "all-reduces of 64 KiB and more over all ranks use the library's MPI_Iallreduce, which sums in "
              "its own order: bits differ from all other transports and may differ between runs")};
  static constexpr ComponentInfo kInfo{.id = TENON_MPI_ID,
                                       .summary = "ranks as processes, over " TENON_MPI_VENDOR,
                                       .options = kOptions,
                                       .aliases = kAliases};

  explicit MpiTransport(bool fast_nondeterministic = false) : own_sums_(fast_nondeterministic) {}
  explicit MpiTransport(const Options& options) : MpiTransport(options.boolean("fast_nondeterministic")) {}

  /// Uses the ranks of MPI, and rejects a rendezvous with other ranks.
  void connect(const WorldSpec& world) override;
  std::span<const int> local_ranks() const override;
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) override;
  void cancel(std::string_view reason) override;
  LinkCounts counts(int world_rank, Purpose purpose) const override;
  /// Rendezvous::kId: that of the launcher, also before connect. NotRepeatable::kId if the library computes
  /// sums.
  void* query(std::string_view interface_id) override;

 private:
  RingTransport& ring() const;

  struct Repeats final : NotRepeatable {
    std::string reason() const override;
  };

  const bool own_sums_ = false;
  Repeats repeats_;
  MpiRendezvous rendezvous_;
  std::unique_ptr<LibrarySums> sums_;
  LibraryCounts counts_;
  std::unique_ptr<RingTransport> ring_;
};

}  // namespace tenon::mpi_transport
