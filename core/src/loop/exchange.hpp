// Texts between ranks: how saves are agreed and hashes are joined. Threads exchange them in memory, processes
// over the control plane.
#pragma once

#include <tenon/clock.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::train {

/// Collective over all ranks: each brings a text and gets all of them.
class TextExchange {
 public:
  virtual ~TextExchange();
  /// Returns the texts of all ranks in rank order. Throws DeadlineError that names the late ranks,
  /// CancelledError after the run's first failure.
  virtual std::vector<std::string> exchange(int rank, const std::string& text) = 0;
  virtual void cancel(const std::string& reason) = 0;
};

/// Between threads.
class StringAllGather final : public TextExchange {
 public:
  /// clock: the run's, for threads that take part in it; a wall clock of its own for others.
  StringAllGather(int ranks, Clock& clock, double deadline_s)
      : clock_(clock), deadline_s_(deadline_s), texts_(ranks), result_(ranks) {}

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

}  // namespace tenon::train
