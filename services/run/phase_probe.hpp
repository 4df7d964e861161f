// Tells tests in which phase of a run a process is: TENON_PHASE_LOG=FILE gets one line per phase entered
// (a launched rank r: FILE.r), written before the phase begins, and TENON_KILL_AT=phase:n ends the process
// with SIGKILL at the n-th entry; phase:n@r does so with the process that is rank r, but not with one that
// took its place. Unset, it does nothing.
#pragma once

#include "base/file_descriptor.hpp"

#include <atomic>
#include <string>
#include <string_view>

namespace tenon::train {

class PhaseProbe {
 public:
  PhaseProbe();
  /// "compute", "evaluate", "copy", "write", "sync", "manifest", "verify", "rename", "gc"; "hold" and
  /// "rejoin" where other ranks died; from any thread.
  void enter(std::string_view phase);
  bool active() const { return file_ || !kill_phase_.empty(); }

 private:
  base::FileDescriptor file_;
  std::string kill_phase_;
  std::atomic<long> kill_count_{0};
};

}  // namespace tenon::train
