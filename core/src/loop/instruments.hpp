// Instruments of a rank: its host, its log, its time account, its spans, the watch on its passes, its faults.
#pragma once

#include "loop/distributions.hpp"
#include "loop/faults.hpp"
#include "loop/pass_watch.hpp"
#include "loop/pause_gate.hpp"
#include "loop/rank_host.hpp"
#include "loop/rank_log.hpp"
#include "loop/spans.hpp"
#include "loop/time_account.hpp"
#include "loop/traced_communicator.hpp"

#include <memory>
#include <string>

namespace tenon::train {

struct Instruments {
  Instruments(const HostSpec& spec, const FaultSpec& disturbed, PassWatch& passes);

  /// Call it once the run has a folder.
  void open_log(const std::string& folder);

  std::unique_ptr<RankLog> log;
  PauseGate gate;
  RankHost host;
  WatchedRank watched;
  SpanRecorder spans;
  TimeAccount account;
  Distributions distributions;
  Faults faults;
  CommunicatorWatch watch;
  CommunicatorWatch layer_watch;  ///< of communicators in which layers and optimizers wait
};

inline Instruments::Instruments(const HostSpec& spec, const FaultSpec& disturbed, PassWatch& passes)
    : gate(*spec.clock, spec.deadline_s),
      host(spec, gate),
      watched(passes, host),
      spans(*spec.clock),
      account(*spec.clock),
      faults(disturbed),
      watch{&spans, &account, &faults},
      layer_watch{&spans, &account, &faults, &watched.places()} {}

inline void Instruments::open_log(const std::string& folder) {
  log = std::make_unique<RankLog>(folder, host.rank(), log_level_from_environment());
  host.set_log(log.get());
}

}  // namespace tenon::train
