// The folder of results while this process fills it: locked, continued if it holds the same simulation,
// refused if it holds another one. Finished samples are never lost.
#pragma once

#include "record/run_folder.hpp"
#include "simulate/plan.hpp"

#include <tenon/sdk/simulation.hpp>

#include <chrono>
#include <optional>
#include <string>

namespace tenon::simulate {

class ResultFolder {
 public:
  /// `wanted`: the simulation, without settled samples. Makes the folder, or takes up its content: samples
  /// that a killed process had finished, failures. Throws Error(kConfig) if it contains another simulation,
  /// Error(kRun) if another process writes to it, FileError.
  ResultFolder(FileSystem& files, std::string folder, SimulationManifest wanted);

  /// One of several processes that share a folder, which process 0 has opened: without the lock; it records
  /// what it settles in files of its own (launched.hpp).
  ResultFolder(FileSystem& files, std::string folder, SimulationManifest wanted, Place place);

  SimulationManifest& manifest() { return manifest_; }
  const std::string& path() const { return folder_; }
  /// Samples finished before this process started.
  std::int64_t taken_up() const { return taken_up_; }
  /// Writes manifest.json, at most every other second unless `now`. The samples themselves are on the disk
  /// before.
  void save(bool now);

 private:
  void check_same(const SimulationManifest& there) const;
  void take_up_samples();
  void record_share();

  FileSystem& files_;
  std::string folder_;
  std::optional<AttemptLock> lock_;
  std::optional<Place> node_;
  SimulationManifest before_;  ///< of a node: settled samples at its start
  std::uint64_t beats_ = 0;
  SimulationManifest manifest_;
  std::int64_t taken_up_ = 0;
  std::chrono::steady_clock::time_point saved_;
};

}  // namespace tenon::simulate
