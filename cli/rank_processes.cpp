// Starting, watching and ending rank processes (rank_processes.hpp).
#include "rank_processes.hpp"

#include "process/spawn.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tenon::cli {
namespace {

constexpr std::size_t kKeptWords = 4096;

}  // namespace

RankProcesses::RankProcesses(const std::string& program, const std::vector<std::string>& arguments,
                             const std::vector<RankProcess>& processes)
    : program_(program) {
  try {
    for (const RankProcess& process : processes)
      children_.push_back(start(process, arguments, !children_.empty()));
  } catch (...) {
    kill_all();
    throw;
  }
}

RankProcesses::Child RankProcesses::start(const RankProcess& process,
                                          const std::vector<std::string>& arguments, bool keeps_words) const {
  Child child;
  child.rank = process.rank;
  int words[2] = {-1, -1};
  if (keeps_words) {
    if (::pipe2(words, O_CLOEXEC) != 0) fail_run(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    ::fcntl(words[0], F_SETFL, O_NONBLOCK);
  }
  process::ChildFiles files;
  if (keeps_words) {
    files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
    files.open(STDOUT_FILENO, "/dev/null", O_WRONLY);
    files.copy(words[1], STDERR_FILENO);
    child.words_fd = words[0];
  }
  // In the launcher's group, with which it is in the foreground of a terminal, or is not.
  const int status = process::spawn({program_, arguments, process.environment, false}, files, child.pid);
  if (words[1] >= 0) ::close(words[1]);
  if (status != 0) {
    if (words[0] >= 0) ::close(words[0]);
    fail_run(fmt::format("cannot start '{}' for rank {}: {}", program_, process.rank, std::strerror(status)));
  }
  return child;
}

RankProcesses::~RankProcesses() {
  kill_all();
  for (const Child& child : children_) {
    if (child.words_fd >= 0) ::close(child.words_fd);
  }
}

void RankProcesses::drain(Child& child) {
  std::array<char, 4096> block;
  while (child.words_fd >= 0) {
    const ssize_t got = ::read(child.words_fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      ::close(child.words_fd);
      child.words_fd = -1;
      return;
    }
    child.words.append(block.data(), static_cast<std::size_t>(got));
    if (child.words.size() > kKeptWords) child.words.erase(0, child.words.size() - kKeptWords);
  }
}

bool RankProcesses::poll(std::chrono::milliseconds limit) {
  std::vector<pollfd> ends;
  for (const Child& child : children_) {
    if (child.words_fd >= 0) ends.push_back({child.words_fd, POLLIN, 0});
  }
  ::poll(ends.data(), ends.size(), static_cast<int>(limit.count()));
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (Child& child : children_) {
    drain(child);
    if (!child.ended && ::waitpid(child.pid, &child.status, WNOHANG) == child.pid) {
      child.ended = true;
      drain(child);
      if (child.status != 0 && first_bad_ < 0) first_bad_ = child.rank;
    }
    all &= child.ended;
  }
  return all;
}

void RankProcesses::kill_all() {
  const std::lock_guard lock(mutex_);
  for (Child& child : children_) end(child);
}

void RankProcesses::end(Child& child) {
  if (child.ended) return;
  ::kill(child.pid, SIGKILL);
  while (::waitpid(child.pid, &child.status, 0) < 0 && errno == EINTR) continue;
  child.ended = true;
  drain(child);
}

void RankProcesses::kill(int rank) {
  const std::lock_guard lock(mutex_);
  for (Child& child : children_) {
    if (child.rank == rank) end(child);
  }
}

void RankProcesses::start_again(const RankProcess& process, const std::vector<std::string>& arguments) {
  const std::lock_guard lock(mutex_);
  for (Child& child : children_) {
    if (child.rank != process.rank) continue;
    if (!child.ended) fail_run(fmt::format("rank {} cannot be started again: it runs", process.rank));
    if (child.words_fd >= 0) ::close(child.words_fd);
    child = start(process, arguments, child.rank != children_.front().rank);
  }
  first_bad_ = -1;
  for (const Child& child : children_) {
    if (child.ended && child.status != 0) first_bad_ = child.rank;
  }
}

bool RankProcesses::ended(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  return child != nullptr && child->ended;
}

void RankProcesses::signal_all(int signal) const {
  const std::lock_guard lock(mutex_);
  for (const Child& child : children_) {
    if (!child.ended) ::kill(child.pid, signal);
  }
}

const RankProcesses::Child* RankProcesses::find(int rank) const {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&](const Child& child) { return child.rank == rank; });
  return found == children_.end() ? nullptr : &*found;
}

std::string RankProcesses::how_it_ended(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  if (child == nullptr || !child->ended) return "";
  return "its process " + process::how_it_ended(child->status);
}

int RankProcesses::first_bad_rank() const {
  const std::lock_guard lock(mutex_);
  return first_bad_;
}

bool RankProcesses::spoke_for_itself(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  return child != nullptr && child->ended && WIFEXITED(child->status) && WEXITSTATUS(child->status) != 0;
}

std::string RankProcesses::last_words(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  return child == nullptr ? "" : child->words;
}

int RankProcesses::exit_status() const {
  const std::lock_guard lock(mutex_);
  int worst = 0;
  for (const Child& child : children_)
    worst = std::max(worst, WIFEXITED(child.status) ? WEXITSTATUS(child.status) : 1);
  return worst;
}

}  // namespace tenon::cli
