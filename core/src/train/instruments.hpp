// What a rank is measured, logged and disturbed with: its host, its log, its time account, its spans, the
// watch on its passes, its faults.
#pragma once

#include "observe/rank_log.hpp"
#include "train/distributions.hpp"
#include "train/faults.hpp"
#include "train/pass_watch.hpp"
#include "train/pause_gate.hpp"
#include "train/rank_host.hpp"
#include "train/spans.hpp"
#include "train/time_account.hpp"
#include "train/traced_communicator.hpp"

#include <memory>
#include <string>

namespace tenon::train {

struct Instruments {
  Instruments(const HostSpec& spec, const FaultSpec& disturbed, PassWatch& passes);

  /// Once the run has a folder.
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
