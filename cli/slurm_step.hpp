// The job step of Slurm in which this process is a task, from the variables that srun sets. It opens nothing
// and waits for nothing; process_place.hpp makes a rank of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::cli {

/// Value of an environment variable, null where it is not set.
using Variables = std::function<const char*(const char* name)>;
/// Those of this process.
Variables process_variables();

struct SlurmStep {
  std::int64_t job = 0, step = 0;
  int restarts = 0;         ///< times that the job was requeued
  int task = 0, tasks = 1;  ///< number of this task, and how many the step has
  int node = 0, nodes = 1;  ///< position of this machine among the step's
  int tasks_here = 1;       ///< tasks of the step on this machine
  std::string first_node;   ///< name of the step's first machine, which usually runs task 0

  /// "17.0", as squeue writes it.
  std::string name() const;
  /// HOST:PORT of the control plane: the first machine (the loopback where all tasks are on one) and
  /// 20000 + (100 * job + step) modulo 10000, below the ports that Linux hands out by itself.
  std::string control() const;
};

/// Nothing outside of a step: on a login node, or in a batch script that runs a program without srun. Throws
/// Error(kConfig) for variables that contradict each other or are no numbers, and for heterogeneous jobs.
std::optional<SlurmStep> read_slurm_step(const Variables& variables);

/// First name of a list as Slurm writes it: "n1" of "n[1-3,7],m2". Throws Error(kConfig) for no such list.
std::string first_host(std::string_view list);

}  // namespace tenon::cli
