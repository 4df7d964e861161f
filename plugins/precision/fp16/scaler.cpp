// The rules of scaler.hpp. S is a double, but has only float32 values when its factors are powers of two, as
// both published defaults are.
#include "scaler.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::fp16 {
namespace {

/// Limit of growth: a float32 loss times a larger scale would itself overflow.
constexpr double kLargest = 0x1p96;

}  // namespace

Scaler::Scaler(const ScalerSettings& settings)
    : settings_(settings), scale_(settings.init), hysteresis_(settings.hysteresis) {}

void Scaler::update(bool overflow) {
  if (settings_.kind == ScalerKind::kNone) return;
  const bool stuck = settings_.kind == ScalerKind::kStatic || scale_ <= settings_.min_scale;
  helpless_ = overflow && stuck ? helpless_ + 1 : 0;
  if (settings_.patience > 0 && helpless_ >= settings_.patience) give_up();
  if (settings_.kind == ScalerKind::kStatic) return;
  if (overflow) {
    tracker_ = 0;
    if (settings_.kind == ScalerKind::kMegatron && --hysteresis_ > 0) return;
    shrink();
    return;
  }
  if (++tracker_ < settings_.interval) return;
  tracker_ = 0;
  hysteresis_ = settings_.hysteresis;
  grow();
}

void Scaler::shrink() {
  scale_ = std::max(scale_ * settings_.backoff, settings_.min_scale);
}

void Scaler::grow() {
  if (scale_ * settings_.growth <= kLargest) scale_ *= settings_.growth;
}

void Scaler::give_up() const {
  if (settings_.kind == ScalerKind::kStatic) {
    fail_run(
        fmt::format("gradients were not finite in {} slots in a row under the static loss scale {}. Lower "
                    "precision.scale, or "
                    "set precision.loss_scale = \"dynamic\"",
                    helpless_, scale_));
  }
  fail_run(
      fmt::format("gradients were not finite in {} slots in a row although the loss scale is at its floor, "
                  "{}: a smaller scale "
                  "would not help. Lower optimizer.lr, set run.clip or a longer warm-up, or train with "
                  "precision \"bf16\"; if "
                  "gradients themselves exceed 65504, lower precision.min_scale",
                  helpless_, scale_));
}

// One layout for all kinds, so that a checkpoint does not depend on the chosen kind.
void Scaler::state(StateVisitor& visitor) {
  visitor.real("scale", scale_);
  visitor.integer("tracker", tracker_);
  visitor.integer("hysteresis", hysteresis_);
  visitor.integer("helpless", helpless_);
}

}  // namespace tenon::fp16
