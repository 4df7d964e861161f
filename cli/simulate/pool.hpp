// The worker processes of a simulation: they pull tasks until nothing is left; a worker that dies or takes
// too long is replaced and its task repeated.
#pragma once

#include "simulate/messages.hpp"
#include "simulate/result_folder.hpp"
#include "simulate/tasks.hpp"
#include "simulate/worker.hpp"

#include "base/child_process.hpp"
#include "base/file_descriptor.hpp"

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::simulate {

/// A worker process as seen by the program: started, connected by a socket, watched, ended. No call waits.
/// One socket for both directions: for a process that is gone, send() fails without a signal.
class WorkerProcess {
 public:
  /// Throws Error(kRun) if it cannot be started.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments);

  pid_t pid() const { return child_.id(); }
  int answers() const { return socket_.get(); }
  int words() const { return words_.get(); }
  /// Returns false if the process no longer reads.
  bool send(const Order& order);
  /// Reads what has arrived. Returns true with the next `answer`. Throws Error(kRun) for an invalid message.
  bool next(Answer& answer);
  /// Returns whether it has ended; then describe_exit() describes how, with its last output.
  bool ended();
  std::string describe_exit() const;
  /// Kills it and all processes that it started; so does the destructor.
  void end() { child_.kill(); }

 private:
  void drain();

  base::FileDescriptor socket_, words_;
  base::ChildProcess child_;
  Lines lines_;
  std::string last_words_;
};

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
