// The operand formats of this plugin by the names that configurations, counts and records use. A block
// extends along the dimension that the product sums over; a square one also across it, so that a weight has
// the same values in fprop and dgrad.
#pragma once

#include <tenon/ops/quant.hpp>

#include <span>
#include <string_view>

namespace tenon::quantized {

struct Format {
  std::string_view name;
  bool quantized = true;  ///< false: bf16, the activations' own
  ElementFormat element = ElementFormat::kE2M1;
  BlockScale scale = BlockScale::kTensor;
  std::int64_t block = 0;  ///< 0: the whole matrix
  bool square = false;
};

/// Null-terminated, for OptionSpec::one_of.
inline constexpr const char* kFormatNames[] = {
    "bf16",       "nvfp4",    "nvfp4_2d", "mxfp4",     "mxfp6_e2m3",   "mxfp6_e3m2", "mxfp8_e4m3",
    "mxfp8_e5m2", "fp8_e4m3", "fp8_e5m2", "fp8_block", "fp8_block_2d", nullptr};

std::span<const Format> formats();
const Format& bf16_format();
/// Throws Error(kConfig) that lists the names.
const Format& format_of(std::string_view name);

}  // namespace tenon::quantized
