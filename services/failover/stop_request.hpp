// The request of a person or a scheduler to stop a run, from the signals of this process or of another one.
// Reports its consequences on the terminal.
#pragma once

#include "base/signals.hpp"

#include <tenon/runtime.hpp>

#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace tenon::train {

/// One per process and run. Thread-safe.
class StopRequest {
 public:
  explicit StopRequest(const TrainRequest& request);

  /// The world that passes a signal of this process on to all ranks, by `pass_on`, which must not wait; also
  /// one that came before. Null: none.
  void attach(std::function<void(const std::string& signal)> pass_on);
  /// Another process received the request.
  void heard();
  /// Some signal asked, here or elsewhere.
  bool asked() const;

  /// Whether the recovery policy keeps checkpoints, once that is known. rank: the process's, -1 of threads.
  void set_keeps(bool keeps, int rank);
  /// While a checkpoint is being written at the stop, a repeated signal does not end this process at once.
  class Saving {
   public:
    explicit Saving(StopRequest& of) : of_(of) { of_.count_saves(1); }
    ~Saving() { of_.count_saves(-1); }
    Saving(const Saving&) = delete;
    Saving& operator=(const Saving&) = delete;

   private:
    StopRequest& of_;
  };

 private:
  void on_signal(const std::string& signal, bool typed);
  void on_insisted();
  void count_saves(int by);
  void explain();
  void say(const std::string& text) const;

  mutable std::mutex mutex_;
  std::function<void(const std::string&)> pass_on_;
  std::string signal_;  // of this process
  bool asked_ = false, typed_ = false, explained_ = false;
  std::optional<bool> keeps_;
  bool speaks_ = true;  // for the run
  int saves_ = 0;
  const bool terminal_, quiet_;
  std::optional<base::StopListener> listener_;  // last: ends first
};

}  // namespace tenon::train
