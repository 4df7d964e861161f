// Maps the options of a component to the plan of a site: six formats and their settings.
#pragma once

#include "plan.hpp"

#include <tenon/options.hpp>

#include <array>

namespace tenon::quantized {

/// Operands of wgrad that go through the randomised Hadamard transform. With one operand alone it does not
/// cancel: a control that must fail.
enum class Rotate : std::uint8_t { kNone, kWgrad, kX, kDy };

using FormatSet = std::array<const Format*, kUses>;

struct Recipe {
  FormatSet formats{};
  PowerRule power = PowerRule::kRoundUp;
  bool stochastic = false;  ///< of gradients in E2M1
  int random_bits = 8;
  Rotate rotate = Rotate::kNone;
  bool four_over_six = false;
  bool float_scales = false;
  bool delayed = false;
  std::int64_t history = 1024;
  int margin = 0;
  bool latest = false;
  Switch late = Switch::kNone;
  double switch_at = 0.82;
};

/// Returns option `random_bits`; throws Error(kConfig) for numbers other than 8 and 24.
int random_bits(const Options& options);

/// The same format for each pair of uses: x, w and dy along the contracted dimension.
FormatSet formats_of(std::string_view x, std::string_view w, std::string_view dy);

/// `formats` replace the recipe's own. Stochastic rounding applies to gradients in E2M1; the rotation to 1x16
/// blocks of NVFP4, and only if both operands of wgrad have them (one, for the controls); four over six to
/// NVFP4 rounded to nearest and not rotated; f32 scales to fp8_block; delayed scales to FP8 per tensor.
SitePlan plan_of(const Recipe& recipe, const FormatSet& formats, std::int64_t steps);

}  // namespace tenon::quantized
