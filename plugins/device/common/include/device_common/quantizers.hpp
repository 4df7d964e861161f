// Combinations of format, scale, block and rounding that the quantizers and mixtures of the devices of this
// tree offer: the reason why one is not defined, or "".
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/ops/quant.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

namespace tenon::device_quantizers {

/// "1x16"
inline std::string block_text(std::int64_t rows, std::int64_t columns) {
  return fmt::format("{}x{}", rows, columns);
}

inline bool is_any_of(const QuantizeSpec& spec, std::initializer_list<std::pair<int, int>> blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
    return spec.block_rows == block.first && spec.block_columns == block.second;
  });
}

inline std::string block_refusal(const QuantizeSpec& spec) {
  if (spec.scale == BlockScale::kTensor) return "";
  const std::string block = block_text(spec.block_rows, spec.block_columns);
  if (spec.block_rows < 1 || spec.block_columns < 1)
    return "blocks have at least one row and one column, found " + block;
  if (spec.scale == BlockScale::kTwoLevel && !is_any_of(spec, {{1, 16}, {16, 1}, {16, 16}}))
    return "two-level scales belong to blocks of 1x16, 16x1 or 16x16, found " + block;
  return "";
}

inline std::string rotation_refusal(const QuantizeSpec& spec) {
  if (!spec.rotate) return "";
  if (spec.scale == BlockScale::kTensor)
    return "the 16-point rotation needs blocks of 1x16 or 16x1; one scale for the whole matrix has no blocks";
  if (!is_any_of(spec, {{1, 16}, {16, 1}})) {
    return "the 16-point rotation needs blocks of 1x16 or 16x1, found " +
           block_text(spec.block_rows, spec.block_columns);
  }
  if (spec.block_rows == 1 && spec.columns % 16 != 0) {
    return fmt::format(
        "the 16-point rotation along rows needs a multiple of 16 columns, found {}; only rows can be padded",
        spec.columns);
  }
  return "";
}

inline std::string two_level_refusal(const QuantizeSpec& spec) {
  const bool two_level = spec.scale == BlockScale::kTwoLevel;
  if (spec.four_over_six) {
    if (!two_level) return "four over six chooses between two-level scales; other scales have one candidate";
    if (spec.rotate) return "four over six is not defined together with rotation";
    if (spec.rounding == RoundingMode::kStochastic) {
      return "four over six is not defined together with stochastic rounding: the errors that it compares "
             "are those of rounding to nearest";
    }
  }
  if (spec.line_scale) {
    if (!two_level) return "a scale per line belongs to two-level scales";
    if (spec.block_rows == spec.block_columns)
      return "a scale per line needs blocks of one row or one column, found 16x16";
  }
  return "";
}

inline std::string quantizer_refusal(const QuantizeSpec& spec) {
  constexpr const char* kElements[] = {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2"};
  if (spec.rows < 0 || spec.columns < 0) return "a matrix cannot be " + block_text(spec.rows, spec.columns);
  if (spec.input != DType::kF32 && spec.input != DType::kBF16)
    return fmt::format("input is {}; use f32 or bf16", dtype_name(spec.input));
  const char* const element = kElements[static_cast<int>(spec.element)];
  const bool float_scale = spec.scale == BlockScale::kTensor || spec.scale == BlockScale::kFloat;
  if (float_scale && spec.element != ElementFormat::kE4M3 && spec.element != ElementFormat::kE5M2)
    return fmt::format("f32 scales belong to e4m3 and e5m2, found {}", element);
  if (spec.scale == BlockScale::kTwoLevel && spec.element != ElementFormat::kE2M1)
    return fmt::format("two-level scales belong to e2m1, found {}", element);
  if (spec.rounding == RoundingMode::kStochastic && spec.random_bits != 8 && spec.random_bits != 24)
    return fmt::format("stochastic rounding takes 8 or 24 random bits, found {}", spec.random_bits);
  for (auto* const refusal : {block_refusal, two_level_refusal, rotation_refusal}) {
    if (std::string reason = refusal(spec); !reason.empty()) return reason;
  }
  return "";
}

inline std::string mor_refusal(const MorSpec& spec) {
  if (spec.input != DType::kBF16 && spec.input != DType::kF32)
    return fmt::format("mixture of representations reads bf16 and f32, not {}", dtype_name(spec.input));
  if (spec.rows < 0 || spec.columns < 0 || spec.block_rows < 0 || spec.block_columns < 0) {
    return fmt::format("mixture of representations of [{}, {}] in blocks of {}x{}: no extent may be negative",
                       spec.rows, spec.columns, spec.block_rows, spec.block_columns);
  }
  if (spec.mode != MorMode::kTensor && spec.strategy == MorStrategy::kCurrent) {
    return "mixture of representations per block asks whether a block's own span fits a format, so its scale "
           "must follow the block: strategy gam, block or e8, not current";
  }
  if (!(spec.threshold >= 0))
    return fmt::format("the threshold of a mean relative error is at least 0, found {}", spec.threshold);
  return "";
}

/// Throw Error(kConfig) with the reason.
inline void check_quantizer(const QuantizeSpec& spec) {
  if (const std::string reason = quantizer_refusal(spec); !reason.empty())
    device_arguments::refuse_config("quantizer: " + reason);
}
inline void check_mor(const MorSpec& spec) {
  if (const std::string reason = mor_refusal(spec); !reason.empty()) device_arguments::refuse_config(reason);
}

}  // namespace tenon::device_quantizers
