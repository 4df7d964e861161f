#include "failover/stop_request.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace tenon::train {

StopRequest::StopRequest(const TrainRequest& request)
    : speaks_(request.place.rank <= 0), terminal_(request.terminal), quiet_(request.quiet) {
  if (!request.handle_signals) return;
  listener_.emplace([this](const std::string& signal, bool typed) { on_signal(signal, typed); },
                    [this] { on_insisted(); });
}

void StopRequest::attach(std::function<void(const std::string&)> pass_on) {
  const std::lock_guard lock(mutex_);
  pass_on_ = std::move(pass_on);
  if (pass_on_ && !signal_.empty()) pass_on_(signal_);
}

void StopRequest::heard() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  explain();
}

bool StopRequest::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

void StopRequest::set_keeps(bool keeps, int rank) {
  const std::lock_guard lock(mutex_);
  speaks_ = rank <= 0;
  keeps_ = keeps;
  explain();
}

void StopRequest::count_saves(int by) {
  const std::lock_guard lock(mutex_);
  saves_ += by;
}

void StopRequest::on_signal(const std::string& signal, bool typed) {
  const std::lock_guard lock(mutex_);
  signal_ = signal;
  asked_ = true;
  typed_ = typed;
  explain();
  if (pass_on_) pass_on_(signal_);
}

void StopRequest::on_insisted() {
  const std::lock_guard lock(mutex_);
  if (saves_ > 0) return say("the checkpoint is being written; the run ends when it is complete");
  say("ended at once, as Ctrl-C was typed again; the newest complete checkpoint is what is left");
  ::_exit(128 + SIGINT);
}

/// Once, and when it is known what a stop leaves.
void StopRequest::explain() {
  if (!asked_ || !keeps_ || std::exchange(explained_, true)) return;
  const std::string why = signal_.empty() ? "asked to stop" : signal_;
  const std::string again = typed_
                                ? fmt::format("; Ctrl-C again, a second or more from now, ends it at once{}",
                                              *keeps_ ? ", without saving" : "")
                                : "";
  if (*keeps_) {
    if (quiet_ && !terminal_) return;
    say(fmt::format("{}: the run stops at the end of its slot, saves and ends{}", why, again));
  } else {
    say(fmt::format(
        "warning: {}: the run stops at the end of its slot, and nothing of it will be kept: its recovery "
        "policy saves no checkpoints ([recovery] type){}",
        why, again));
  }
}

void StopRequest::say(const std::string& text) const {
  if (!speaks_) return;
  // On a terminal in place of the line of progress.
  std::fprintf(stderr, "%stenon: %s\n", terminal_ ? "\r\033[K" : "", text.c_str());
}

}  // namespace tenon::train
