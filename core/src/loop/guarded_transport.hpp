// A transport, the communicators that it opens and the interfaces that it offers, as the core and other
// components see them.
#pragma once

#include "loop/call_names.hpp"

#include <tenon/registry.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::train {

class GuardedTransport final : public Transport,
                               private Rendezvous,
                               private NotRepeatable,
                               private DeviceTransport {
 public:
  /// `deadline_s`: of the world that it will connect.
  GuardedTransport(Component<Transport> transport, double deadline_s);
  ~GuardedTransport() override;
  void connect(const WorldSpec& world) override;
  std::span<const int> local_ranks() const override;
  std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) override;
  void cancel(std::string_view reason) override;
  LinkCounts counts(int world_rank, Purpose purpose) const override;
  void* query(std::string_view interface_id) override;

 private:
  // Each forwards to what the transport offers, which query() notes.
  int rank() const override;
  int ranks() const override;
  std::vector<std::string> exchange(const std::string& text) override;
  std::string reason() const override;
  std::string missing() override;
  void attach(int world_rank, Device& device) override;

  /// The names of calls of one rank; -1 = of none.
  CallNames names(int world_rank, float patience = 1) const;

  Component<Transport> transport_;
  double deadline_s_;
  Rendezvous* rendezvous_ = nullptr;
  NotRepeatable* not_repeatable_ = nullptr;
  DeviceTransport* device_transport_ = nullptr;
};

}  // namespace tenon::train
