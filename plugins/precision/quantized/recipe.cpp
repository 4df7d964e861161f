// Rules of recipe.hpp.
#include "recipe.hpp"

#include <tenon/error.hpp>

namespace tenon::quantized {
namespace {

bool is_gradient(Use use) {
  return use == Use::kDgradDy || use == Use::kWgradDy;
}

bool rotatable(const Format& format) {
  return format.scale == BlockScale::kTwoLevel && !format.square;
}

bool rotates(const Recipe& recipe, const FormatSet& formats, Use use) {
  const bool dy = rotatable(*formats[index_of(Use::kWgradDy)]),
             x = rotatable(*formats[index_of(Use::kWgradX)]);
  switch (recipe.rotate) {
    case Rotate::kWgrad:
      return dy && x && (use == Use::kWgradDy || use == Use::kWgradX);
    case Rotate::kX:
      return x && use == Use::kWgradX;
    case Rotate::kDy:
      return dy && use == Use::kWgradDy;
    default:
      return false;
  }
}

}  // namespace

int random_bits(const Options& options) {
  const std::int64_t bits = options.integer("random_bits");
  if (bits != 8 && bits != 24)
    fail_config("random_bits is " + std::to_string(bits) +
                "; stochastic rounding takes 8 bits (as the hardware) or 24");
  return static_cast<int>(bits);
}

FormatSet formats_of(std::string_view x, std::string_view w, std::string_view dy) {
  const Format &of_x = format_of(x), &of_w = format_of(w), &of_dy = format_of(dy);
  return {&of_x, &of_w, &of_dy, &of_w, &of_dy, &of_x};
}

SitePlan plan_of(const Recipe& recipe, const FormatSet& formats, std::int64_t steps) {
  SitePlan plan;
  for (int i = 0; i < kUses; ++i) {
    const Use use = static_cast<Use>(i);
    const Format& format = *formats[index_of(use)];
    OperandPlan& operand = plan[use];
    operand.format = &format;
    if (!format.quantized) continue;
    const bool two_level = format.scale == BlockScale::kTwoLevel;
    if (format.scale == BlockScale::kPower && format.block == 32) operand.power = recipe.power;
    if (recipe.stochastic && is_gradient(use) && format.element == ElementFormat::kE2M1) {
      operand.rounding = RoundingMode::kStochastic;
      operand.random_bits = recipe.random_bits;
    }
    operand.rotate = rotates(recipe, formats, use);
    operand.four_over_six = recipe.four_over_six && two_level && !operand.rotate &&
                            operand.rounding == RoundingMode::kNearestEven;
    operand.float_scales = recipe.float_scales && format.block == 128;
    operand.delayed = recipe.delayed && format.scale == BlockScale::kTensor;
  }
  plan.late = recipe.late;
  plan.switch_slot = switch_slot(recipe.switch_at, steps);
  plan.history = recipe.history;
  plan.margin = recipe.margin;
  plan.latest = recipe.latest;
  return plan;
}

}  // namespace tenon::quantized
