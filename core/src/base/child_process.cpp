#include "base/child_process.hpp"

#include "base/elapsed.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace tenon::base {
namespace {

constexpr std::size_t kLongestAnswer = 4 << 20;
constexpr std::size_t kLastWords = 400;

/// Signals that this program takes, blocks or ignores, or was started without.
sigset_t usual_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE, SIGXFSZ, SIGCHLD}) ::sigaddset(&set, signal);
  return set;
}

std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> result;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(more.begin(), more.end(),
                                      [&](const std::string& setting) { return setting.starts_with(name); });
    if (!replaced) result.emplace_back(text);
  }
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

/// As exec wants them: null-terminated, into `texts`.
std::vector<char*> exec_pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

const char* signal_text(int signal) {
  const char* const text = ::sigdescr_np(signal);
  return text == nullptr ? "a signal without a name" : text;
}

// Takes what is there; closes the end when the other side did, or when the child floods us.
void take(FileDescriptor& from, std::string& into) {
  drain(from, [&](std::string_view bytes) {
    if (into.size() + bytes.size() > kLongestAnswer) return from.reset();
    into.append(bytes);
  });
}

}  // namespace

ChildFiles::ChildFiles() {
  ::posix_spawn_file_actions_init(&actions_);
}

ChildFiles::~ChildFiles() {
  ::posix_spawn_file_actions_destroy(&actions_);
}

void ChildFiles::open(int descriptor, const std::string& path, int flags) {
  ::posix_spawn_file_actions_addopen(&actions_, descriptor, path.c_str(), flags, 0644);
}

void ChildFiles::copy(int from, int to) {
  ::posix_spawn_file_actions_adddup2(&actions_, from, to);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : id_(other.id_),
      running_(std::exchange(other.running_, false)),
      own_group_(other.own_group_),
      status_(other.status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  kill();
  id_ = other.id_;
  running_ = std::exchange(other.running_, false);
  own_group_ = other.own_group_;
  status_ = other.status_;
  return *this;
}

int ChildProcess::start(const ChildRequest& request, const ChildFiles& files) {
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  const sigset_t usual = usual_signals();
  ::posix_spawnattr_setsigdefault(&attributes, &usual);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  const int group = request.own_group ? POSIX_SPAWN_SETPGROUP : 0;
  ::posix_spawnattr_setflags(&attributes,
                             static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
  std::vector<std::string> words{request.program.string()};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  std::vector<std::string> settings = environment_with(request.environment);
  const int status = ::posix_spawnp(&id_, request.program.c_str(), files.get(), &attributes,
                                    exec_pointers(words).data(), exec_pointers(settings).data());
  ::posix_spawnattr_destroy(&attributes);
  running_ = status == 0;
  own_group_ = request.own_group;
  if (!running_) id_ = -1;
  return status;
}

bool ChildProcess::ended() {
  if (!running_) return true;
  const pid_t ended = ::waitpid(id_, &status_, WNOHANG);
  if (ended == 0) return false;
  if (ended < 0) status_ = W_EXITCODE(1, 0);
  running_ = false;
  return true;
}

void ChildProcess::signal(int signal) const {
  if (running_) ::kill(id_, signal);
}

void ChildProcess::signal_group(int signal) const {
  if (running_ && own_group_) ::kill(-id_, signal);
}

void ChildProcess::kill() {
  if (!running_) return;
  kill_remains();
  ::kill(id_, SIGKILL);  // the group may not exist yet
  while (::waitpid(id_, &status_, 0) < 0 && errno == EINTR) continue;
  running_ = false;
}

void ChildProcess::kill_remains() const {
  if (own_group_) ::kill(-id_, SIGKILL);
}

ChildResult run_child(const ChildRequest& request, std::chrono::milliseconds time_limit) {
  Pipe answer, words;
  ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  // The words are first: descriptor 3 may be the write end of either pipe, and must not be overwritten before
  // use.
  files.copy(words.write_end.get(), STDOUT_FILENO);
  files.copy(words.write_end.get(), STDERR_FILENO);
  files.copy(answer.write_end.get(), kAnswerFd);
  // A group of its own, so that what it starts is ended with it.
  ChildProcess child;
  const int status = child.start(request, files);
  words.write_end.reset();
  answer.write_end.reset();
  if (status != 0)
    fail_run(fmt::format("cannot start '{}': {}", request.program.string(), std::strerror(status)));

  const Steady::time_point deadline = Steady::now() + time_limit;
  ChildResult result;
  while (true) {
    pollfd ends[] = {{answer.read_end.get(), POLLIN, 0}, {words.read_end.get(), POLLIN, 0}};
    // A short slice: the child may end while something it started keeps the pipes open.
    ::poll(ends, 2, 2);
    take(answer.read_end, result.answer);
    take(words.read_end, result.words);
    if (child.ended()) {
      take(answer.read_end, result.answer);
      take(words.read_end, result.words);
      result.ended = true;
      result.status = child.status();
      return result;
    }
    if (Steady::now() >= deadline) return result;
  }
}

void restore_signals_for_exec() {
  const sigset_t usual = usual_signals();
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    if (::sigismember(&usual, signal) == 1) ::signal(signal, SIG_DFL);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &usual, nullptr);
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), signal_text(WTERMSIG(status)));
  return fmt::format("ended with exit status {}", WEXITSTATUS(status));
}

std::string describe_exit(const ChildResult& result, std::chrono::milliseconds time_limit) {
  if (!result.ended) {
    return fmt::format("did not end within {} s, it was killed",
                       static_cast<double>(time_limit.count()) / 1000);
  }
  if (WIFSIGNALED(result.status)) {
    return fmt::format("ended the process with signal {} ({})", WTERMSIG(result.status),
                       signal_text(WTERMSIG(result.status)));
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

}  // namespace tenon::base
