// Connecting of mpi_transport.hpp; other calls are forwarded.
#include "mpi_transport.hpp"

#include "mpi_port.hpp"

#include <tenon/error.hpp>
#include <tenon/ring/check_world.hpp>

#include <fmt/format.h>

namespace tenon::mpi_transport {

namespace {

/// Limit on concurrent groups of all ranks with library sums; further groups use the ring.
constexpr int kChannels = 16;

}  // namespace

void MpiTransport::connect(const WorldSpec& world) {
  if (ring_) fail_run("transport.mpi: connected twice");
  WorldSpec mine = world;
  mine.rendezvous = &rendezvous_;
  check_process_world(mine, "transport.mpi");
  if (world.rendezvous != nullptr &&
      (world.rendezvous->rank() != rendezvous_.rank() || world.rendezvous->ranks() != rendezvous_.ranks())) {
    fail_config(fmt::format(
        "transport.mpi: MPI made this process rank {} of {}, but the run knows it as rank {} of "
        "{}; start it with mpirun alone",
        rendezvous_.rank(), rendezvous_.ranks(), world.rendezvous->rank(), world.rendezvous->ranks()));
  }
  rendezvous_.set_deadline(world.deadline_s);
  if (own_sums_ && mine.ranks > 1) {
    sums_ = std::make_unique<LibrarySums>(rendezvous_);
    sums_->connect(kChannels, world.deadline_s);
  }
  ring_ = std::make_unique<RingTransport>(
      std::make_unique<MpiPort>(rendezvous_, world.deadline_s, sums_.get()), mine, "transport.mpi");
}

RingTransport& MpiTransport::ring() const {
  if (!ring_) fail_run("transport.mpi: used before connect");
  return *ring_;
}

std::span<const int> MpiTransport::local_ranks() const {
  return ring().local_ranks();
}

std::unique_ptr<Communicator> MpiTransport::open(int world_rank, const GroupSpec& group) {
  auto opened = ring().open(world_rank, group);
  // Groups of a subset of the world use the ring: MPI creates only communicators of all ranks without
  // waiting. In the world's order, so that rank 0 assigns the channels of all of them.
  bool whole = group.ranks.size() == static_cast<std::size_t>(rendezvous_.ranks());
  for (std::size_t i = 0; i < group.ranks.size(); ++i) whole = whole && group.ranks[i] == static_cast<int>(i);
  if (!sums_ || !whole) return opened;
  return std::make_unique<LibraryCommunicator>(std::move(opened), group.purpose, *sums_, counts_);
}

void MpiTransport::cancel(std::string_view reason) {
  if (ring_) ring_->cancel(reason);
  if (sums_) sums_->cancel(reason);
}

LinkCounts MpiTransport::counts(int world_rank, Purpose purpose) const {
  LinkCounts counts = ring_ ? ring_->counts(world_rank, purpose) : LinkCounts{};
  if (world_rank == rendezvous_.rank()) add(counts, counts_.of(purpose));
  return counts;
}

void* MpiTransport::query(std::string_view interface_id) {
  if (interface_id == Rendezvous::kId) return static_cast<Rendezvous*>(&rendezvous_);
  if (interface_id == NotRepeatable::kId && own_sums_) return static_cast<NotRepeatable*>(&repeats_);
  return nullptr;
}

std::string MpiTransport::Repeats::reason() const {
  return fmt::format("sums of gradients follow the order of {} (transport.fast_nondeterministic)", vendor());
}

}  // namespace tenon::mpi_transport

// The plugins `tenon.transport_openmpi` and `tenon.transport_mpich`: one source, built for each library.
TENON_PLUGIN(tenon::PluginInfo{.id = TENON_MPI_PLUGIN,
                               .version = "0.1.0",
                               .summary = "bytes between ranks that are processes, over " TENON_MPI_VENDOR},
             tenon::mpi_transport::MpiTransport)
