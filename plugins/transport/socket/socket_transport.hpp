// The transport `socket` (contract transport/1): one rank is one process, and every two of them share a TCP
// connection. Collectives, counts and errors are those of <tenon/ring/transport.hpp>.
#pragma once

#include "socket_mesh.hpp"

#include <tenon/plugin.hpp>
#include <tenon/ring/transport.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::socket_transport {

class SocketTransport final : public Transport {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("address", "\"\"")
          .doc_text("numeric address or host name of this machine to listen on and to announce to the "
                    "others; \"\" listens on all addresses and announces all of them"),
      option::text("interface", "\"\"")
          .doc_text(
              "network interface whose addresses are announced to the others, e.g. \"eth0\"; \"\" is all")};
  static constexpr ComponentInfo kInfo{.id = "socket",
                                       .summary = "ranks as processes, over TCP",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_SURVIVES_DEATH};

  explicit SocketTransport(const Options& options);

  void connect(const WorldSpec& world) override;
  std::span<const int> local_ranks() const override;
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) override;
  void cancel(std::string_view reason) override;
  LinkCounts counts(int world_rank, Purpose purpose) const override;
  void* query(std::string_view) override { return nullptr; }

 private:
  RingTransport& ring() const;

  MeshSettings settings_;
  std::unique_ptr<RingTransport> ring_;
};

}  // namespace tenon::socket_transport
