// The rank processes of one run and the control plane that connects them, from start to end. When some die
// and the others keep their state, the dead are started again and all ranks join a new control plane, which
// knows nothing of the dead: a generation.
#pragma once

#include "rank_processes.hpp"

#include "control/control_server.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::cli {

/// The part of a run's ranks that this machine starts.
struct Share {
  int here = 0, world = 0, first = 0;
  std::string program;  ///< program of each rank
  std::string control, token;
  double kill_after = 30;
  int restarts = 0;
};

/// Result of all ranks together.
struct LaunchEnd {
  int status = 0;
  int bad = -1;         ///< the first rank that ended badly
  std::string how;      ///< how that rank ended
  std::string failure;  ///< as reported to the control plane
  bool spoke = false;   ///< rank 0 has printed the reason
  bool bad_spoke = false;
  std::string last_words;
};

/// Targets of the process's signals: whatever runs at the moment.
struct LaunchListeners {
  std::atomic<ControlServer*> server = nullptr;
  std::atomic<RankProcesses*> processes = nullptr;  // the server may ask before they are all started
  std::atomic<bool> interrupted = false;
};

class LaunchedRun {
 public:
  /// `train`: arguments of each process. `restarts_used`: restarts of share.restarts used so far, earlier
  /// ones included; grows.
  LaunchedRun(const Share& share, const std::vector<std::string>& train, LaunchListeners& listeners,
              int& restarts_used);
  ~LaunchedRun();
  LaunchedRun(const LaunchedRun&) = delete;
  LaunchedRun& operator=(const LaunchedRun&) = delete;

  LaunchEnd run();

 private:
  using Steady = std::chrono::steady_clock;

  std::unique_ptr<ControlServer> serve(bool first);
  RankProcess process_of(int rank) const;
  void watch();
  void outlive();
  void begin_generation(const std::vector<int>& dead, const std::vector<int>& living);
  void await_reason(int bad) const;

  Share share_;
  std::vector<std::string> train_;
  LaunchListeners& listeners_;
  int& restarts_used_;
  int generation_ = 0;
  bool began_ = false;  ///< some slot, in an earlier generation
  std::unique_ptr<ControlServer> server_;
  std::optional<RankProcesses> processes_;
  std::optional<Steady::time_point> bad_since_;
};

}  // namespace tenon::cli
