// Spawning and watching children; see child_process.hpp. posix_spawn, because a fork of a process with OpenMP
// threads may not do much before exec.
#include "ab/child_process.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace tenon::ab {
namespace {

struct SpawnSettings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

ExitState exit_state(int status) {
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::string& log) {
  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&settings.files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawn_file_actions_adddup2(&settings.files, STDOUT_FILENO, STDERR_FILENO);
  // The parent blocks signals while it watches; a child that inherited that could not be stopped.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  // A shell starts background jobs with SIGINT ignored, and that is inherited too.
  sigset_t usual;
  sigemptyset(&usual);
  for (int s : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&usual, s);
  posix_spawnattr_setsigdefault(&settings.attributes, &usual);
  posix_spawnattr_setpgroup(&settings.attributes, 0);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&pid_, arguments[0], &settings.files, &settings.attributes, arguments.data(), environ);
  if (error != 0) {
    pid_ = -1;
    fail_run(
        fmt::format("cannot start '{}' with its output in {}: {}", command[0], log, std::strerror(error)));
  }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);  // a killed child ends at once
}

std::optional<ExitState> ChildProcess::poll() {
  if (pid_ < 0) return ExitState{};
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == 0) return std::nullopt;
  pid_ = -1;
  if (ended < 0) return ExitState{1, 0};  // someone else has reaped it; its success is unknown
  return exit_state(status);
}

void ChildProcess::send(int signal) {
  if (pid_ > 0) kill(-pid_, signal);
}

struct SignalWatch::Mask {
  sigset_t set;
};

SignalWatch::SignalWatch() : saved_(std::make_unique<Mask>()) {
  sigset_t watched;
  sigemptyset(&watched);
  for (int s : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&watched, s);
  pthread_sigmask(SIG_BLOCK, &watched, &saved_->set);
  fd_ = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) {
    pthread_sigmask(SIG_SETMASK, &saved_->set, nullptr);
    fail_run(fmt::format("cannot watch signals: {}", std::strerror(errno)));
  }
}

SignalWatch::~SignalWatch() {
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &saved_->set, nullptr);
}

int SignalWatch::wait(std::chrono::milliseconds timeout) {
  pollfd ready{fd_, POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(timeout.count()));
  int asked = 0;
  signalfd_siginfo info{};
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) asked = static_cast<int>(info.ssi_signo);
  }
  return asked;
}

std::string tail_of(const std::string& path, std::size_t lines) {
  constexpr std::streamoff kMost = 8192;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kMost));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::size_t begin = text.size();
  for (std::size_t seen = 0; begin > 0; --begin) {
    if (text[begin - 1] == '\n' && ++seen == lines) break;
  }
  return text.substr(begin);
}

}  // namespace tenon::ab
