// Options and the save interval shared by policies with checkpoints, so that each name has one meaning.
#pragma once

#include <tenon/options.hpp>

#include <cmath>

TENON_ABI_BEGIN

/// Seconds of work between two saves that lose the least time to saves and failures together (Young, CACM 17,
/// 1974). cost: of a save; mtbf: mean time between failures; both in seconds.
inline double young_interval(double cost, double mtbf) {
  return std::sqrt(2 * cost * mtbf);
}

namespace option {

/// Recovery::keep.
constexpr OptionSpec keep_checkpoints() {
  return integer("keep", "2")
      .between(2, 1000000)
      .doc_text("checkpoints kept on disk; at least two, in case the newest is damaged");
}

/// SavePlan::background.
constexpr OptionSpec save_in_background() {
  return boolean("async", "true")
      .doc_text("copy the state, then write while training continues; false: training waits for the disk");
}

constexpr OptionSpec save_at_end() {
  return boolean("save_at_end", "true").doc_text("save after the last slot as well");
}

}  // namespace option
TENON_ABI_END
