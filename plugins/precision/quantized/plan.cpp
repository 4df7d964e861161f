// Names of uses and properties of plans.
#include "plan.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::quantized {
namespace {

struct Names {
  std::string_view gemm, operand, key;
};

constexpr Names kNames[kUses] = {{"fprop", "x", "fprop_x"},   {"fprop", "w", "fprop_w"},
                                 {"dgrad", "dy", "dgrad_dy"}, {"dgrad", "w", "dgrad_w"},
                                 {"wgrad", "dy", "wgrad_dy"}, {"wgrad", "x", "wgrad_x"}};

}  // namespace

std::string_view gemm_of(Use use) {
  return kNames[index_of(use)].gemm;
}
std::string_view operand_of(Use use) {
  return kNames[index_of(use)].operand;
}
std::string_view key_of(Use use) {
  return kNames[index_of(use)].key;
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

}  // namespace tenon::quantized
