// Frames as MPI messages, header and payload in one. They pass through buffers of the port on both sides, so
// MPI never holds memory of a caller, and an operation can be abandoned at any time.
#pragma once

#include "library_sums.hpp"
#include "session.hpp"

#include <tenon/ring/transport.hpp>

#include <array>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace tenon::mpi_transport {

class MpiPort final : public FramePort {
 public:
  /// Collective. `sums`, unless null, progress with the port and must outlive it.
  MpiPort(MpiRendezvous& rendezvous, double deadline_s, LibrarySums* sums = nullptr);
  ~MpiPort() override;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void send(int to, const FrameHeader& header, std::span<const std::byte> payload,
            const void* owner) override;
  void poll(Events& events, double seconds) override;
  void wake() override;
  void release(const void* owner) override;
  void close(double seconds) override;

 private:
  struct Outgoing {
    int to = 0;
    FrameHeader header;
    const std::byte* payload = nullptr;  // null: the payload is in `small` or `large`
    const void* owner = nullptr;
    // Payloads without owner: typical ones, and reasons of failures.
    std::array<std::byte, 256> small{};
    std::vector<std::byte> large;
    const std::byte* bytes_of_payload() const {
      return payload != nullptr ? payload : large.empty() ? small.data() : large.data();
    }
  };

  bool move(Events& events);
  bool leave(Events& events);
  bool arrive(Events& events);
  void expect(std::size_t slot);

  MpiRendezvous& session_;
  LibrarySums* const sums_;
  const int rank_, ranks_;
  MPI_Comm frames_ = MPI_COMM_NULL;
  std::vector<Outgoing> queue_;  // a ring buffer
  std::size_t first_ = 0, waiting_ = 0;
  std::vector<std::vector<std::byte>> sending_, arriving_;
  std::vector<MPI_Request> sends_, receives_;  // of those buffers
  std::vector<int> free_, done_;               // free send buffers; scratch
  std::size_t next_arrival_ = 0;               // receives complete in posting order
  int byes_ = 0;                               // number of kBye frames received
  std::mutex wake_mutex_;
  std::condition_variable wakes_;
  bool woken_ = false;
};

}  // namespace tenon::mpi_transport
