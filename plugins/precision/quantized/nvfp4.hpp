// Component `nvfp4` (arXiv 2509.25149): E2M1 with an E4M3 scale per 16 elements and one f32 per tensor.
// Weights in 16x16 blocks, gradients rounded stochastically, wgrad's operands rotated; each of these can be
// disabled.
#pragma once

#include "common_options.hpp"
#include "policy.hpp"

#include <tenon/plugin.hpp>

namespace tenon::quantized {

class Nvfp4 final : public QuantizedPrecision {
 public:
  /// Each choice with its operand format.
  static constexpr auto kWeights = option::choice<const char*>({{"2d", "nvfp4_2d"}, {"1d", "nvfp4"}});
  static constexpr auto kRotations = option::choice<Rotate>(
      {{"wgrad", Rotate::kWgrad}, {"none", Rotate::kNone}, {"x", Rotate::kX}, {"dy", Rotate::kDy}});
  static constexpr auto kOptions = with(
      kCommonOptions,
      std::array{
          option::text("weights", "\"2d\"")
              .one_of(kWeights)
              .doc_text("blocks of weights: 16x16, or 1x16 along each product's contracted dimension"),
          option::text("rotate", "\"wgrad\"")
              .one_of(kRotations)
              .doc_text("16-point randomised Hadamard transform of wgrad's operands: both, none, or as a "
                        "control that must fail x or dy alone"),
          option::text("stochastic", "\"gradients\"")
              .one_of(kGradientRounding)
              .doc_text("what is rounded stochastically"),
          option::integer("random_bits", "8").between(8, 24).doc_text("of stochastic rounding: 8 or 24"),
          option::boolean("four_over_six", "false")
              .doc_text("per block, map the largest magnitude to 4 or to 6, whichever is nearer; only where "
                        "rounding is to nearest and nothing is rotated"),
      });
  static constexpr ComponentInfo kInfo{.id = "nvfp4",
                                       .summary = "products of NVFP4 operands, emulated bit for bit",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};
  explicit Nvfp4(const Options& options);
};

}  // namespace tenon::quantized
