// The state of tasks (waiting, running, finished, failed) and the rules of repetition, without processes or
// files; and the line of progress.
#pragma once

#include "simulate/plan.hpp"

#include <tenon/sdk/simulation.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace tenon::simulate {

class Tasks {
 public:
  /// `manifest` lists the samples that are settled already. Those that were lost or late are tried again.
  /// With several processes this one takes the tasks of its place.
  Tasks(SimulationManifest& manifest, std::int64_t retries, Place place = {});

  struct Next {
    std::int64_t index = 0;
    std::int64_t attempt = 1;
  };
  /// The next task to run, lowest index first, repetitions before new ones; none if all that is left is
  /// running or settled.
  std::optional<Next> take();
  void finished(std::int64_t index, std::string digest);
  /// Records the simulator's own error, which would come again.
  void refused(std::int64_t index, const std::string& cause);
  /// kind "time" or "lost". Returns true if it will be tried again.
  bool interrupted(std::int64_t index, const std::string& kind, const std::string& cause);
  /// Without fault of the task: it waits again, and the attempt does not count.
  void give_back(std::int64_t index);

  /// Returns true if no task waits or runs.
  bool settled() const { return waiting_.empty() && running_.empty(); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  /// Attempts after the first.
  std::int64_t repeated() const { return repeated_; }

 private:
  void settle(std::int64_t index, const std::string& kind, const std::string& cause);

  SimulationManifest& manifest_;
  std::int64_t retries_;
  std::deque<std::int64_t> waiting_;
  std::map<std::int64_t, std::int64_t> running_;   // index -> attempt
  std::map<std::int64_t, std::int64_t> attempts_;  // of tasks that were interrupted
  std::int64_t repeated_ = 0;
};

struct Progress {
  std::int64_t samples = 0;
  std::int64_t finished = 0, failed = 0;  ///< taken-up ones included
  std::int64_t settled_here = 0;          ///< by this process
  double seconds = 0;                     ///< of this process
};

/// "sample 12/100 (12.0 %) | 1 failed | 3.4 samples/s | ETA 0:26".
std::string progress_line(const Progress& progress);

}  // namespace tenon::simulate
