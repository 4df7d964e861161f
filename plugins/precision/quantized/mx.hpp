// Components `mxfp4` and `mxfp8` (OCP Microscaling 1.0): blocks of 32 along each product's contracted
// dimension with a power of two as scale. mxfp8 follows arXiv 2506.08027: E4M3 for all operands, scales
// rounded up.
#pragma once

#include "common_options.hpp"
#include "policy.hpp"

#include <tenon/plugin.hpp>

namespace tenon::quantized {

inline constexpr OptionSpec kScaleRule =
    option::text("scale", "\"rceil\"")
        .one_of(kPowerRules)
        .doc_text("the power of two of a block: rceil never saturates, floor is OCP's default");

class Mxfp4 final : public QuantizedPrecision {
 public:
  static constexpr auto kOptions =
      with(kCommonOptions,
           std::array{
               kScaleRule,
               option::text("stochastic", "\"gradients\"")
                   .one_of(kGradientRounding)
                   .doc_text("what is rounded stochastically"),
               option::integer("random_bits", "8").between(8, 24).doc_text("of stochastic rounding: 8 or 24"),
           });
  static constexpr ComponentInfo kInfo{.id = "mxfp4",
                                       .summary = "products of MXFP4 operands, emulated bit for bit",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};
  explicit Mxfp4(const Options& options);
};

class Mxfp8 final : public QuantizedPrecision {
 public:
  /// Each choice with its operand format.
  static constexpr auto kGradients =
      option::choice<const char*>({{"e4m3", "mxfp8_e4m3"}, {"e5m2", "mxfp8_e5m2"}});
  static constexpr auto kOptions =
      with(kCommonOptions, std::array{
                               kScaleRule,
                               option::text("gradients", "\"e4m3\"")
                                   .one_of(kGradients)
                                   .doc_text("elements of gradients; weights and activations are E4M3"),
                           });
  static constexpr ComponentInfo kInfo{.id = "mxfp8",
                                       .summary = "products of MXFP8 operands, emulated bit for bit",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};
  explicit Mxfp8(const Options& options);
};

}  // namespace tenon::quantized
