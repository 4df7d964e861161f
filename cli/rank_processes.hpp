// The rank processes that `tenon launch` starts: output kept apart, ends noticed, nothing left behind.
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
  /// Starts `program arguments...` once per entry. The first entry's process writes where this one writes; of
  /// the others standard error is kept. Throws Error(kRun) when one cannot be started; those before it are
  /// killed.
  RankProcesses(const std::string& program, const std::vector<std::string>& arguments,
                const std::vector<RankProcess>& processes);
  /// Kills what still runs.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Takes output and ends, waiting at most `limit` for either. Returns true once all have ended.
  bool poll(std::chrono::milliseconds limit);
  void kill_all();
  void kill(int rank);
  /// In place of one that has ended, with arguments of its own.
  void start_again(const RankProcess& process, const std::vector<std::string>& arguments);
  /// Sends `signal` to what still runs.
  void signal_all(int signal) const;

  /// "its process was killed by signal 9 (Killed)", "its process ended with exit status 3"; "" while it runs,
  /// and for ranks of other machines.
  std::string how_it_ended(int rank) const;
  bool ended(int rank) const;
  /// The first of these processes that ended badly; -1 when none.
  int first_bad_rank() const;
  /// True if it ended by itself with an error, and so has said why.
  bool spoke_for_itself(int rank) const;
  /// End of what it wrote to standard error.
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
