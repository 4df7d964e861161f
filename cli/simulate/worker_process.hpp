// A worker process as the program sees it: started, spoken to over a socket, watched, ended. It never waits.
#pragma once

#include "simulate/messages.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace tenon::simulate {

class WorkerProcess {
 public:
  /// Error(kRun) when it cannot be started.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments);
  /// Kills it if it still runs.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  int answers() const { return socket_; }
  int words() const { return words_fd_; }
  /// False when nobody is there to read it.
  bool send(const Order& order);
  /// Takes what has arrived. True: `answer` is the next one. Error(kRun) when what it says cannot be
  /// understood.
  bool next(Answer& answer);
  /// Whether it has ended; then how_it_ended() says how, with its last words.
  bool ended();
  std::string how_it_ended() const;
  /// Kills it, with all that it started.
  void end();

 private:
  void drain();

  pid_t pid_ = -1;
  int socket_ = -1, words_fd_ = -1;
  int status_ = 0;
  Lines lines_;
  std::string last_words_;
};

}  // namespace tenon::simulate
