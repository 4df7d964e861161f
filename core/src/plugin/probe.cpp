#include "plugin/probe.hpp"

#include "plugin/abi_tag.hpp"
#include "plugin/search.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

extern char** environ;

namespace tenon::plugin {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLongestAnswer = 4 << 20;
constexpr std::size_t kLastWords = 400;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  void reset(int fd) {
    close();
    fd_ = fd;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_run(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  Fd read_end, write_end;
};

// Takes what is there; closes the end when the other side did, or when the plugin floods us.
void drain(Fd& from, std::string& into) {
  std::array<char, 4096> block;
  while (from.get() >= 0) {
    const ssize_t got = ::read(from.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || into.size() + static_cast<std::size_t>(got) > kLongestAnswer) return from.close();
    into.append(block.data(), static_cast<std::size_t>(got));
  }
}

class Child {
 public:
  Child(const std::filesystem::path& program, const std::filesystem::path& file) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    // The words go first: descriptor 3 may be the write end of either pipe, and must not be overwritten
    // before use.
    ::posix_spawn_file_actions_adddup2(&actions, words_.write_end.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, words_.write_end.get(), STDERR_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, answer_.write_end.get(), kProbeFd);
    // A group of its own, so that what the plugin starts is ended with it.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    std::string name = program.string(), argument = file.string();
    char* const arguments[] = {name.data(), argument.data(), nullptr};
    const int status = ::posix_spawn(&pid_, name.c_str(), &actions, &attributes, arguments, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    words_.write_end.close();
    answer_.write_end.close();
    if (status != 0) {
      pid_ = -1;
      fail_run(fmt::format("cannot start '{}': {}", name, std::strerror(status)));
    }
  }
  ~Child() {
    if (pid_ > 0) kill_and_reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// False when the time limit passed first; the child is then killed. `status` is that of waitpid.
  bool wait(Clock::time_point deadline, int& status) {
    while (true) {
      pollfd ends[] = {{answer_.read_end.get(), POLLIN, 0}, {words_.read_end.get(), POLLIN, 0}};
      // A short slice: the child may end while something it started keeps the pipes open.
      ::poll(ends, 2, 2);
      drain(answer_.read_end, answer);
      drain(words_.read_end, words);
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        drain(answer_.read_end, answer);
        drain(words_.read_end, words);
        return true;
      }
      if (Clock::now() >= deadline) {
        kill_and_reap();
        return false;
      }
    }
  }

  std::string answer, words;

 private:
  void kill_and_reap() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);  // the group may not exist yet
    int ignored;
    while (::waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
  }

  Pipe answer_, words_;
  pid_t pid_ = -1;
};

std::string last_words(std::string words) {
  while (!words.empty() && words.back() == '\n') words.pop_back();
  if (words.empty()) return "";
  if (words.size() > kLastWords) words = "..." + words.substr(words.size() - kLastWords);
  return fmt::format(" Its last words: {}", words);
}

// Splits off the line at the front of `text`.
std::string_view take_line(std::string_view& text) {
  const std::size_t end_of_line = text.find('\n');
  const std::string_view line = text.substr(0, end_of_line);
  text.remove_prefix(end_of_line == std::string_view::npos ? text.size() : end_of_line + 1);
  return line;
}

}  // namespace

std::filesystem::path probe_program() {
  const std::filesystem::path here = core_folder();
  std::error_code ignored;
  // The library folder may be lib or lib/<architecture>.
  for (const char* up : {"..", "../.."}) {
    std::filesystem::path program = (here / up / "libexec" / "tenon" / "tenon_probe").lexically_normal();
    if (std::filesystem::exists(program, ignored)) return program;
  }
  return here / "../libexec/tenon/tenon_probe";
}

ProbeResult probe_plugin(const ProbeRequest& request) {
  std::error_code failure;
  const std::filesystem::path file = std::filesystem::canonical(request.file, failure);
  if (failure) return {false, {}, cannot_load(request.file, failure.message() + ".")};

  Child child(request.program.empty() ? probe_program() : request.program, file);
  int status = 0;
  const bool ended = child.wait(Clock::now() + request.time_limit, status);

  std::string_view rest = child.answer;
  std::string stage = "starting the probe";
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    if (line.substr(0, 6) == "stage ") {
      stage = line.substr(6);
    } else if (line == "error") {
      return {false, {}, std::string(rest)};
    } else if (line == "description") {
      if (auto description = from_lines(rest)) return {true, std::move(*description), ""};
      break;
    } else {
      break;
    }
  }
  std::string how;
  if (!ended) {
    how = fmt::format("{} did not end within {} s, it was killed", stage,
                      static_cast<double>(request.time_limit.count()) / 1000);
  } else if (WIFSIGNALED(status)) {
    how = fmt::format("{} ended the process with signal {} ({})", stage, WTERMSIG(status),
                      ::sigdescr_np(WTERMSIG(status)));
  } else {
    how = fmt::format("{} ended the process with exit status {}", stage, WEXITSTATUS(status));
  }
  return {
      false,
      {},
      cannot_load(file, fmt::format("{}. It ran in a child process only.{}", how, last_words(child.words)))};
}

}  // namespace tenon::plugin
