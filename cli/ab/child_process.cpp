// Spawning and watching children; see child_process.hpp.
#include "ab/child_process.hpp"

#include "process/spawn.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::ab {
namespace {

ExitState exit_state(int status) {
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::string& log) {
  process::ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  files.open(STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC);
  files.copy(STDOUT_FILENO, STDERR_FILENO);
  const int error = process::spawn({command[0], {command.begin() + 1, command.end()}, {}}, files, pid_);
  if (error != 0) {
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
