#include "plugin/child_process.hpp"

#include "base/file_descriptor.hpp"
#include "process/spawn.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tenon::plugin {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLongestAnswer = 4 << 20;
constexpr std::size_t kLastWords = 400;

// Takes what is there; closes the end when the other side did, or when the plugin floods us.
void take(base::FileDescriptor& from, std::string& into) {
  base::drain(from, [&](std::string_view bytes) {
    if (into.size() + bytes.size() > kLongestAnswer) return from.reset();
    into.append(bytes);
  });
}

class Child {
 public:
  explicit Child(const ChildRequest& request) {
    process::ChildFiles files;
    files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
    // The words go first: descriptor 3 may be the write end of either pipe, and must not be overwritten
    // before use.
    files.copy(words_.write_end.get(), STDOUT_FILENO);
    files.copy(words_.write_end.get(), STDERR_FILENO);
    files.copy(answer_.write_end.get(), kAnswerFd);
    // A group of its own, so that what the plugin starts is ended with it.
    const int status =
        process::spawn({request.program.string(), request.arguments, request.environment}, files, pid_);
    words_.write_end.reset();
    answer_.write_end.reset();
    if (status != 0)
      fail_run(fmt::format("cannot start '{}': {}", request.program.string(), std::strerror(status)));
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
      take(answer_.read_end, answer);
      take(words_.read_end, words);
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        take(answer_.read_end, answer);
        take(words_.read_end, words);
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

  base::Pipe answer_, words_;
  pid_t pid_ = -1;
};

}  // namespace

ChildResult run_child(const ChildRequest& request) {
  Child child(request);
  ChildResult result;
  result.ended = child.wait(Clock::now() + request.time_limit, result.status);
  result.answer = std::move(child.answer);
  result.words = std::move(child.words);
  return result;
}

std::string how_it_ended(const ChildResult& result, std::chrono::milliseconds time_limit) {
  if (!result.ended) {
    return fmt::format("did not end within {} s, it was killed",
                       static_cast<double>(time_limit.count()) / 1000);
  }
  if (WIFSIGNALED(result.status)) {
    return fmt::format("ended the process with signal {} ({})", WTERMSIG(result.status),
                       process::signal_text(WTERMSIG(result.status)));
  }
  return fmt::format("ended the process with exit status {}", WEXITSTATUS(result.status));
}

std::string last_words(const std::string& words) {
  std::string text = words;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) return "";
  if (text.size() > kLastWords) text = "..." + text.substr(text.size() - kLastWords);
  return fmt::format(" Its last words: {}", text);
}

}  // namespace tenon::plugin
