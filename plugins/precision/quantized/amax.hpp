// The largest magnitude that a tensor scale is made of: agreed over the ranks that share a tensor, and under
// delayed scaling taken from earlier slots.
#pragma once

#include "plan.hpp"

#include <tenon/device.hpp>
#include <tenon/site.hpp>

namespace tenon::quantized {

/// Maximum over the group's ranks; NaN for all of them if it is not finite on one. A null group: this rank
/// alone.
float agreed(float amax, Communicator* group);

/// History of one tensor of a site in state that the core saves, in the device's memory. One entry per slot:
/// the maximum over its micro-batches and chunks, so the scale is the same in all calls of a slot and after a
/// resume.
class AmaxHistory {
 public:
  AmaxHistory(SiteHost& host, std::string_view tensor, const SitePlan& plan);

  /// Records `amax` if it is finite and `training`, and returns what the scale is to be made of: `amax`
  /// itself as long as nothing was recorded before this slot; NaN if `amax` is not finite.
  float scale_amax(float amax, std::int64_t slot, bool training);

 private:
  Device& device_;
  std::int64_t length_;
  float margin_;  ///< 2^margin
  bool latest_;
  TensorView amax_;      ///< f32 [length + 1]; the entry of the current slot is not used for it
  TensorView position_;  ///< i64 [2]: the current slot + 1, its entry
  /// Read in each call: a resume or a roll-back may have changed the state in between.
  HostStage amax_here_, position_here_;
};

}  // namespace tenon::quantized
