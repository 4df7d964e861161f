// Tells tests in which phase of a run a process is: TENON_PHASE_LOG=FILE gets one line per phase entered
// (a launched rank r: FILE.r), written before the phase begins, and TENON_KILL_AT=phase:n ends the process
// with SIGKILL at the n-th entry; phase:n@r does so with the process that is rank r, but not with one that
// took its place. Unset, it does nothing.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace tenon::train {

class PhaseProbe {
 public:
  PhaseProbe();
  ~PhaseProbe();
  PhaseProbe(const PhaseProbe&) = delete;
  PhaseProbe& operator=(const PhaseProbe&) = delete;
  /// "compute", "evaluate", "copy", "write", "sync", "manifest", "verify", "rename", "gc"; "hold" and
  /// "rejoin" where other ranks died; from any thread.
  void enter(std::string_view phase);
  bool active() const { return file_ >= 0 || !kill_phase_.empty(); }

 private:
  int file_ = -1;
  std::string kill_phase_;
  std::atomic<long> kill_count_{0};
};

}  // namespace tenon::train
