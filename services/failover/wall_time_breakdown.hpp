// Account of the wall time of a process: work that stayed, and the costs of saves and failures. Every moment
// belongs to exactly one entry, so the sum is the time that has passed. Kept by rank 0's training thread, in
// memory that does not depend on the number of slots: neighbouring slots share a cell in long runs.
#pragma once

#include "base/elapsed.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

class WallTimeBreakdown {
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

  WallTimeBreakdown() : since_(Clock::now()) {}

  Entry current() const { return current_; }
  void enter(Entry entry) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<int>(current_)] += base::seconds(now - since_);
    since_ = now;
    current_ = entry;
  }
  /// Slots below `done` are done: the work since the last call was theirs.
  void slots_done(std::int64_t done) {
    enter(current_);
    const double work = seconds(Entry::kWork);
    if (done > 0) {
      if (done_ == 0) first_ = done - 1;
      first_ = std::min(first_, done - 1);
      done_ = std::max(done_, done);
      while ((done - 1) / width_ >= kCells) widen();
      cells_[(done - 1) / width_] += work - counted_;
    }
    counted_ = work;
  }
  /// Training goes on from `slot`: work on later ones was for nothing.
  void back_to(std::int64_t slot) {
    enter(current_);
    double lost = seconds(Entry::kWork) - counted_;
    const std::int64_t cell = slot / width_;
    for (std::int64_t later = cell + 1; later < kCells; ++later) lost += std::exchange(cells_[later], 0.0);
    if (cell < kCells) lost += take_share(static_cast<std::size_t>(cell), slot);
    done_ = std::min(done_, slot);
    seconds_[static_cast<int>(Entry::kWork)] -= lost;
    seconds_[static_cast<int>(Entry::kRepeat)] += lost;
    counted_ = seconds(Entry::kWork);
  }
  /// Until the last change of entry.
  double seconds(Entry entry) const { return seconds_[static_cast<int>(entry)]; }
  /// Seconds of the process until now, of which each belongs to one name.
  std::map<std::string, double> split() {
    enter(current_);
    return {{"start_s", seconds(Entry::kStart)},     {"work_s", seconds(Entry::kWork)},
            {"save_s", seconds(Entry::kSave)},       {"load_s", seconds(Entry::kLoad)},
            {"restart_s", seconds(Entry::kRestart)}, {"repeat_s", seconds(Entry::kRepeat)}};
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_;
  Entry current_ = Entry::kStart;
  double seconds_[kEntries] = {};
  static constexpr std::int64_t kCells = 4096;

  /// Two cells become one, so that any number of slots finds room.
  void widen() {
    for (std::size_t i = 0; i < cells_.size(); ++i)
      cells_[i] = 2 * i + 1 < cells_.size() ? cells_[2 * i] + cells_[2 * i + 1] : 0;
    width_ *= 2;
  }
  /// Takes from a cell what belongs to its slots from `slot` on: those that are done have equal shares.
  double take_share(std::size_t cell, std::int64_t slot) {
    const std::int64_t begin = std::max(first_, static_cast<std::int64_t>(cell) * width_);
    const std::int64_t end = std::min(done_, (static_cast<std::int64_t>(cell) + 1) * width_);
    if (end <= slot) return 0;
    const double share = static_cast<double>(end - std::max(begin, slot)) / static_cast<double>(end - begin);
    const double lost = share * cells_[cell];
    cells_[cell] -= lost;
    return lost;
  }

  std::vector<double> cells_ = std::vector<double>(kCells);  ///< work of `width_` slots each
  std::int64_t width_ = 1;
  std::int64_t first_ = 0, done_ = 0;  ///< slots that are in the cells
  double counted_ = 0;                 ///< of the work
};

/// Null for ranks that keep no wall_time.
class WallTimeScope {
 public:
  WallTimeScope(WallTimeBreakdown* wall_time, WallTimeBreakdown::Entry entry) : wall_time_(wall_time) {
    if (wall_time_ == nullptr) return;
    before_ = wall_time_->current();
    wall_time_->enter(entry);
  }
  ~WallTimeScope() {
    if (wall_time_ != nullptr) wall_time_->enter(before_);
  }
  WallTimeScope(const WallTimeScope&) = delete;
  WallTimeScope& operator=(const WallTimeScope&) = delete;

 private:
  WallTimeBreakdown* wall_time_;
  WallTimeBreakdown::Entry before_ = WallTimeBreakdown::Entry::kWork;
};

}  // namespace tenon::train
