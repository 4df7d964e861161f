// Connecting of mpi_transport.hpp; the rest is handed on.
#include "mpi_transport.hpp"

#include "mpi_port.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::mpi_transport {

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
  ring_ = std::make_unique<RingTransport>(std::make_unique<MpiPort>(rendezvous_, world.deadline_s), mine,
                                          "transport.mpi");
}

RingTransport& MpiTransport::ring() const {
  if (!ring_) fail_run("transport.mpi: used before connect");
  return *ring_;
}

std::span<const int> MpiTransport::local_ranks() const {
  return ring().local_ranks();
}

std::unique_ptr<Communicator> MpiTransport::open(int world_rank, const GroupSpec& group) {
  return ring().open(world_rank, group);
}

void MpiTransport::cancel(std::string_view reason) {
  if (ring_) ring_->cancel(reason);
}

LinkCounts MpiTransport::counts(int world_rank, Purpose purpose) const {
  return ring_ ? ring_->counts(world_rank, purpose) : LinkCounts{};
}

void* MpiTransport::query(std::string_view interface_id) {
  if (interface_id == Rendezvous::kId) return static_cast<Rendezvous*>(&rendezvous_);
  return nullptr;
}

}  // namespace tenon::mpi_transport
