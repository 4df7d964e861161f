// Texts between the ranks of one process: how saves are agreed and hashes are joined. Processes will exchange
// them over the control channel; the users of this see no difference.
#pragma once

#include "train/time_account.hpp"

#include <tenon/clock_wait.hpp>

#include <tenon/checkpoint.hpp>
#include <tenon/clock.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::train {

/// Collective over `ranks` threads: everybody brings a text and gets all of them.
class TextHub {
 public:
  /// clock: the run's, for threads that take part in it; a wall clock of its own for others.
  TextHub(int ranks, Clock& clock, double deadline_s)
      : clock_(clock),
        deadline_s_(deadline_s),
        texts_(static_cast<std::size_t>(ranks)),
        result_(static_cast<std::size_t>(ranks)) {}

  /// Returns the texts of all ranks in rank order. Throws DeadlineError that names who is late,
  /// CancelledError after cancel().
  std::vector<std::string> exchange(int rank, const std::string& text);
  void cancel(const std::string& reason);

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

/// The save exchange of one rank: agreement on the training threads, reports on the saving threads.
class HubExchange final : public SaveExchange {
 public:
  /// account: where the training thread's waits for other ranks count.
  HubExchange(int rank, TextHub& training, TextHub& saving, TimeAccount* account)
      : rank_(rank), training_(training), saving_(saving), account_(account) {}
  ~HubExchange() override;
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(const std::string& text) override;
  bool any(bool mine) override;

 private:
  int rank_;
  TextHub& training_;
  TextHub& saving_;
  TimeAccount* account_;
};

}  // namespace tenon::train
