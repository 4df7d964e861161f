// The loss scale of `fp16` as a state machine over slots: static, or dynamic by one of the two published
// rules.
//   pytorch  (torch.amp.GradScaler): overflow: S *= backoff, tracker = 0
//            else: tracker += 1; at `interval`: S *= growth, tracker = 0
//   megatron (DynamicGradScaler): overflow: tracker = 0, hysteresis -= 1; if that is 0 or less: S *= backoff
//            else: tracker += 1; at `interval`: tracker = 0, hysteresis = H, S *= growth
// S never falls below min_scale. The scaler is independent of gradients and ranks.
// S is a double, but has only float32 values when its factors are powers of two, as both published defaults
// are.
#pragma once

#include <tenon/error.hpp>
#include <tenon/state.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace tenon::fp16 {

enum class ScalerKind : std::uint8_t { kNone, kStatic, kPytorch, kMegatron };

struct ScalerSettings {
  ScalerKind kind = ScalerKind::kPytorch;
  double init = 65536;
  double growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  ///< consecutive good slots before S grows
  std::int64_t hysteresis = 1;   ///< megatron: overflows before S shrinks
  double min_scale = 1;
  std::int64_t patience = 20;  ///< limit on consecutive overflows at a scale that cannot shrink; 0 = no limit
};

class Scaler {
 public:
  explicit Scaler(const ScalerSettings& settings);

  double scale() const { return scale_; }
  /// Processes one slot. Throws Error(kRun) with advice when overflow persists although the scale cannot
  /// shrink further.
  void update(bool overflow);
  void state(StateVisitor& visitor);

 private:
  void shrink();
  void grow();
  [[noreturn]] void give_up() const;

  ScalerSettings settings_;
  double scale_;
  std::int64_t tracker_ = 0;
  std::int64_t hysteresis_;
  std::int64_t helpless_ = 0;  ///< consecutive overflows at a scale that cannot shrink
};

/// Limit of growth: a float32 loss times a larger scale would itself overflow.
inline constexpr double kLargest = 0x1p96;

inline Scaler::Scaler(const ScalerSettings& settings)
    : settings_(settings), scale_(settings.init), hysteresis_(settings.hysteresis) {}

inline void Scaler::update(bool overflow) {
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

inline void Scaler::shrink() {
  scale_ = std::max(scale_ * settings_.backoff, settings_.min_scale);
}

inline void Scaler::grow() {
  if (scale_ * settings_.growth <= kLargest) scale_ *= settings_.growth;
}

inline void Scaler::give_up() const {
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
inline void Scaler::state(StateVisitor& visitor) {
  visitor.real("scale", scale_);
  visitor.integer("tracker", tracker_);
  visitor.integer("hysteresis", hysteresis_);
  visitor.integer("helpless", helpless_);
}

}  // namespace tenon::fp16
