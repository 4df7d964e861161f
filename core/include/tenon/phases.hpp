// Phases of a rank, as they begin. Alone, because observers and components of power hear them, and neither
// contract includes the other.
#pragma once

#include <tenon/abi.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

TENON_ABI_BEGIN

/// What a rank's training thread does; with several workers, that of the first one.
enum class Phase : std::uint8_t {
  kIdle,  ///< none of the others: between slots, logs, hooks of strategies
  kForward,
  kBackward,
  kOptimizer,
  kCompute,        ///< of a slot, outside these three
  kCommunication,  ///< the thread waits for bytes
  kWait,           ///< it waits for all ranks to agree
  kData,
  kEvaluate,
  kSave,
  kBegin,     ///< the first slot follows
  kEnd,       ///< after the last slot; no phase follows
  kGenerate,  ///< the model makes samples that it will train on
};
inline constexpr std::size_t kPhases = 13;

/// "idle", "forward", ..., "end", "generate".
std::string_view phase_name(Phase phase);

/// Offered through query(PhaseObserver::kId) by observers and by components of kind power. Where nobody
/// listens, a change of phase costs what the rank's account of its time costs.
class PhaseObserver {
 public:
  static constexpr const char* kId = "tenon.observer.phases/1";
  virtual ~PhaseObserver();
  /// As the phase begins, on the training thread, on which every microsecond is one of the run: store, wake a
  /// thread, return. `at_s`: seconds of the run's clock, never falling.
  virtual void on_phase(Phase phase, double at_s) = 0;
};

TENON_ABI_END
