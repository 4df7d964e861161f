// Seconds per layer and per phase, summed from spans. It depends on the core's tracks, not on files.
#pragma once

#include <tenon/observer.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon::profile {

/// A node of the model: both directions.
struct LayerTime {
  std::string_view name;
  double forward_s = 0, backward_s = 0;
  double flops = 0, bytes = 0;

  double seconds() const { return forward_s + backward_s; }
};

/// Time of the slots by phase. The phases and `outside_s` add up to `slots_s`.
struct PhaseTimes {
  double forward_s = 0, backward_s = 0;  ///< inside layers
  double optimizer_s = 0, data_s = 0;
  double communication_s = 0;  ///< waiting for bytes
  double late_s = 0;           ///< waiting for the last rank to join
  double declared_s = 0;       ///< compute time of a simulated clock
  double outside_s = 0;        ///< in none of them: the training loop itself
  double slots_s = 0;
  double evaluate_s = 0, save_s = 0;  ///< between slots
};

class Account {
 public:
  void add(const Span& span);
  void end_slot(double seconds);
  /// Discards the spans added since the last end_slot.
  void drop_slot();

  std::int64_t slots() const { return slots_; }
  PhaseTimes phases() const;
  /// In the order of the first forward pass.
  const std::vector<LayerTime>& layers() const { return layers_; }

 private:
  LayerTime& layer(std::string_view name);

  std::vector<Span> waiting_;
  std::vector<LayerTime> layers_;
  PhaseTimes sums_;
  std::int64_t slots_ = 0;
};

}  // namespace tenon::profile
