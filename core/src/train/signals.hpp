// SIGINT and SIGTERM as an agreed stop. While a watcher lives, both signals are blocked in all threads
// started after it and taken by a thread of its own; a second one ends the process at once.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tenon::train {

class SignalWatcher {
 public:
  /// `asked(name)` runs on the watcher's thread at the first signal.
  explicit SignalWatcher(std::function<void(const std::string& name)> asked);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::train
