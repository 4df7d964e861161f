// Which tasks wait, run, are finished or have failed: the rules of repetition, without processes or files.
#pragma once

#include "simulate/place.hpp"

#include <tenon/sdk/simulation.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace tenon::simulate {

class Tasks {
 public:
  /// `manifest` says which samples are settled already. Those that were lost or late are tried again.
  /// Of several processes this one takes the tasks of its place.
  Tasks(SimulationManifest& manifest, std::int64_t retries, Place place = {});

  struct Next {
    std::int64_t index = 0;
    std::int64_t attempt = 1;
  };
  /// The next task to run, lowest index first, repetitions before new ones; none when all that is left runs
  /// or is settled.
  std::optional<Next> take();
  void finished(std::int64_t index, std::string digest);
  /// The simulator's own error: it would come again.
  void refused(std::int64_t index, const std::string& cause);
  /// kind "time" or "lost". True if it will be tried again.
  bool interrupted(std::int64_t index, const std::string& kind, const std::string& cause);
  /// Nobody's fault: waits again, and the attempt does not count.
  void give_back(std::int64_t index);

  /// Nothing waits and nothing runs.
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

}  // namespace tenon::simulate
