// Starts, watches and ends every child process of this tree. Children are spawned, never forked, since
// threads may exist. They get their signals as from a shell, whatever this process does about its own. Also
// texts for a child's end.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace tenon::base {

struct ChildRequest {
  std::filesystem::path program;         ///< without '/', searched for in PATH
  std::vector<std::string> arguments;    ///< without the program's name
  std::vector<std::string> environment;  ///< "NAME=value", beside or in place of this process's own
  bool own_group = true;  ///< so that a signal of the terminal reaches it only through this process
};

/// Changes to the descriptors of a child, in order; the others are inherited as they are, or closed on exec.
class ChildFiles {
 public:
  ChildFiles();
  ~ChildFiles();
  ChildFiles(const ChildFiles&) = delete;
  ChildFiles& operator=(const ChildFiles&) = delete;

  void open(int descriptor, const std::string& path, int flags);
  void copy(int from, int to);
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// One child, or none. Killed with its group if it still runs at destruction.
class ChildProcess {
 public:
  ChildProcess() = default;
  ~ChildProcess() { kill(); }
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  /// Returns 0, or an error number. There must be no child yet.
  int start(const ChildRequest& request, const ChildFiles& files);
  /// Started, and not known to have ended.
  bool running() const { return running_; }
  /// Whether it has ended; does not wait.
  bool ended();
  /// The status that waitpid returned once it has ended; exit status 1 if another caller has reaped it.
  int status() const { return status_; }
  /// To the process, or to the whole group of its own; nothing once it has ended.
  void signal(int signal) const;
  void signal_group(int signal) const;
  /// Kills it and its own group, and waits for its end.
  void kill();
  /// Kills what remains in its own group of the processes that it started.
  void kill_remains() const;
  pid_t id() const { return id_; }

 private:
  pid_t id_ = -1;
  bool running_ = false, own_group_ = false;
  int status_ = 0;
};

/// Descriptor that the child of run_child answers on; its standard output may belong to plugins.
inline constexpr int kAnswerFd = 3;

struct ChildResult {
  bool ended = false;  ///< false: the time limit passed first, and it was killed with all that it started
  int status = 0;      ///< of waitpid, when ended
  std::string answer;  ///< what it wrote to kAnswerFd
  std::string words;   ///< what it wrote to standard output and standard error
};

/// Runs a child to its end, so that its crash, exit or hang costs nothing. Error(kRun) when none can be
/// started.
ChildResult run_child(const ChildRequest& request, std::chrono::milliseconds time_limit);

/// Call before this process executes another program: restores the signals that a child would get.
void restore_signals_for_exec();

/// "was killed by signal 9 (Killed)", "ended with exit status 3", of a status of waitpid. The C library has
/// no words for signals of real time.
std::string describe_exit(int status);
/// "ended the process with signal 11 (Segmentation fault)", "did not end within 10 s, it was killed", ...
std::string describe_exit(const ChildResult& result, std::chrono::milliseconds time_limit);
/// " Its last words: TEXT" on one line, shortened; "" when there were none.
std::string last_words(const std::string& words);

}  // namespace tenon::base
