// A worker process as the program sees it: started, spoken to over a socket, watched, ended. It never waits.
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
  /// Error(kRun) when it cannot be started.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments);

  pid_t pid() const { return child_.id(); }
  int answers() const { return socket_.get(); }
  int words() const { return words_.get(); }
  /// False when nobody is there to read it.
  bool send(const Order& order);
  /// Takes what has arrived. True: `answer` is the next one. Error(kRun) when what it says cannot be
  /// understood.
  bool next(Answer& answer);
  /// Whether it has ended; then how_it_ended() says how, with its last words.
  bool ended();
  std::string how_it_ended() const;
  /// Kills it, with all that it started; so does the destructor.
  void end() { child_.kill(); }

 private:
  void drain();

  base::FileDescriptor socket_, words_;
  base::ChildProcess child_;
  Lines lines_;
  std::string last_words_;
};

}  // namespace tenon::simulate
