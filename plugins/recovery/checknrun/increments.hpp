// Which save is a complete one, what an increment builds on and what becomes of the dirty bits: the three
// increment policies of Check-N-Run (NSDI 2022; papers/recovery.md section 2.2), and the bit width that suits
// the number of restores. Serves recovery `checknrun`; no input or output, no rows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tenon::recovery_checknrun {

enum class IncrementPolicy : std::uint8_t {
  kOneShot,       ///< every increment against the first complete save: they grow, a restore reads two files
  kConsecutive,   ///< each against the save before it: the smallest, a restore reads the whole chain
  kIntermittent,  ///< against the last complete save; a new one as soon as that is cheaper
};

/// What is known of the saves since the last complete one. Plain data, so that a policy can keep it in its
/// state.
struct IncrementHistory {
  std::int64_t complete = -1;  ///< slot of the last complete save that was committed; -1 = none
  std::int64_t latest = -1;    ///< slot of the last committed save of either kind
  /// Bytes of each committed increment since, over bytes of a complete save.
  std::vector<double> sizes;
};

struct NextSave {
  bool complete = true;
  std::int64_t base = -1;  ///< slot of the save that the increment builds on; -1 for a complete one
  /// Once this save is committed, the rows that were dirty when it was taken are no longer so. Otherwise the
  /// next increment needs them again.
  bool clears_dirty = true;
};

/// True when a complete save now costs no more bytes per save than going on: with the increments S_1..S_i
/// since the last complete save, 1 + sum S_j <= (i + 1) S_i (section 2.2). The left side over i + 1 is what a
/// save of this cycle has cost on average, and S_i is about what the next increment costs.
inline bool complete_save_pays(const std::vector<double>& sizes) {
  if (sizes.empty()) return false;
  double spent = 1;
  for (const double size : sizes) spent += size;
  return spent <= (static_cast<double>(sizes.size()) + 1) * sizes.back();
}

/// One per run. An aborted or skipped save is not reported: it changes nothing here, and its rows go back to
/// the dirty ones. Ask for the next save only when the outcome of the last one is known: a consecutive
/// increment builds on it. Not for several threads at once.
class Increments {
 public:
  /// `history`: of the run that is resumed. Without one the first save is complete.
  explicit Increments(IncrementPolicy policy, IncrementHistory history = {})
      : policy_(policy), history_(std::move(history)) {}

  /// Pure in the history. A caller may turn the answer into a complete save (complete_save()) at any time.
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

  /// The save that was taken at `slot` as `save` said is committed. `size`: its bytes over those of a
  /// complete save, both quantised alike; not read for a complete one.
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

/// Bits per element that keep the accuracy when a run is restored `restores` times from quantised rows
/// (section 2.2): the errors of restores add up.
inline int bits_for_restores(double restores) {
  if (restores <= 1) return 2;
  if (restores <= 3) return 3;
  return restores <= 20 ? 4 : 8;
}

}  // namespace tenon::recovery_checknrun
