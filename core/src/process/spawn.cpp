#include "process/spawn.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace tenon::process {
namespace {

/// Those that this program takes, blocks or ignores, or was started without.
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

int spawn(const SpawnRequest& request, const ChildFiles& files, pid_t& child) {
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
  std::vector<std::string> words{request.program};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  std::vector<std::string> settings = environment_with(request.environment);
  const int status = ::posix_spawnp(&child, request.program.c_str(), files.get(), &attributes,
                                    exec_pointers(words).data(), exec_pointers(settings).data());
  ::posix_spawnattr_destroy(&attributes);
  if (status != 0) child = -1;
  return status;
}

void restore_signals_for_exec() {
  const sigset_t usual = usual_signals();
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    if (::sigismember(&usual, signal) == 1) ::signal(signal, SIG_DFL);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &usual, nullptr);
}

const char* signal_text(int signal) {
  const char* const text = ::sigdescr_np(signal);
  return text == nullptr ? "a signal without a name" : text;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), signal_text(WTERMSIG(status)));
  return fmt::format("ended with exit status {}", WEXITSTATUS(status));
}

}  // namespace tenon::process
