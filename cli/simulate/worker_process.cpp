// One socket for both directions: for a process that is gone, send() fails without a signal.
#include "simulate/worker_process.hpp"

#include "simulate/worker.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tenon::simulate {
namespace {

constexpr std::size_t kKeptWords = 400;

}  // namespace

WorkerProcess::WorkerProcess(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail_run(fmt::format("cannot make a socket for a worker: {}", std::strerror(errno)));
  socket_.reset(ends[0]);
  const base::FileDescriptor far_end(ends[1]);
  base::Pipe words(" for a worker");
  base::ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  files.copy(words.write_end.get(), STDOUT_FILENO);
  files.copy(words.write_end.get(), STDERR_FILENO);
  files.copy(far_end.get(), kAnswerDescriptor);
  // A group of its own: this program handles Ctrl-C. The tasks run in parallel; a worker with several threads
  // would take processors from the others.
  const int status = child_.start({program, arguments, {"OMP_NUM_THREADS=1"}}, files);
  if (status != 0) fail_run(fmt::format("cannot start a worker, '{}': {}", program, std::strerror(status)));
  words_ = std::move(words.read_end);
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
}

bool WorkerProcess::send(const Order& order) {
  const std::string line = order_line(order);
  return ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

void WorkerProcess::drain() {
  base::drain(words_, [&](std::string_view bytes) {
    last_words_ += bytes;
    if (last_words_.size() > kKeptWords) last_words_.erase(0, last_words_.size() - kKeptWords);
  });
  base::drain(socket_, [&](std::string_view bytes) { lines_.add(bytes); });
}

bool WorkerProcess::next(Answer& answer) {
  drain();
  std::string line;
  if (!lines_.next(line)) return false;
  answer = parse_answer(line);
  return true;
}

bool WorkerProcess::ended() {
  if (child_.running() && child_.ended()) {
    child_.kill_remains();
    drain();
  }
  return !child_.running();
}

std::string WorkerProcess::how_it_ended() const {
  std::string text = "its process " + base::how_it_ended(child_.status());
  std::string words = last_words_;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.empty() ? text : text + "; its last words: " + words;
}

}  // namespace tenon::simulate
