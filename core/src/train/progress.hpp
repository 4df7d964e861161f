// Where a rank is in its run: shared by the loop and by what sets it back to an earlier slot.
#pragma once

#include <cstdint>

namespace tenon::train {

/// Of several workers: under the rank's lock.
struct Progress {
  std::int64_t next_slot = 0;
  std::int64_t first_slot = 0;      ///< of this segment
  std::int64_t boundary_done = -1;  ///< slot whose boundary is over
  bool boundary_again = false;      ///< what is due before first_slot was interrupted

  void begin_at(std::int64_t slot) { next_slot = first_slot = slot; }
};

}  // namespace tenon::train
