// Elapsed time of the machine's steady clock, in seconds. The time of a run, which may be simulated, is
// <tenon/clock.hpp>'s.
#pragma once

#include <chrono>

namespace tenon::base {

using Steady = std::chrono::steady_clock;

inline double seconds(Steady::duration time) {
  return std::chrono::duration<double>(time).count();
}

inline double seconds_since(Steady::time_point begin) {
  return seconds(Steady::now() - begin);
}

/// Seconds since the clock's own zero, the same for all processes of a machine.
inline double steady_seconds() {
  return seconds(Steady::now().time_since_epoch());
}

}  // namespace tenon::base
