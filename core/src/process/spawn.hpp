// How every child process of this tree is started: spawned, never forked, since threads may exist, and with
// the signals as a shell gives them, whatever this process does about its own. And the words for a child's
// end.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace tenon::process {

struct SpawnRequest {
  std::string program;                   ///< a path; without '/', searched for in PATH
  std::vector<std::string> arguments;    ///< without the program's name
  std::vector<std::string> environment;  ///< "NAME=value", beside or in place of this process's own
  bool own_group = true;  ///< so that a signal of the terminal reaches it only through this process
};

/// What becomes of the descriptors of a child, in order; the others go on as they are, or are closed on exec.
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

/// Returns 0 and the child, or an error number.
int spawn(const SpawnRequest& request, const ChildFiles& files, pid_t& child);
/// Before this process becomes another program: what a child would find.
void restore_signals_for_exec();

/// "Killed"; the C library has no words for signals of real time.
const char* signal_text(int signal);
/// "was killed by signal 9 (Killed)", "ended with exit status 3", of a status of waitpid.
std::string how_it_ended(int status);

}  // namespace tenon::process
