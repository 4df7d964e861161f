// The folder of results while this process fills it: locked, continued if it holds the same simulation,
// refused if it holds another one. What is finished stays finished whatever happens.
#pragma once

#include "observe/run_folder.hpp"
#include "simulate/plan.hpp"

#include <tenon/simulation.hpp>

#include <chrono>
#include <optional>
#include <string>

namespace tenon::simulate {

class ResultFolder {
 public:
  /// `wanted`: the simulation, without settled samples. Makes the folder, or takes up what lies there:
  /// samples that a killed process had finished, failures. Throws Error(kConfig) when another simulation lies
  /// there, Error(kRun) when another process writes to it, FileError.
  ResultFolder(FileSystem& files, std::string folder, SimulationManifest wanted);

  SimulationManifest& manifest() { return manifest_; }
  const std::string& path() const { return folder_; }
  /// Finished before this process came.
  std::int64_t taken_up() const { return taken_up_; }
  /// Writes manifest.json, at most every other second unless `now`. The samples themselves are on the disk
  /// before.
  void save(bool now);

 private:
  void check_same(const SimulationManifest& there) const;
  void take_up_samples();

  FileSystem& files_;
  std::string folder_;
  std::optional<AttemptLock> lock_;
  SimulationManifest manifest_;
  std::int64_t taken_up_ = 0;
  std::chrono::steady_clock::time_point saved_;
};

}  // namespace tenon::simulate
