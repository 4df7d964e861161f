// Where the wall time of a process went: work that stayed, and what saves and failures cost. Every moment
// belongs to exactly one entry, so the sum is the time that has passed. Kept by rank 0's training thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace tenon::train {

class OverheadLedger {
 public:
  enum class Entry : std::uint8_t {
    kStart,    ///< building ranks and opening the folder for the first time
    kWork,     ///< slots, evaluations and what lies between them
    kSave,     ///< training waits for a save, or for copies to peers; what is written beside training is not
               ///< here
    kLoad,     ///< reading back
    kRestart,  ///< from a failure until slots go on, without reading
    kRepeat,   ///< slots whose work was thrown away
  };
  static constexpr int kEntries = 6;

  OverheadLedger() : since_(Clock::now()) {}

  /// Room for slots below `steps`, so that none is made while training.
  void reserve(std::int64_t steps) { slots_.resize(static_cast<std::size_t>(steps)); }
  Entry current() const { return current_; }
  void enter(Entry entry) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<int>(current_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    current_ = entry;
  }
  /// Slots below `done` are done: the work since the last call was theirs.
  void slots_done(std::int64_t done) {
    const Entry entry = current_;
    enter(entry);
    const double work = seconds(Entry::kWork);
    if (done > 0 && done <= static_cast<std::int64_t>(slots_.size()))
      slots_[static_cast<std::size_t>(done - 1)] = work - counted_;
    counted_ = work;
  }
  /// Training goes on from `slot`: work on later ones was for nothing.
  void back_to(std::int64_t slot) {
    enter(current_);
    double lost = seconds(Entry::kWork) - counted_;
    for (std::size_t later = static_cast<std::size_t>(slot); later < slots_.size(); ++later)
      lost += std::exchange(slots_[later], 0.0);
    seconds_[static_cast<int>(Entry::kWork)] -= lost;
    seconds_[static_cast<int>(Entry::kRepeat)] += lost;
    counted_ = seconds(Entry::kWork);
  }
  /// Until the last change of entry.
  double seconds(Entry entry) const { return seconds_[static_cast<int>(entry)]; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_;
  Entry current_ = Entry::kStart;
  double seconds_[kEntries] = {};
  std::vector<double> slots_;  ///< work of each slot, as it was done last
  double counted_ = 0;         ///< of the work
};

/// Null for ranks that keep no ledger.
class LedgerScope {
 public:
  LedgerScope(OverheadLedger* ledger, OverheadLedger::Entry entry) : ledger_(ledger) {
    if (ledger_ == nullptr) return;
    before_ = ledger_->current();
    ledger_->enter(entry);
  }
  ~LedgerScope() {
    if (ledger_ != nullptr) ledger_->enter(before_);
  }
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

 private:
  OverheadLedger* ledger_;
  OverheadLedger::Entry before_ = OverheadLedger::Entry::kWork;
};

}  // namespace tenon::train
