// The rank processes that `tenon launch` starts: separate outputs, detected ends, no leftover processes.
#pragma once

#include "base/child_process.hpp"
#include "base/file_descriptor.hpp"

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::cli {

struct RankProcess {
  int rank = 0;
  std::vector<std::string> environment;  ///< "NAME=value", beside or in place of this process's own
};

/// poll() belongs to one thread; the rest is thread-safe.
class RankProcesses {
 public:
  /// Starts `program arguments...` once per entry. The first entry's process writes to this one's outputs;
  /// for the others standard error is kept. Throws Error(kRun) if one cannot be started; those started before
  /// are killed.
  RankProcesses(const std::string& program, const std::vector<std::string>& arguments,
                const std::vector<RankProcess>& processes);
  /// Kills the remaining processes.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Reads output and ends, waiting at most `limit` for either. Returns true once all have ended.
  bool poll(std::chrono::milliseconds limit);
  void kill_all();
  void kill(int rank);
  /// Replaces a process that has ended, with arguments of its own.
  void start_again(const RankProcess& process, const std::vector<std::string>& arguments);
  /// Sends `signal` to the remaining processes.
  void signal_all(int signal) const;

  /// "its process was killed by signal 9 (Killed)", "its process ended with exit status 3"; "" while it runs,
  /// and for ranks of other machines.
  std::string describe_exit(int rank) const;
  bool ended(int rank) const;
  /// The first of these processes that ended badly; -1 when none.
  int first_bad_rank() const;
  /// Returns true if it exited with an error, which it has reported itself.
  bool spoke_for_itself(int rank) const;
  /// The end of its standard error.
  std::string last_words(int rank) const;
  /// The largest exit status; 1 for a signal.
  int exit_status() const;

 private:
  struct Child {
    int rank = 0;
    base::ChildProcess process;
    base::FileDescriptor words_end;  // none: not kept, or closed
    std::string words;

    bool ended() const { return !process.running(); }
  };
  Child start(const RankProcess& process, const std::vector<std::string>& arguments, bool keeps_words) const;
  static void end(Child& child);
  static void drain(Child& child);
  const Child* find(int rank) const;

  const std::string program_;
  mutable std::mutex mutex_;
  std::vector<Child> children_;
  int first_bad_ = -1;
};

}  // namespace tenon::cli
