// A cluster of two nodes on one machine for tests: munged, slurmctld and two slurmd as children of the test,
// with files in a folder of it and ports of its own network (slurm.sh). Commands run as a user of the cluster
// types them, in the folder of a run; each has a deadline.
#pragma once

#include "run_program.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::schedulers {

class SlurmCluster {
 public:
  /// Starts the daemons and waits until both nodes take jobs. Throws std::runtime_error with their logs when
  /// it does not.
  SlurmCluster();
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// Variables under which commands find the cluster, the program and the fixtures.
  std::map<std::string, std::string> environment() const;
  /// Runs a line of bash in `folder`.
  integration::Ended bash(const std::string& line, const std::filesystem::path& folder,
                          double seconds = 60) const;
  /// Queues the script `name` of `folder`, and returns the number of its job; fails the test when it is
  /// refused.
  std::string submit(const std::string& options, const std::string& name,
                     const std::filesystem::path& folder) const;
  /// The value of one of the words KEY=VALUE that scontrol tells of a job.
  std::string job(const std::string& id, const std::string& key) const;
  /// Waits for the end of a job and returns its state, "COMPLETED"; the last one at the deadline.
  std::string await_end(const std::string& id, double seconds) const;
  std::string logs() const;

 private:
  std::unique_ptr<integration::Child> start(const std::string& name, const std::string& line);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<integration::Child>> daemons_;  ///< the last one ends first
};

}  // namespace tenon::schedulers
