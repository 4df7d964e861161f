// Which combinations of format, scale, block and rounding this device's quantizers offer, and what the calls
// of the family may be given.
#include "quant.hpp"

#include "arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace tenon::cuda {
namespace {

constexpr const char* kElements[] = {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2"};

[[noreturn]] void refuse_spec(const std::string& reason) {
  fail_config(fmt::format("device {}: quantizer: {}", kDeviceName, reason));
}

std::string block_text(std::int64_t rows, std::int64_t columns) {
  return fmt::format("{}x{}", rows, columns);
}

bool has_block_of(const QuantizeSpec& spec, std::initializer_list<std::pair<int, int>> blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
    return spec.block_rows == block.first && spec.block_columns == block.second;
  });
}

void check_block(const QuantizeSpec& spec) {
  if (spec.scale == BlockScale::kTensor) return;
  const std::string block = block_text(spec.block_rows, spec.block_columns);
  if (spec.block_rows < 1 || spec.block_columns < 1)
    refuse_spec("blocks have at least one row and one column, found " + block);
  if (spec.scale == BlockScale::kTwoLevel && !has_block_of(spec, {{1, 16}, {16, 1}, {16, 16}}))
    refuse_spec("two-level scales belong to blocks of 1x16, 16x1 or 16x16, found " + block);
}

void check_rotation(const QuantizeSpec& spec) {
  if (!spec.rotate) return;
  if (spec.scale == BlockScale::kTensor)
    refuse_spec(
        "the 16-point rotation needs blocks of 1x16 or 16x1; one scale for the whole matrix has no blocks");
  if (!has_block_of(spec, {{1, 16}, {16, 1}})) {
    refuse_spec("the 16-point rotation needs blocks of 1x16 or 16x1, found " +
                block_text(spec.block_rows, spec.block_columns));
  }
  if (spec.block_rows == 1 && spec.columns % 16 != 0) {
    refuse_spec(
        fmt::format("the 16-point rotation along rows needs a multiple of 16 columns, found {}; only rows "
                    "can be padded",
                    spec.columns));
  }
}

void check_two_level(const QuantizeSpec& spec) {
  const bool two_level = spec.scale == BlockScale::kTwoLevel;
  if (spec.four_over_six) {
    if (!two_level)
      refuse_spec("four over six chooses between two-level scales; other scales have one candidate");
    if (spec.rotate) refuse_spec("four over six is not defined together with rotation");
    if (spec.rounding == RoundingMode::kStochastic) {
      refuse_spec(
          "four over six is not defined together with stochastic rounding: the errors that it compares are "
          "those of rounding to nearest");
    }
  }
  if (spec.line_scale) {
    if (!two_level) refuse_spec("a scale per line belongs to two-level scales");
    if (spec.block_rows == spec.block_columns)
      refuse_spec("a scale per line needs blocks of one row or one column, found 16x16");
  }
}

}  // namespace

void check_quantize_spec(const QuantizeSpec& spec) {
  if (spec.rows < 0 || spec.columns < 0)
    refuse_spec("a matrix cannot be " + block_text(spec.rows, spec.columns));
  if (spec.input != DType::kF32 && spec.input != DType::kBF16)
    refuse_spec(fmt::format("input is {}; use f32 or bf16", dtype_name(spec.input)));
  const char* element = kElements[static_cast<int>(spec.element)];
  const bool float_scale = spec.scale == BlockScale::kTensor || spec.scale == BlockScale::kFloat;
  if (float_scale && spec.element != ElementFormat::kE4M3 && spec.element != ElementFormat::kE5M2)
    refuse_spec(fmt::format("f32 scales belong to e4m3 and e5m2, found {}", element));
  if (spec.scale == BlockScale::kTwoLevel && spec.element != ElementFormat::kE2M1)
    refuse_spec(fmt::format("two-level scales belong to e2m1, found {}", element));
  if (spec.rounding == RoundingMode::kStochastic && spec.random_bits != 8 && spec.random_bits != 24)
    refuse_spec(fmt::format("stochastic rounding takes 8 or 24 random bits, found {}", spec.random_bits));
  check_block(spec);
  check_two_level(spec);
  check_rotation(spec);
}

void check_mor_spec(const MorSpec& spec) {
  if (spec.input != DType::kBF16 && spec.input != DType::kF32) {
    fail_config(fmt::format("device {}: mixture of representations reads bf16 and f32, not {}", kDeviceName,
                            dtype_name(spec.input)));
  }
  if (spec.rows < 0 || spec.columns < 0 || spec.block_rows < 0 || spec.block_columns < 0) {
    fail_config(fmt::format(
        "device {}: mixture of representations of [{}, {}] in blocks of {}x{}: no extent may be negative",
        kDeviceName, spec.rows, spec.columns, spec.block_rows, spec.block_columns));
  }
  if (spec.mode != MorMode::kTensor && spec.strategy == MorStrategy::kCurrent) {
    fail_config(fmt::format(
        "device {}: mixture of representations per block asks whether a block's own span fits a format, so "
        "its scale must follow the block: strategy gam, block or e8, not current",
        kDeviceName));
  }
  if (!(spec.threshold >= 0)) {
    fail_config(fmt::format("device {}: the threshold of a mean relative error is at least 0, found {}",
                            kDeviceName, spec.threshold));
  }
}

void check_scratch(const TensorView& scratch, std::size_t expected, const char* where) {
  const std::int64_t bytes = scratch.data == nullptr ? 0 : scratch.bytes();
  if (static_cast<std::size_t>(bytes) < expected) {
    fail_run(
        fmt::format("device {}: {}: scratch has {} bytes, expected {}", kDeviceName, where, bytes, expected));
  }
}

const float* checked_scales(const ProductScales& side, std::int64_t extent, const char* name) {
  constexpr const char* kWhere = "scale_product";
  if (side.scales.empty()) return nullptr;
  if (side.lines < 1 || side.first < 0 || side.step < 0) {
    fail_run(fmt::format("device {}: {}: scales of {}: {} lines from {} in steps of {}", kDeviceName, kWhere,
                         name, side.lines, side.first, side.step));
  }
  const std::int64_t last = side.first + (blocks_of(extent, side.lines) - 1) * side.step;
  if (extent > 0 && last >= side.scales.elements()) {
    fail_run(fmt::format("device {}: {}: scales of {} are {}, and element {} is asked for", kDeviceName,
                         kWhere, name, side.scales.elements(), last));
  }
  return checked<float>(side.scales, side.scales.elements(), kWhere, name) + side.first;
}

void refuse_quantizer(const char* reason) {
  fail_run(fmt::format("device {}: quantizer: {}", kDeviceName, reason));
}

}  // namespace tenon::cuda
