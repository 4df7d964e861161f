// One socket for both directions: a process that is gone is an error
// of send(), not a signal.
#include "simulate/worker_process.hpp"

#include "process/spawn.hpp"
#include "simulate/worker.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tenon::simulate {
namespace {

constexpr std::size_t kKeptWords = 400;

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

}  // namespace

WorkerProcess::WorkerProcess(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2], words[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail_run(fmt::format("cannot make a socket for a worker: {}", std::strerror(errno)));
  if (::pipe2(words, O_CLOEXEC) != 0) {
    const int code = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    fail_run(fmt::format("cannot make a pipe for a worker: {}", std::strerror(code)));
  }
  process::ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  files.copy(words[1], STDOUT_FILENO);
  files.copy(words[1], STDERR_FILENO);
  files.copy(ends[1], kAnswerDescriptor);
  // A group of its own: Ctrl-C is for this program to act upon. The tasks are what runs in parallel; a worker
  // with threads of its own would take the others' processors.
  const int status = process::spawn({program, arguments, {"OMP_NUM_THREADS=1"}}, files, pid_);
  ::close(ends[1]);
  ::close(words[1]);
  socket_ = ends[0];
  words_fd_ = words[0];
  if (status != 0) {
    close_if_open(socket_);
    close_if_open(words_fd_);
    fail_run(fmt::format("cannot start a worker, '{}': {}", program, std::strerror(status)));
  }
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  ::fcntl(words_fd_, F_SETFL, O_NONBLOCK);
}

WorkerProcess::~WorkerProcess() {
  end();
  close_if_open(socket_);
  close_if_open(words_fd_);
}

bool WorkerProcess::send(const Order& order) {
  const std::string line = order_line(order);
  return ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

void WorkerProcess::drain() {
  std::array<char, 4096> block;
  const auto take = [&](int& descriptor, auto&& use) {
    while (descriptor >= 0) {
      const ssize_t got = ::read(descriptor, block.data(), block.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return close_if_open(descriptor);
      use(std::string_view(block.data(), static_cast<std::size_t>(got)));
    }
  };
  take(words_fd_, [&](std::string_view bytes) {
    last_words_ += bytes;
    if (last_words_.size() > kKeptWords) last_words_.erase(0, last_words_.size() - kKeptWords);
  });
  take(socket_, [&](std::string_view bytes) { lines_.add(bytes); });
}

bool WorkerProcess::next(Answer& answer) {
  drain();
  std::string line;
  if (!lines_.next(line)) return false;
  answer = parse_answer(line);
  return true;
}

bool WorkerProcess::ended() {
  if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) {
    ::kill(-pid_, SIGKILL);  // what it started
    pid_ = -1;
    drain();
  }
  return pid_ < 0;
}

std::string WorkerProcess::how_it_ended() const {
  std::string text = "its process " + process::how_it_ended(status_);
  std::string words = last_words_;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.empty() ? text : text + "; its last words: " + words;
}

void WorkerProcess::end() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // the group may not exist yet
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
}

}  // namespace tenon::simulate
