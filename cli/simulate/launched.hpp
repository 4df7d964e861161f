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
// Whether somebody lives shows in files that change, so clocks of machines need not agree. Every wait has a
// deadline.
#pragma once

#include "simulate/place.hpp"
#include "simulate/result_folder.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <string>

namespace tenon::simulate {

/// What a process that has ended says of itself.
struct NodeEnd {
  std::string cut_short;  ///< as PoolResult
  std::int64_t lost_workers = 0, repeated = 0, workers = 0;
  double busy_s = 0;
};
std::string node_end_text(const NodeEnd& end);
/// Throws Error(kRun) with `path`, expected and found.
NodeEnd parse_node_end(const std::string& text, const std::string& path);

/// A file that somebody writes again and again.
class Pulse {
 public:
  Pulse(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  /// Whether it has changed since this was first asked.
  bool beats();
  /// Seconds since it was last seen to change, or since this was first asked.
  double silent_s();

 private:
  FileSystem& files_;
  std::string path_, last_;
  bool asked_ = false, beat_ = false;
  std::chrono::steady_clock::time_point changed_;
};

/// How long somebody may be silent: process 0 before it opens the folder, anybody afterwards.
inline constexpr double kPatience_s = 120;

/// Process 0 of several.
class Owner {
 public:
  /// Removes what an earlier launch left and lets the others begin.
  Owner(FileSystem& files, ResultFolder& folder, Place place, double patience_s = kPatience_s);
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  /// Tells the others that it lives, and whether to go on; takes up what they have done so far. At most every
  /// other second unless `now`.
  void look(bool now, bool go_on = true);
  /// Until all have ended or are silent; `wanted` answers false when they are to stop. The figures of all of
  /// them together, and the first reason why one ended early.
  NodeEnd wait(const std::function<bool()>& wanted);

 private:
  struct Node {
    Pulse pulse;
    std::string token = {};  ///< the first that was shown; no other is taken
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

/// What any other process sees of process 0.
class OwnerSeen {
 public:
  OwnerSeen(FileSystem& files, std::string folder, std::int64_t index, double patience_s = kPatience_s);
  /// Until it has opened the folder for `wanted` and this process. Error(kRun) when it does not,
  /// Error(kConfig) when it opened it for another simulation.
  void wait(const SimulationManifest& wanted);
  /// Whether it lives, still names this process, and wants to go on; looked at every other second.
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
