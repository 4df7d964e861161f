// The table of formats, keys of uses, properties of plans, and the rules of a recipe.
#include "plan.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace tenon::quantized {

namespace {

constexpr Format kFormats[] = {
    {"bf16", false},
    {"nvfp4", true, ElementFormat::kE2M1, BlockScale::kTwoLevel, 16},
    {"nvfp4_2d", true, ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, true},
    {"mxfp4", true, ElementFormat::kE2M1, BlockScale::kPower, 32},
    {"mxfp6_e2m3", true, ElementFormat::kE2M3, BlockScale::kPower, 32},
    {"mxfp6_e3m2", true, ElementFormat::kE3M2, BlockScale::kPower, 32},
    {"mxfp8_e4m3", true, ElementFormat::kE4M3, BlockScale::kPower, 32},
    {"mxfp8_e5m2", true, ElementFormat::kE5M2, BlockScale::kPower, 32},
    {"fp8_e4m3", true, ElementFormat::kE4M3, BlockScale::kTensor},
    {"fp8_e5m2", true, ElementFormat::kE5M2, BlockScale::kTensor},
    {"fp8_block", true, ElementFormat::kE4M3, BlockScale::kPower, 128},
    {"fp8_block_2d", true, ElementFormat::kE4M3, BlockScale::kPower, 128, true},
};

}  // namespace

const Format& bf16_format() {
  return kFormats[0];
}

const Format& format_of(std::string_view name) {
  std::string names;
  for (const Format& format : kFormats) {
    if (format.name == name) return format;
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  fail_config("there is no operand format '" + std::string(name) + "'; expected one of " + names);
}

std::string_view key_of(Use use) {
  constexpr std::string_view kKeys[kUses] = {"fprop_x", "fprop_w",  "dgrad_dy",
                                             "dgrad_w", "wgrad_dy", "wgrad_x"};
  return kKeys[index_of(use)];
}

bool same_values(const OperandPlan& a, const OperandPlan& b) {
  if (!(a == b)) return false;
  if (!a.quantized()) return true;
  if (a.rotate || a.rounding != RoundingMode::kNearestEven) return false;
  return a.format->square || a.format->scale == BlockScale::kTensor;
}

bool SitePlan::quantizes() const {
  return std::any_of(operands.begin(), operands.end(), [](const OperandPlan& o) { return o.quantized(); });
}

int SitePlan::quantized_products() const {
  int count = 0;
  for (std::size_t i = 0; i < kUses; i += 2) count += operands[i].quantized() || operands[i + 1].quantized();
  return count;
}

std::int64_t switch_slot(double at, std::int64_t steps) {
  if (steps <= 0) return std::numeric_limits<std::int64_t>::max();
  const double slot = std::ceil(at * static_cast<double>(steps));
  // From 2^53 slots on, rounding may raise the product above the number of slots.
  return slot < static_cast<double>(steps) ? static_cast<std::int64_t>(slot) : steps;
}

QuantizeSpec spec_of(const OperandPlan& plan, Use use, std::int64_t rows, std::int64_t columns, DType input) {
  const Format& format = *plan.format;
  QuantizeSpec spec;
  spec.rows = rows;
  spec.columns = columns;
  spec.input = input;
  spec.element = format.element;
  spec.scale = plan.by_block() ? BlockScale::kFloat : format.scale;
  spec.power = plan.power;
  if (format.block > 0) {
    spec.block_rows = format.square || along_rows(use) ? format.block : 1;
    spec.block_columns = format.square || !along_rows(use) ? format.block : 1;
  }
  spec.rounding = plan.rounding;
  spec.random_bits = plan.random_bits;
  spec.rotate = plan.rotate;
  spec.four_over_six = plan.four_over_six;
  return spec;
}

namespace {

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
