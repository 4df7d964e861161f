// Chooses between the variables of process_place.hpp.
#include "process_place.hpp"

#include "job_token.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace tenon::cli {
namespace {

int place_number(const Variables& variables, const char* name, int fallback) {
  const char* text = variables(name);
  if (text == nullptr) return fallback;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > 1'000'000)
    fail_config(fmt::format("environment: {}='{}' is not a number of ranks", name, text));
  return static_cast<int>(value);
}

std::string text_or(const Variables& variables, const char* name, const std::string& fallback) {
  const char* text = variables(name);
  return text == nullptr ? fallback : text;
}

/// Rank -1 without TENON_RANK.
ProcessPlace launched_place(const Variables& variables) {
  ProcessPlace place;
  place.rank = place_number(variables, "TENON_RANK", -1);
  if (place.rank < 0) return place;
  place.ranks = place_number(variables, "TENON_RANKS", 0);
  place.local_ranks = place_number(variables, "TENON_LOCAL_RANKS", 1);
  place.control = text_or(variables, "TENON_CONTROL", "");
  place.token = text_or(variables, "TENON_TOKEN", "");
  if (place.ranks < 1 || place.rank >= place.ranks || variables("TENON_CONTROL") == nullptr ||
      variables("TENON_TOKEN") == nullptr) {
    fail_config(
        fmt::format("environment: TENON_RANK={} needs TENON_RANKS above it, TENON_CONTROL=HOST:PORT and "
                    "TENON_TOKEN; `tenon launch` sets all of them",
                    place.rank));
  }
  place.generation = place_number(variables, "TENON_GENERATION", -1);
  place.survives = place.generation >= 0;
  place.generation = std::max(0, place.generation);
  place.hosts_control = place.rank == 0 && variables("TENON_LAUNCHED") == nullptr;
  return place;
}

/// Nothing outside of a step of several tasks, or where TENON_SCHEDULER says not to look.
std::optional<SlurmStep> step_of_ranks(const Variables& variables) {
  const std::string scheduler = text_or(variables, "TENON_SCHEDULER", "slurm");
  if (scheduler != "slurm" && scheduler != "none")
    fail_config(fmt::format("environment: TENON_SCHEDULER='{}'; expected slurm or none", scheduler));
  if (scheduler == "none") return std::nullopt;
  std::optional<SlurmStep> step = read_slurm_step(variables);
  if (step && step->tasks == 1) step.reset();
  return step;
}

std::string control_of(const Variables& variables, const SlurmStep& step) {
  return text_or(variables, "TENON_CONTROL", step.control());
}

}  // namespace

ProcessPlace process_place(const Variables& variables, const std::string& transport) {
  ProcessPlace place = launched_place(variables);
  if (place.rank >= 0 || transport == "mpi" || transport == "openmpi" || transport == "mpich") return place;
  const std::optional<SlurmStep> step = step_of_ranks(variables);
  if (!step) return place;
  if (transport.empty() || transport == "thread") {
    fail_config(fmt::format(
        "this is task {} of the {} tasks of Slurm's step {}, but the ranks of this run are threads of "
        "one process, so that each task would train all of it; add --set transport.type=socket, "
        "start one task (srun -n 1), or set TENON_SCHEDULER=none for a run in each task",
        step->task, step->tasks, step->name()));
  }
  if (step->task == 0 && step->node != 0 && variables("TENON_CONTROL") == nullptr) {
    fail_config(fmt::format(
        "environment: task 0 of Slurm's step {} does not run on the step's first node {}, where the "
        "other ranks look for its control plane; export TENON_CONTROL=HOST:PORT with the node that "
        "runs task 0",
        step->name(), step->first_node));
  }
  place.rank = step->task;
  place.ranks = step->tasks;
  place.local_ranks = step->tasks_here;
  place.control = control_of(variables, *step);
  place.token = variables("TENON_TOKEN") != nullptr ? variables("TENON_TOKEN") : job_token(variables, *step);
  place.hosts_control = place.rank == 0;
  return place;
}

std::string place_text(const Variables& variables) {
  try {
    const ProcessPlace place = launched_place(variables);
    if (place.rank >= 0) {
      return fmt::format("rank {} of {}, from TENON_RANK; control plane at {}", place.rank, place.ranks,
                         place.control);
    }
    if (const std::optional<SlurmStep> step = step_of_ranks(variables)) {
      return fmt::format("task {} of {} in Slurm's step {}, {} of them on this machine; control plane at {}",
                         step->task, step->tasks, step->name(), step->tasks_here,
                         control_of(variables, *step));
    }
    const char* job = variables("SLURM_JOB_ID");
    return job == nullptr
               ? "none; a run is one process unless tenon launch, srun or mpirun starts more"
               : fmt::format("Slurm's job {}, outside of a step of several tasks; a run is one process", job);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tenon::cli
