// Which combinations of format, scale, block and rounding this device's quantizers offer.
#include "quant.hpp"

#include <fmt/format.h>

#include <numeric>

namespace tenon::cpu {
namespace {

constexpr const char* kElements[] = {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2"};

[[noreturn]] void refuse(const std::string& reason) {
  fail_config("device cpu: quantizer: " + reason);
}

bool is_any_of(const QuantizeSpec& spec, std::initializer_list<std::pair<int, int>> blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
    return spec.block_rows == block.first && spec.block_columns == block.second;
  });
}

void check_block(const QuantizeSpec& spec) {
  if (spec.scale == BlockScale::kTensor) return;
  const std::string block = block_text(spec.block_rows, spec.block_columns);
  if (spec.block_rows < 1 || spec.block_columns < 1)
    refuse("blocks have at least one row and one column, found " + block);
  if (spec.scale == BlockScale::kTwoLevel && !is_any_of(spec, {{1, 16}, {16, 1}, {16, 16}}))
    refuse("two-level scales belong to blocks of 1x16, 16x1 or 16x16, found " + block);
}

void check_rotation(const QuantizeSpec& spec) {
  if (!spec.rotate) return;
  if (spec.scale == BlockScale::kTensor)
    refuse(
        "the 16-point rotation needs blocks of 1x16 or 16x1; one scale for the whole matrix has no blocks");
  if (!is_any_of(spec, {{1, 16}, {16, 1}})) {
    refuse("the 16-point rotation needs blocks of 1x16 or 16x1, found " +
           block_text(spec.block_rows, spec.block_columns));
  }
  if (spec.block_rows == 1 && spec.columns % 16 != 0) {
    refuse(
        fmt::format("the 16-point rotation along rows needs a multiple of 16 columns, found {}; only rows "
                    "can be padded",
                    spec.columns));
  }
}

void check_two_level(const QuantizeSpec& spec) {
  const bool two_level = spec.scale == BlockScale::kTwoLevel;
  if (spec.four_over_six) {
    if (!two_level) refuse("four over six chooses between two-level scales; other scales have one candidate");
    if (spec.rotate) refuse("four over six is not defined together with rotation");
    if (spec.rounding == RoundingMode::kStochastic) {
      refuse(
          "four over six is not defined together with stochastic rounding: the errors that it compares are "
          "those of rounding to nearest");
    }
  }
  if (spec.line_scale) {
    if (!two_level) refuse("a scale per line belongs to two-level scales");
    if (spec.block_rows == spec.block_columns)
      refuse("a scale per line needs blocks of one row or one column, found 16x16");
  }
}

}  // namespace

std::string block_text(std::int64_t rows, std::int64_t columns) {
  return fmt::format("{}x{}", rows, columns);
}

void check_quantize_spec(const QuantizeSpec& spec) {
  if (spec.rows < 0 || spec.columns < 0) refuse("a matrix cannot be " + block_text(spec.rows, spec.columns));
  if (spec.input != DType::kF32 && spec.input != DType::kBF16)
    refuse(fmt::format("input is {}; use f32 or bf16", dtype_name(spec.input)));
  const char* element = kElements[static_cast<int>(spec.element)];
  const bool float_scale = spec.scale == BlockScale::kTensor || spec.scale == BlockScale::kFloat;
  if (float_scale && spec.element != ElementFormat::kE4M3 && spec.element != ElementFormat::kE5M2)
    refuse(fmt::format("f32 scales belong to e4m3 and e5m2, found {}", element));
  if (spec.scale == BlockScale::kTwoLevel && spec.element != ElementFormat::kE2M1)
    refuse(fmt::format("two-level scales belong to e2m1, found {}", element));
  if (spec.rounding == RoundingMode::kStochastic && spec.random_bits != 8 && spec.random_bits != 24)
    refuse(fmt::format("stochastic rounding takes 8 or 24 random bits, found {}", spec.random_bits));
  check_block(spec);
  check_two_level(spec);
  check_rotation(spec);
}

Bands::Bands(const QuantizeSpec& spec) {
  constexpr std::int64_t kGroup = 16;
  const bool whole = spec.scale == BlockScale::kTensor;
  const std::int64_t down = whole ? 1 : spec.block_rows;
  const std::int64_t unit = whole ? kGroup : std::lcm(spec.block_columns, kGroup);
  const std::int64_t columns = std::max<std::int64_t>(1, spec.columns);
  width = columns;
  // A strip of blocks across a wide matrix would be more than a thread's share.
  if (down * columns > 2 * kFlatBlock && unit < columns) {
    width = blocks_of(std::max<std::int64_t>(1, kFlatBlock / down), unit) * unit;
    width = std::min(width, columns);
  }
  height = down * std::max<std::int64_t>(1, kFlatBlock / (width * down));
  across = blocks_of(columns, width);
  count = spec.columns == 0 ? 0 : across * blocks_of(spec.rows, height);
}

}  // namespace tenon::cpu
