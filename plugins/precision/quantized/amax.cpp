// Agreement and history of amax.hpp.
#include "amax.hpp"

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::quantized {

float agreed(float amax, Communicator* group) {
  if (group == nullptr || group->size() == 1) return amax;
  // A maximum may lose a NaN, but not an infinity.
  float value = std::isfinite(amax) ? amax : std::numeric_limits<float>::infinity();
  group->all_reduce({&value, Shape{1}, DType::kF32}, ReduceOp::kMax);
  return std::isfinite(value) ? value : std::numeric_limits<float>::quiet_NaN();
}

AmaxHistory::AmaxHistory(SiteHost& host, std::string_view tensor, const SitePlan& plan)
    : length_(plan.history + 1),
      margin_(std::ldexp(1.0f, plan.margin)),
      latest_(plan.latest),
      amax_(host.state(std::string(tensor) + ".amax", DType::kF32, Shape{length_})),
      position_(host.state(std::string(tensor) + ".position", DType::kI64, Shape{2})) {
  if (amax_.space != MemorySpace::kHost)
    fail_config(
        "delayed scaling keeps its history in host memory, which this device's states are not; take "
        "recipe = \"current\"");
}

void AmaxHistory::begin_slot(std::int64_t slot) {
  auto* const position = position_.as<std::int64_t>();
  if (position[0] == slot + 1) return;
  position[0] = slot + 1;
  position[1] = (position[1] + 1) % length_;
  amax_.as<float>()[position[1]] = 0;
}

float AmaxHistory::scale_amax(float amax, std::int64_t slot, bool training) {
  if (training) begin_slot(slot);
  const std::int64_t current = position_.as<std::int64_t>()[1];
  float* const entries = amax_.as<float>();
  float known = 0;
  if (latest_) {
    known = entries[(current + length_ - 1) % length_];
  } else {
    for (std::int64_t i = 0; i < length_; ++i) known = i == current ? known : std::max(known, entries[i]);
  }
  // Outside training the current entry is complete, too, but a scale must not depend on who asks when.
  if (!std::isfinite(amax)) return std::numeric_limits<float>::quiet_NaN();
  if (training) entries[current] = std::max(entries[current], amax);
  return (known > 0 ? known : amax) * margin_;
}

}  // namespace tenon::quantized
