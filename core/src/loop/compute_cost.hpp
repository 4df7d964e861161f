// Compute costs of a rank: those that the simulated clock is told, and stragglers, which lag under either
// clock. Every delay is a function of (seed, rank, slot) alone.
#pragma once

#include "config/run_schema.hpp"
#include "loop/spans.hpp"

#include <tenon/clock.hpp>
#include <tenon/control.hpp>

#include <string>
#include <vector>

namespace tenon::train {

/// Seconds of the slot's pieces: declared, or measured by a calibration.
struct PieceSeconds {
  double forward = 0, backward = 0;  ///< of one micro-batch
  double update = 0, mix = 0;
};

struct ComputeCostSpec {
  const config::CoreSettings* settings = nullptr;
  int rank = 0;
  Clock* clock = nullptr;
  ControlPlane* control = nullptr;  ///< a delay in real time ends when the run fails
  SpanRecorder* spans = nullptr;
};

/// Spends `seconds` of the run's clock without computing: virtual ones at once, real ones asleep. Returns
/// early when the run has failed.
void spend(double seconds, Clock& clock, const ControlPlane& control);

/// By the rank's workers; one slot at a time.
class ComputeCost {
 public:
  explicit ComputeCost(const ComputeCostSpec& spec);

  /// The slot's delays, before it computes: a pause, and the draw of a random delay.
  void begin_slot(std::int64_t t);
  /// A piece of work begins.
  void begin_piece();
  /// After the forward of a micro-batch.
  void forward();
  /// The backward of a micro-batch has come so far, 0 ... 1; calls only grow until backward_done().
  void backward_until(double share);
  void backward_done();
  void update();
  void mix_begins();
  void mix_ends();

  /// Slots whose real time is measured before costs are known; 0 when nothing is to be calibrated.
  int calibration_slots() const;
  /// Medians of what this rank measured, as text for the others.
  std::string measured() const;
  /// Costs from now on: the medians over the ranks of what they measured.
  void calibrate(const std::vector<std::string>& ranks);
  void set_costs(const PieceSeconds& costs);
  const PieceSeconds& costs() const { return costs_; }

 private:
  enum Piece { kForward, kBackward, kUpdate, kMix };
  double declared(Piece piece) const;
  void lap(Piece piece);
  void take(double seconds);
  /// A delay as it is drawn for slot t, in seconds; and the factor of everything this rank computes.
  double random_delay(std::int64_t t) const;

  ComputeCostSpec spec_;
  const bool simulated_;
  const bool measures_;  ///< until costs are known
  bool known_ = false;
  PieceSeconds costs_;
  double slowness_ = 1;  ///< of a straggler: times the declared cost
  double speed_ = 1;
  double done_share_ = 0;   ///< of the backward that runs
  double lap_began_s_ = 0;  ///< this thread's processor time
  double slot_work_s_ = 0;  ///< real seconds of this slot's work so far, for stragglers under the wall clock
  double last_work_s_ = 0;
  std::vector<double> laps_[4];
};

}  // namespace tenon::train
