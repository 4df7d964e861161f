// The largest magnitude, from which a tensor scale is computed: agreed over the ranks that share a tensor
// and, under delayed scaling, taken from earlier slots.
#pragma once

#include "plan.hpp"

#include <tenon/device.hpp>
#include <tenon/site.hpp>

namespace tenon::quantized {

/// Returns the maximum over the group's ranks; NaN on all ranks if it is not finite on one. A null group
/// means this rank alone.
float agreed(float amax, Communicator* group);

/// History of one tensor of a site, in device memory, as state that the core saves. It has one entry per
/// slot: the maximum over the slot's micro-batches and chunks, so that the scale is the same in all calls of
/// a slot and after a resume.
class AmaxHistory {
 public:
  AmaxHistory(SiteHost& host, std::string_view tensor, const SitePlan& plan);

  /// Records `amax` if it is finite and `training`. Returns the magnitude to compute the scale from: `amax`
  /// itself as long as nothing was recorded before this slot; NaN if `amax` is not finite.
  float scale_amax(float amax, std::int64_t slot, bool training);

 private:
  Device& device_;
  std::int64_t length_;
  float margin_;  ///< 2^margin
  bool latest_;
  TensorView amax_;      ///< f32 [length + 1]; the entry of the current slot is not used for it
  TensorView position_;  ///< i64 [2]: the current slot + 1, its entry
  /// Read in each call, because a resume or a roll-back may have changed the state.
  HostStage amax_here_, position_here_;
};

}  // namespace tenon::quantized
