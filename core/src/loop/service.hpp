// Services act in a rank's run at fixed moments beside the slots: saving, metrics, answers to failures. The
// rank calls its services in one order, the same on all ranks, so that they may communicate.
#pragma once

#include "loop/worker.hpp"

#include <tenon/recovery.hpp>

#include <cstdint>

namespace tenon::train {

/// Actions due between two slots, the same on all ranks.
struct Boundary {
  std::int64_t slot = 0;     ///< the next one
  bool first_time = true;    ///< false where an earlier segment of the run has done what is due here
  std::uint32_t asked = 0;   ///< kControl..., that some rank asked for
  bool stop = false;         ///< the run ends here
  bool interrupted = false;  ///< by a signal, which is also a stop
  bool evaluate = false;
  bool evaluate_all = false;  ///< also what is not due by its interval
  bool keep_nothing = false;  ///< training went wrong before this boundary
  bool fails = false;         ///< a failure occurs here
  bool acts = false;          ///< some service has something to do: workers wait, transfers end
  SaveMoment moment;

  bool quiet() const { return evaluate || stop || acts; }
};

class Service {
 public:
  virtual ~Service() = default;
  /// Before the first slot of a rank that has its state.
  virtual void start() {}
  /// A worker takes `slot`. Under the rank's lock.
  virtual void before_slot(std::int64_t slot) {}
  /// Rows of a table were read in a slot and changed by its update.
  virtual void accessed(const RowGradient& rows) {}
  /// Under the rank's lock, once the counts include the slot.
  virtual void after_slot(std::int64_t slot, const SlotResult& result) {}
  /// Before ranks agree on what is due: rank 0 may ask for something.
  virtual void ask(Boundary& due) {}
  /// Says in `due` what this service will do at the boundary.
  virtual void plan(Boundary& due) {}
  /// All workers stand still, and no transfer is under way. Collective.
  virtual void at_boundary(Boundary& due) {}
};

}  // namespace tenon::train
