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

}  // namespace tenon::train
