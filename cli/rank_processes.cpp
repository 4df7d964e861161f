// Starts, watches and ends rank processes (rank_processes.hpp).
#include "rank_processes.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

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
  base::FileDescriptor far_end;
  base::ChildFiles files;
  if (keeps_words) {
    base::Pipe words;
    files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
    files.open(STDOUT_FILENO, "/dev/null", O_WRONLY);
    files.copy(words.write_end.get(), STDERR_FILENO);
    child.words_end = std::move(words.read_end);
    far_end = std::move(words.write_end);
  }
  // In the launcher's group, which is in the foreground of a terminal, or is not.
  const int status = child.process.start({program_, arguments, process.environment, false}, files);
  if (status != 0)
    fail_run(fmt::format("cannot start '{}' for rank {}: {}", program_, process.rank, std::strerror(status)));
  return child;
}

RankProcesses::~RankProcesses() {
  kill_all();
}

void RankProcesses::drain(Child& child) {
  base::drain_last(child.words_end, child.words, kKeptWords);
}

bool RankProcesses::poll(std::chrono::milliseconds limit) {
  std::vector<pollfd> ends;
  for (const Child& child : children_) {
    if (child.words_end) ends.push_back({child.words_end.get(), POLLIN, 0});
  }
  ::poll(ends.data(), ends.size(), static_cast<int>(limit.count()));
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (Child& child : children_) {
    drain(child);
    if (!child.ended() && child.process.ended()) {
      drain(child);
      if (child.process.status() != 0 && first_bad_ < 0) first_bad_ = child.rank;
    }
    all &= child.ended();
  }
  return all;
}

void RankProcesses::kill_all() {
  const std::lock_guard lock(mutex_);
  for (Child& child : children_) end(child);
}

void RankProcesses::end(Child& child) {
  if (child.ended()) return;
  child.process.kill();
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
    if (!child.ended()) fail_run(fmt::format("rank {} cannot be started again: it runs", process.rank));
    child = start(process, arguments, child.rank != children_.front().rank);
  }
  first_bad_ = -1;
  for (const Child& child : children_) {
    if (child.ended() && child.process.status() != 0) first_bad_ = child.rank;
  }
}

bool RankProcesses::ended(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  return child != nullptr && child->ended();
}

void RankProcesses::signal_all(int signal) const {
  const std::lock_guard lock(mutex_);
  for (const Child& child : children_) {
    child.process.signal(signal);
  }
}

const RankProcesses::Child* RankProcesses::find(int rank) const {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&](const Child& child) { return child.rank == rank; });
  return found == children_.end() ? nullptr : &*found;
}

std::string RankProcesses::describe_exit(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  if (child == nullptr || !child->ended()) return "";
  return "its process " + base::describe_exit(child->process.status());
}

int RankProcesses::first_bad_rank() const {
  const std::lock_guard lock(mutex_);
  return first_bad_;
}

bool RankProcesses::spoke_for_itself(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  if (child == nullptr || !child->ended()) return false;
  const int status = child->process.status();
  return WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

std::string RankProcesses::last_words(int rank) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(rank);
  return child == nullptr ? "" : child->words;
}

int RankProcesses::exit_status() const {
  const std::lock_guard lock(mutex_);
  int worst = 0;
  for (const Child& child : children_) {
    const int status = child.process.status();
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace tenon::cli
