// The suite of transports of processes (plugins/transport/ring/testing) over real connections, all in one
// process.
#include "socket_world.hpp"

#include "process_world.hpp"

#include <sys/socket.h>

namespace tenon::testing {

class SocketWorld final : public ProcessWorld {
 public:
  SocketWorld(int ranks, double deadline_s) : ProcessWorld(ranks), clock_(make_wall_clock()) {
    for (socket_transport::SocketMesh& mesh : socket_transport::loopback_meshes(ranks)) {
      auto& descriptors = descriptors_.emplace_back();
      for (const auto& peer : mesh.peers) {
        if (peer) descriptors.push_back(::dup(peer.get()));
      }
      WorldSpec spec;
      spec.ranks = ranks;
      spec.deadline_s = deadline_s;
      spec.clock = clock_.get();
      transports_.push_back(std::make_unique<RingTransport>(
          std::make_unique<socket_transport::SocketPort>(std::move(mesh)), spec, "transport.socket"));
    }
  }
  ~SocketWorld() override {
    for (const auto& descriptors : descriptors_) {
      for (const int fd : descriptors) ::close(fd);
    }
  }
  using ProcessWorld::open;
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& spec) override {
    return at(rank)->open(rank, spec);
  }
  void cancel(int rank, std::string_view reason) override { at(rank)->cancel(reason); }
  LinkCounts counts(int rank, Purpose purpose) override { return at(rank)->counts(rank, purpose); }
  void kill(int rank) override {
    for (const int fd : descriptors_[rank]) ::shutdown(fd, SHUT_RDWR);
  }
  void end(int rank) override { at(rank).reset(); }

 private:
  std::unique_ptr<RingTransport>& at(int rank) { return transports_[rank]; }
  std::unique_ptr<Clock> clock_;
  std::vector<std::vector<int>> descriptors_;  // copies, to break the connections from outside
  std::vector<std::unique_ptr<RingTransport>> transports_;
};

std::unique_ptr<ProcessWorld> make_process_world(int ranks, double deadline_s) {
  return std::make_unique<SocketWorld>(ranks, deadline_s);
}

}  // namespace tenon::testing
