// The worker processes of a simulation: they pull tasks until nothing is left; a worker that dies or takes
// too long is replaced and its task repeated.
#pragma once

#include "simulate/result_folder.hpp"
#include "simulate/tasks.hpp"
#include "simulate/worker.hpp"
#include "simulate/worker_process.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::simulate {

struct PoolResult {
  /// Why it ended before every sample was settled: "", "stopped" (on request), "timeout_s is over".
  std::string cut_short;
  double wall_s = 0;
  double busy_s = 0;              ///< of all workers together: from an order to its answer
  std::int64_t lost_workers = 0;  ///< died or were killed
};

class Pool {
 public:
  /// `program`: executable of the workers.
  Pool(ResultFolder& folder, Tasks& tasks, const Settings& settings, WorkerSpec worker, std::string program);

  /// Runs until everything is settled. `between` is called ten times a second or more often; once it returns
  /// false no task is begun and running ones are waited for. Throws Error(kRun) if results cannot be written
  /// or no worker can be started; finished samples are recorded before.
  PoolResult run(const std::function<bool()>& between);

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    std::unique_ptr<WorkerProcess> process;
    bool ready = false;
    bool busy = false;
    std::int64_t index = 0;
    std::string progress;  ///< "step 12 of 100", for messages
    Clock::time_point begun;
  };

  void staff(bool begin_tasks);
  void listen(std::chrono::milliseconds limit);
  void hear(Slot& slot);
  void take_answer(Slot& slot, const Answer& answer);
  void enforce_limit(Slot& slot);
  void lost(Slot& slot, const std::string& how);
  void rest(Slot& slot);
  Fate fate_of(const Tasks::Next& next) const;

  ResultFolder& folder_;
  Tasks& tasks_;
  Settings settings_;
  WorkerSpec worker_;
  std::string program_;
  std::vector<Slot> slots_;
  int failed_starts_ = 0;  ///< in a row
  PoolResult result_;
};

}  // namespace tenon::simulate
