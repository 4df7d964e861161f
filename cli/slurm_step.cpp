// Reads and checks the variables of slurm_step.hpp.
#include "slurm_step.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <vector>

namespace tenon::cli {
namespace {

constexpr std::int64_t kFirstPort = 20000, kPorts = 10000, kStepsOfJob = 100;

[[noreturn]] void refuse_step(const std::string& what) {
  fail_config(fmt::format(
      "environment: {}; start the ranks by srun, or set TENON_SCHEDULER=none and Slurm's variables "
      "are not read",
      what));
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The variables of one process, each with the bounds that it has.
class SlurmVariables {
 public:
  explicit SlurmVariables(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return variables_(name) != nullptr; }
  std::string_view text(const char* name) const {
    const char* found = variables_(name);
    if (found == nullptr)
      refuse_step(fmt::format("Slurm's variable {} is missing beside SLURM_STEP_NUM_TASKS", name));
    return found;
  }
  std::int64_t number(const char* name, std::int64_t least, std::int64_t most) const {
    const std::string_view found = text(name);
    const std::optional<std::int64_t> value = whole_number(found);
    if (!value || *value < least || *value > most) {
      refuse_step(fmt::format("{}='{}' is not a whole number from {} to {}", name, found, least, most));
    }
    return *value;
  }

 private:
  const Variables& variables_;
};

/// Tasks of each node of "2(x3),1": 2, 2, 2, 1.
std::vector<int> tasks_by_node(std::string_view text) {
  constexpr std::int64_t kMost = 1'000'000;
  std::vector<int> tasks;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    std::string_view entry = rest.substr(0, comma);
    std::optional<std::int64_t> repeats = 1;
    if (const std::size_t open = entry.find("(x"); open != std::string_view::npos) {
      const bool closed = entry.back() == ')';
      repeats = closed ? whole_number(entry.substr(open + 2, entry.size() - open - 3)) : std::nullopt;
      entry = entry.substr(0, open);
    }
    const std::optional<std::int64_t> count = whole_number(entry);
    if (!count || !repeats || *count < 0 || *count > kMost || *repeats < 1 || *repeats > kMost) {
      refuse_step(fmt::format(
          "SLURM_STEP_TASKS_PER_NODE='{}' is no list of numbers of tasks, such as '2(x3),1'", text));
    }
    tasks.insert(tasks.end(), *repeats, static_cast<int>(*count));
    if (comma == std::string_view::npos) return tasks;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

Variables process_variables() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::string first_host(std::string_view list) {
  const auto refuse = [&] {
    refuse_step(fmt::format("SLURM_STEP_NODELIST='{}' is no list of nodes, such as 'n[1-3,7],m2'", list));
  };
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    const char c = list[at];
    if (c != '[') {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!letter && c != '-' && c != '.' && c != '_') refuse();
      host += c;
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) refuse();
    const std::string_view ranges = list.substr(at + 1, close - at - 1);
    const std::string_view first = ranges.substr(0, ranges.find_first_of("-,"));
    if (first.empty() || ranges.find_first_not_of("0123456789-,") != std::string_view::npos) refuse();
    host += first;
    at = close;
  }
  if (host.empty()) refuse();
  return host;
}

std::string SlurmStep::name() const {
  return fmt::format("{}.{}", job, step);
}

std::string SlurmStep::control() const {
  return fmt::format("{}:{}", nodes == 1 ? "127.0.0.1" : first_node,
                     kFirstPort + (kStepsOfJob * job + step) % kPorts);
}

std::optional<SlurmStep> read_slurm_step(const Variables& variables) {
  const SlurmVariables slurm(variables);
  // srun alone sets it. A batch script has SLURM_PROCID=0 and SLURM_NTASKS as well.
  if (!slurm.has("SLURM_STEP_NUM_TASKS")) return std::nullopt;
  constexpr std::int64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  constexpr std::int64_t kMostTasks = 1'000'000;
  SlurmStep step;
  step.tasks = static_cast<int>(slurm.number("SLURM_STEP_NUM_TASKS", 1, kMostTasks));
  step.task = static_cast<int>(slurm.number("SLURM_PROCID", 0, kMostTasks));
  if (step.task >= step.tasks) {
    refuse_step(fmt::format("SLURM_PROCID={} is no task of the step, whose SLURM_STEP_NUM_TASKS is {}",
                            step.task, step.tasks));
  }
  step.job = slurm.number("SLURM_JOB_ID", 1, kLargest);
  step.step = slurm.number("SLURM_STEP_ID", 0, kLargest);
  if (slurm.has("SLURM_RESTART_COUNT"))
    step.restarts = static_cast<int>(slurm.number("SLURM_RESTART_COUNT", 0, kMostTasks));
  if (slurm.has("SLURM_HET_SIZE") && slurm.number("SLURM_HET_SIZE", 0, kMostTasks) > 1) {
    fail_config(
        "environment: SLURM_HET_SIZE says that this is a heterogeneous job, whose components number their "
        "nodes "
        "apart; set TENON_RANK, TENON_RANKS, TENON_CONTROL and TENON_TOKEN (docs/processes.md)");
  }
  step.first_node = first_host(slurm.text("SLURM_STEP_NODELIST"));
  const std::vector<int> tasks = tasks_by_node(slurm.text("SLURM_STEP_TASKS_PER_NODE"));
  step.nodes = static_cast<int>(tasks.size());
  step.node = static_cast<int>(slurm.number("SLURM_NODEID", 0, step.nodes - 1));
  step.tasks_here = tasks[step.node];
  std::int64_t sum = 0;
  for (const int count : tasks) sum += count;
  if (sum != step.tasks || step.tasks_here < 1) {
    refuse_step(
        fmt::format("SLURM_STEP_TASKS_PER_NODE='{}' at SLURM_NODEID={} contradicts "
                    "SLURM_STEP_NUM_TASKS={}",
                    slurm.text("SLURM_STEP_TASKS_PER_NODE"), step.node, step.tasks));
  }
  return step;
}

}  // namespace tenon::cli
