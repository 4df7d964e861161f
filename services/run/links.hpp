// Links between the ranks of a run: the transport, the control plane, and exchanges of texts. A process gets
// its place from its launcher, or from a transport with a launcher of its own.
#pragma once

#include "config/run_schema.hpp"
#include "control/control_client.hpp"
#include "control/control_inprocess.hpp"
#include "control/control_server.hpp"
#include "loop/exchange.hpp"
#include "loop/guarded_transport.hpp"
#include "loop/pause_gate.hpp"
#include "loop/rank_host.hpp"
#include "plugin/guard.hpp"

#include <tenon/clock.hpp>
#include <tenon/runtime.hpp>
#include <tenon/transport.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace tenon::train {

std::string host_name();

class Links {
 public:
  /// All outlive it. `place` is filled in by find_place.
  Links(const config::CoreSettings& settings, ProcessPlace& place, Clock& clock, Clock& saver_clock)
      : transport_gate(clock, settings.run.deadline),
        settings_(settings),
        place_(place),
        clock_(clock),
        saver_clock_(saver_clock) {}

  /// A transport with a launcher of its own knows which rank this process is, and carries the first address.
  void find_place();
  void open_control();
  /// Collective over the processes of the run.
  void connect(WorldSpec spec);
  /// Bytes of rank 0, over all purposes of the data transport.
  std::uint64_t bytes_sent() const;

  PauseGate transport_gate;  ///< of the transport's host, which belongs to no replica
  std::unique_ptr<RankHost> transport_host;
  std::unique_ptr<Rendezvous> rendezvous;       ///< of processes; outlives the transport
  std::unique_ptr<GuardedTransport> transport;  ///< null where there is one rank
  std::atomic<bool> connected{false};
  std::unique_ptr<TextExchange> training_hub, saving_hub, end_hub;  ///< of trainers
  std::unique_ptr<TextExchange> world_hub;                          ///< of all processes; null among threads
  std::unique_ptr<ControlServer> control_server;                    ///< where this process runs it
  std::unique_ptr<ControlPlane> control;                            ///< after all that a failure cancels
  ControlClient* control_client = nullptr;                          ///< the same; null among threads

 private:
  std::unique_ptr<ControlServer> make_control_server();

  const config::CoreSettings& settings_;
  ProcessPlace& place_;
  Clock& clock_;
  Clock& saver_clock_;
};

}  // namespace tenon::train
