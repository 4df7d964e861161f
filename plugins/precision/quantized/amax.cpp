// Agreement and history of amax.hpp.
#include "amax.hpp"

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
    : device_(host.device()),
      length_(plan.history + 1),
      margin_(std::ldexp(1.0f, plan.margin)),
      latest_(plan.latest),
      amax_(host.state(std::string(tensor) + ".amax", DType::kF32, Shape{length_})),
      position_(host.state(std::string(tensor) + ".position", DType::kI64, Shape{2})) {}

float AmaxHistory::scale_amax(float amax, std::int64_t slot, bool training) {
  auto* const position = position_here_.read(device_, position_).as<std::int64_t>();
  float* const entries = amax_here_.read(device_, amax_).as<float>();
  if (training && position[0] != slot + 1) {
    position[0] = slot + 1;
    position[1] = (position[1] + 1) % length_;
    entries[position[1]] = 0;
    position_here_.write(device_, position_);
  }
  const std::int64_t current = position[1];
  float known = 0;
  if (latest_) {
    known = entries[(current + length_ - 1) % length_];
  } else {
    for (std::int64_t i = 0; i < length_; ++i) known = i == current ? known : std::max(known, entries[i]);
  }
  // Outside training the current entry is complete too, but a scale must not depend on the order of calls.
  const bool finite = std::isfinite(amax);
  if (training) {
    if (finite) entries[current] = std::max(entries[current], amax);
    amax_here_.write(device_, amax_);
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return (known > 0 ? known : amax) * margin_;
}

}  // namespace tenon::quantized
