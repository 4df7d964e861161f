// Decides which saves are complete, the base of each increment, and when dirty bits are cleared: the three
// increment policies of Check-N-Run (NSDI 2022; papers/recovery.md section 2.2), and the bit width for a
// number of restores. Used by recovery `checknrun`; no input or output, no rows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tenon::recovery_checknrun {

enum class IncrementPolicy : std::uint8_t {
  kOneShot,       ///< every increment against the first complete save: they grow, a restore reads two files
  kConsecutive,   ///< each against the previous save: the smallest, a restore reads the whole chain
  kIntermittent,  ///< against the last complete save; a new one as soon as that is cheaper
};

/// Saves since the last complete one. Plain data, so that a policy can keep it in its state.
struct IncrementHistory {
  std::int64_t complete = -1;  ///< slot of the last complete save that was committed; -1 = none
  std::int64_t latest = -1;    ///< slot of the last committed save of either kind
  /// Bytes of each committed increment since, relative to a complete save.
  std::vector<double> sizes;
};

struct NextSave {
  bool complete = true;
  std::int64_t base = -1;  ///< slot of the save that the increment builds on; -1 for a complete one
  /// Once this save is committed, the rows that were dirty when it was taken are clean. Otherwise the next
  /// increment needs them again.
  bool clears_dirty = true;
};

/// Returns whether a complete save now costs no more bytes per save than continuing: with the increments
/// S_1..S_i since the last complete save, 1 + sum S_j <= (i + 1) S_i (section 2.2). The left side over i + 1
/// is the mean cost of a save of this cycle, and S_i approximates the cost of the next increment.
inline bool complete_save_pays(const std::vector<double>& sizes) {
  if (sizes.empty()) return false;
  double spent = 1;
  for (const double size : sizes) spent += size;
  return spent <= (static_cast<double>(sizes.size()) + 1) * sizes.back();
}

/// One object per run. An aborted or skipped save is not reported: it changes nothing here, and its rows
/// become dirty again. Request the next save only when the outcome of the last one is known, because a
/// consecutive increment builds on it. Not thread-safe.
class Increments {
 public:
  /// `history`: of the resumed run. Without one the first save is complete.
  explicit Increments(IncrementPolicy policy, IncrementHistory history = {})
      : policy_(policy), history_(std::move(history)) {}

  /// Depends only on the history. A caller may replace the result by a complete save (complete_save()) at any
  /// time.
  NextSave next() const {
    if (history_.complete < 0) return complete_save();
    switch (policy_) {
      case IncrementPolicy::kOneShot:
        break;
      case IncrementPolicy::kConsecutive:
        return {.complete = false, .base = history_.latest, .clears_dirty = true};
      case IncrementPolicy::kIntermittent:
        if (complete_save_pays(history_.sizes)) return complete_save();
        break;
    }
    return {.complete = false, .base = history_.complete, .clears_dirty = false};
  }
  static NextSave complete_save() { return {}; }

  /// Records that the save taken at `slot` as described by `save` is committed. `size`: its bytes over those
  /// of a complete save, both quantised alike; ignored for a complete one.
  void committed(std::int64_t slot, const NextSave& save, double size) {
    if (save.complete) {
      history_ = {.complete = slot, .latest = slot, .sizes = {}};
      return;
    }
    history_.latest = slot;
    history_.sizes.push_back(size);
  }

  const IncrementHistory& history() const { return history_; }

 private:
  IncrementPolicy policy_;
  IncrementHistory history_;
};

/// Returns the bits per element that keep the accuracy when a run is restored `restores` times from quantised
/// rows (section 2.2): the errors of restores accumulate.
inline int bits_for_restores(double restores) {
  if (restores <= 1) return 2;
  if (restores <= 3) return 3;
  return restores <= 20 ? 4 : 8;
}

}  // namespace tenon::recovery_checknrun
