// Several processes that a launcher started for one simulation: mpirun of Open MPI or MPICH, srun of Slurm.
// They share nothing but the folder of results. Process 0 owns it, as a program without a launcher does; each
// makes the samples whose index, modulo their number, is its own, and writes
//
//   nodes/open      process 0: the folder is checked, is that of this simulation, and is shared with these
//   processes nodes/3.token   process 3: a random number, until process 0 has named it in nodes/open; of two
//   launches over one
//                   folder the second is never named
//   nodes/3.json    process 3: what it has finished and what failed, a manifest
//   nodes/3.beat    process 3: a number that grows every other second
//   nodes/3.end     process 3: its figures, when it has ended
//
// A process is alive while its files change, so clocks of machines need not agree. Every wait has a deadline.
#pragma once

#include "simulate/result_folder.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <string>

namespace tenon::simulate {

/// Report of a process that has ended.
struct NodeEnd {
  std::string cut_short;  ///< as PoolResult
  std::int64_t lost_workers = 0, repeated = 0, workers = 0;
  double busy_s = 0;
};
std::string node_end_text(const NodeEnd& end);
/// Throws Error(kRun) with `path`, expected and found.
NodeEnd parse_node_end(const std::string& text, const std::string& path);

/// A file that another process writes again and again.
class Pulse {
 public:
  Pulse(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  /// Returns whether it has changed since the first call.
  bool beats();
  /// Seconds since the last observed change, or since the first call.
  double silent_s();

 private:
  FileSystem& files_;
  std::string path_, last_;
  bool asked_ = false, beat_ = false;
  std::chrono::steady_clock::time_point changed_;
};

/// Longest silence: of process 0 before it opens the folder, of any process afterwards.
inline constexpr double kPatience_s = 120;

/// Process 0 of several.
class Owner {
 public:
  /// Removes the files of an earlier launch and lets the other processes begin.
  Owner(FileSystem& files, ResultFolder& folder, Place place, double patience_s = kPatience_s);
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  /// Tells the other processes that it is alive, and whether to continue; collects their results so far. At
  /// most every other second unless `now`.
  void look(bool now, bool go_on = true);
  /// Waits until all have ended or are silent; `wanted` returns false when they are to stop. Returns the
  /// figures of all of them together, and the first reason why one ended early.
  NodeEnd wait(const std::function<bool()>& wanted);

 private:
  struct Node {
    Pulse pulse;
    std::string token = {};  ///< the first that was shown; later ones are ignored
    bool silent = false;
  };

  FileSystem& files_;
  ResultFolder& folder_;
  Place place_;
  double patience_s_;
  std::uint64_t beats_ = 0;
  std::map<std::int64_t, Node> nodes_;
  std::chrono::steady_clock::time_point looked_;
};

/// Process 0 as seen by any other process.
class OwnerSeen {
 public:
  OwnerSeen(FileSystem& files, std::string folder, std::int64_t index, double patience_s = kPatience_s);
  /// Waits until it has opened the folder for `wanted` and this process. Throws Error(kRun) if it does not,
  /// Error(kConfig) if it opened it for another simulation.
  void wait(const SimulationManifest& wanted);
  /// Returns whether it is alive, still names this process, and wants to continue; checked every other
  /// second.
  bool wants_more();

 private:
  FileSystem& files_;
  std::string folder_, token_path_, token_;
  double patience_s_;
  Pulse pulse_;
  bool wants_ = true;
  std::chrono::steady_clock::time_point looked_;
};

void tell_end(FileSystem& files, const std::string& folder, Place place, const NodeEnd& end);

std::string node_manifest_path(const std::string& folder, std::int64_t index);
std::string node_beat_path(const std::string& folder, std::int64_t index);

}  // namespace tenon::simulate
