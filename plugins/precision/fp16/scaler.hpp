// The loss scale of `fp16` as a state machine over slots: static, or dynamic by one of the two published
// rules.
//   pytorch  (torch.amp.GradScaler): overflow: S *= backoff, tracker = 0
//            else: tracker += 1; at `interval`: S *= growth, tracker = 0
//   megatron (DynamicGradScaler): overflow: tracker = 0, hysteresis -= 1; if that is 0 or less: S *= backoff
//            else: tracker += 1; at `interval`: tracker = 0, hysteresis = H, S *= growth
// S never falls below min_scale. The scaler is independent of gradients and ranks.
#pragma once

#include <tenon/state.hpp>

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

}  // namespace tenon::fp16
