// Component `fp8`: E4M3 and E5M2 with one scale per tensor (of the present tensor, or of earlier slots), or
// E4M3 with a scale per 1x128 elements of activations and gradients and per 128x128 of weights.
#pragma once

#include "common_options.hpp"
#include "policy.hpp"

#include <tenon/plugin.hpp>

namespace tenon::quantized {

class Fp8 final : public QuantizedPrecision {
 public:
  enum class Scaling : std::uint8_t { kCurrent, kDelayed, kBlock };
  static constexpr auto kRecipes = option::choice<Scaling>(
      {{"current", Scaling::kCurrent}, {"delayed", Scaling::kDelayed}, {"block", Scaling::kBlock}});
  enum class Gradients : std::uint8_t { kAuto, kE4m3, kE5m2 };
  static constexpr auto kGradients = option::choice<Gradients>(
      {{"auto", Gradients::kAuto}, {"e4m3", Gradients::kE4m3}, {"e5m2", Gradients::kE5m2}});
  static constexpr const char* kScales[] = {"pow2", "fp32", nullptr};
  static constexpr const char* kAmax[] = {"max", "latest", nullptr};
  static constexpr auto kOptions =
      with(kCommonOptions,
           std::array{
               option::text("recipe", "\"current\"")
                   .one_of(kRecipes)
                   .doc_text("scales: per tensor of its own amax, per tensor of earlier slots, or per block"),
               option::text("gradients", "\"auto\"")
                   .one_of(kGradients)
                   .doc_text("elements of gradients; auto: e5m2 with scales per tensor, e4m3 with blocks"),
               option::text("scales", "\"pow2\"")
                   .one_of(kScales)
                   .doc_text("of blocks: powers of two, or f32 and one product per block of 128"),
               option::integer("history", "1024")
                   .between(1, 65536)
                   .in_unit("slots")
                   .doc_text("recipe delayed: slots whose amax is remembered"),
               option::integer("margin", "0")
                   .between(0, 16)
                   .doc_text("recipe delayed: binades of head room, the scale is made 2^margin smaller"),
               option::text("amax", "\"max\"")
                   .one_of(kAmax)
                   .doc_text("recipe delayed: the largest of the history, or the latest"),
           });
  static constexpr ComponentInfo kInfo{.id = "fp8",
                                       .summary = "products of FP8 operands, emulated bit for bit",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};
  explicit Fp8(const Options& options);
};

}  // namespace tenon::quantized
