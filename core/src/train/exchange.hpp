// Texts between ranks: how saves are agreed and hashes are joined. Threads exchange them in memory, processes
// over the control plane; the users of this see no difference.
#pragma once

#include "comm/control_client.hpp"
#include "train/time_account.hpp"

#include <tenon/clock_wait.hpp>

#include <tenon/checkpoint.hpp>
#include <tenon/clock.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::train {

/// Collective over all ranks: everybody brings a text and gets all of them.
class TextExchange {
 public:
  virtual ~TextExchange();
  /// Returns the texts of all ranks in rank order. Throws DeadlineError that names who is late,
  /// CancelledError after the run's first failure.
  virtual std::vector<std::string> exchange(int rank, const std::string& text) = 0;
  virtual void cancel(const std::string& reason) = 0;
};

/// Between threads.
class TextHub final : public TextExchange {
 public:
  /// clock: the run's, for threads that take part in it; a wall clock of its own for others.
  TextHub(int ranks, Clock& clock, double deadline_s)
      : clock_(clock),
        deadline_s_(deadline_s),
        texts_(static_cast<std::size_t>(ranks)),
        result_(static_cast<std::size_t>(ranks)) {}

  std::vector<std::string> exchange(int rank, const std::string& text) override;
  void cancel(const std::string& reason) override;

 private:
  Clock& clock_;
  double deadline_s_;
  std::mutex mutex_;
  ClockEvent changed_;
  std::vector<std::string> texts_, result_;
  std::vector<bool> present_ = std::vector<bool>(texts_.size(), false);
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  bool cancelled_ = false;
  std::string reason_;
};

/// Between processes. The control plane ends its waits by itself, at a failure too.
class RemoteTexts final : public TextExchange {
 public:
  RemoteTexts(ControlClient& control, ControlLane lane) : control_(control), lane_(lane) {}
  std::vector<std::string> exchange(int, const std::string& text) override {
    return control_.exchange(lane_, text);
  }
  void cancel(const std::string&) override {}

 private:
  ControlClient& control_;
  ControlLane lane_;
};

/// The save exchange of one rank: agreement on the training threads, reports on the saving threads.
class HubExchange final : public SaveExchange {
 public:
  /// account: where the training thread's waits for other ranks count.
  HubExchange(int rank, TextExchange& training, TextExchange& saving, TimeAccount* account)
      : rank_(rank), training_(training), saving_(saving), account_(account) {}
  ~HubExchange() override;
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(const std::string& text) override;
  bool any(bool mine) override;

 private:
  int rank_;
  TextExchange& training_;
  TextExchange& saving_;
  TimeAccount* account_;
};

}  // namespace tenon::train
