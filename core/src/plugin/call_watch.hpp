// Says which plugin call of this process has lasted longest. A thread's calls cost it two stores each; one
// watching thread looks at all of them from time to time (loop/pass_watch.hpp).
#pragma once

#include "plugin/guard.hpp"

#include <optional>

namespace tenon::plugin {

struct LongCall {
  GuardContext context;
  double seconds = 0;  ///< that it has lasted at least
  double limit = 0;    ///< it may last
};

/// `seconds` have passed since the last look. Returns the call that is nearest to the end of its time, which
/// is `deadline` x its patience, or farthest beyond it; nothing if no thread is inside a call. Only the
/// innermost call of a thread counts, from the moment when the call within it ended. `ending`: the run has
/// failed, and calls without a limit of their own have one deadline from then on.
std::optional<LongCall> longest_call(double seconds, double deadline, bool ending);

}  // namespace tenon::plugin
