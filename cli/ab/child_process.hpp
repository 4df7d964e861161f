// Child processes with their output in a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tenon::ab {

/// How a child ended.
struct ExitState {
  int status = 0;  ///< exit status; 128 + signal if a signal ended it
  int signal = 0;
};

/// One child in a process group of its own, so that a signal of the terminal reaches it only through us.
/// Standard input is /dev/null; standard output and error go to `log`, which is emptied first. Killed if
/// still alive at destruction.
class ChildProcess {
 public:
  /// Throws Error(kRun) if the program cannot be started.
  ChildProcess(const std::vector<std::string>& command, const std::string& log);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// The exit state once it has ended; does not wait.
  std::optional<ExitState> poll();
  /// Sends a signal to the child's process group; does nothing once it has ended.
  void send(int signal);

 private:
  pid_t pid_ = -1;
};

/// The last `lines` lines of a file, at most 8 KiB; "" if it cannot be read.
std::string tail_of(const std::string& path, std::size_t lines);

}  // namespace tenon::ab
