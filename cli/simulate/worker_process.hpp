// A worker process as seen by the program: started, connected by a socket, watched, ended. No call waits.
#pragma once

#include "simulate/messages.hpp"

#include "base/child_process.hpp"
#include "base/file_descriptor.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace tenon::simulate {

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
  /// Returns whether it has ended; then how_it_ended() describes how, with its last output.
  bool ended();
  std::string how_it_ended() const;
  /// Kills it and all processes that it started; so does the destructor.
  void end() { child_.kill(); }

 private:
  void drain();

  base::FileDescriptor socket_, words_;
  base::ChildProcess child_;
  Lines lines_;
  std::string last_words_;
};

}  // namespace tenon::simulate
