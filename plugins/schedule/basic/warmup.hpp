// Linear warm-up of all schedules of this plugin: slot t < warmup uses the share (t + 1) / warmup of the
// rate, so slot 0 already changes the weights. And the progress of a part of a run.
#pragma once

#include <tenon/plugin.hpp>

#include <algorithm>
#include <cstdint>

namespace tenon::schedule {

inline constexpr OptionSpec kWarmup = option::integer("warmup", "0")
                                          .at_least(0)
                                          .in_unit("slots")
                                          .doc_text("slots of linear rise to the full rate");

inline bool warming(std::int64_t slot, std::int64_t warmup) {
  return slot < warmup;
}
inline double warmup_rate(double base, std::int64_t slot, std::int64_t warmup) {
  return base * static_cast<double>(slot + 1) / static_cast<double>(warmup);
}

/// Returns the progress of `slot` from `begin` to `end`: 0 to 1, and 1 if nothing remains.
inline double progress(std::int64_t slot, std::int64_t begin, std::int64_t end) {
  if (slot >= end || end <= begin) return slot < begin ? 0.0 : 1.0;
  return std::max(0.0, static_cast<double>(slot - begin) / static_cast<double>(end - begin));
}

}  // namespace tenon::schedule
