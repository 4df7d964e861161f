// The transport `nccl` (contract transport/1): one rank is one process with one GPU; NVIDIA's NCCL, opened
// when a run asks for it, moves tensors from GPU to GPU. Sums have NCCL's order.
#pragma once

#include "session.hpp"

#include <tenon/plugin.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::nccl_transport {

class NcclTransport final : public Transport, private DeviceTransport, private NotRepeatable {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("fast_nondeterministic", "false")
          .doc_text("must be true: NCCL sums in its own order, so bits differ from all other transports and "
                    "may differ between runs"),
      option::text("library", "\"\"")
          .doc_text("path of the NCCL library; \"\" is libnccl.so.2 on the path of the system's loader"),
      option::text("interface", "\"\"")
          .doc_text("network interface whose addresses are announced to the other ranks, e.g. \"eth0\"; \"\" "
                    "is all; NCCL itself reads NCCL_SOCKET_IFNAME"),
      option::boolean("shrink", "false")
          .doc_text("keep failed communicators until the survivors shrink them, where NCCL can (2.28), "
                    "instead of reconnecting")};
  static constexpr ComponentInfo kInfo{.id = "nccl",
                                       .summary = "ranks as processes with a GPU each, over NVIDIA's NCCL",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_NONDETERMINISTIC | TENON_CAP_SURVIVES_DEATH,
                                       .maturity = TENON_EXPERIMENTAL};

  explicit NcclTransport(const Options& options);
  ~NcclTransport() override;

  void connect(const WorldSpec& world) override;
  std::span<const int> local_ranks() const override;
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) override;
  void cancel(std::string_view reason) override;
  LinkCounts counts(int world_rank, Purpose purpose) const override;
  /// DeviceTransport::kId and NotRepeatable::kId.
  void* query(std::string_view interface_id) override;

 private:
  std::string missing() override;
  void attach(int world_rank, Device& device) override;
  std::string reason() const override;
  Session& session() const;

  bool fast_nondeterministic_ = false;
  Session::Settings settings_;
  // Shared with the communicators, which may live longer.
  std::shared_ptr<Session> session_;
};

}  // namespace tenon::nccl_transport
