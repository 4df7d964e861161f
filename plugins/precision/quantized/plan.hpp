// The plan of a linear site: a format and its settings for each of the six operands of its three products,
// made from the options of a component.
//   fprop y = x w^T sums over k, dgrad dx = dy w over n, wgrad dw = dy^T x over m.
#pragma once

#include <tenon/ops/quant.hpp>
#include <tenon/options.hpp>
#include <tenon/site_products.hpp>

#include <array>
#include <limits>
#include <string>
#include <string_view>

namespace tenon::quantized {

/// The operand formats of this plugin by the names that configurations, counts and records use. A block
/// extends along the dimension that the product sums over; a square one also across it, so that a weight has
/// the same values in fprop and dgrad.
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

const Format& bf16_format();
/// Throws Error(kConfig) that lists the names.
const Format& format_of(std::string_view name);

using Use = SiteOperand;
inline constexpr int kUses = kSiteOperands;

/// "fprop_x": the key of a site section.
std::string_view key_of(Use use);

struct OperandPlan {
  const Format* format = &bf16_format();
  PowerRule power = PowerRule::kRoundUp;
  RoundingMode rounding = RoundingMode::kNearestEven;
  int random_bits = 8;
  bool rotate = false;
  bool four_over_six = false;
  bool float_scales = false;  ///< fp8_block: scales in f32 instead of powers of two
  bool delayed = false;       ///< fp8 per tensor: the scale comes from the amax of earlier slots

  bool quantized() const { return format->quantized; }
  /// Returns whether values lack the block scale and run in one product per block of the contracted
  /// dimension.
  bool by_block() const { return quantized() && float_scales && format->block == 128; }
  bool operator==(const OperandPlan&) const = default;
};

/// Returns whether two uses of a tensor, along different dimensions, have the same values.
bool same_values(const OperandPlan& a, const OperandPlan& b);

/// Products that run in bf16 from the switch slot on.
enum class Switch : std::uint8_t { kNone, kForward, kAll };

/// Operands of the products: decoded values, codes (always), or codes where the device can.
enum class Multiplied : std::uint8_t { kValues, kNative, kAuto };

struct SitePlan {
  std::array<OperandPlan, kUses> operands;
  std::string reason = "recipe";  ///< for reports
  Switch late = Switch::kNone;
  std::int64_t switch_slot = std::numeric_limits<std::int64_t>::max();
  bool may_keep = false;  ///< the policy may turn the whole site to bf16 during the run
  std::int64_t history = 1024;
  int margin = 0;
  bool latest = false;  ///< delayed: the last slot's amax instead of the largest of the history
  Multiplied products = Multiplied::kValues;

  OperandPlan& operator[](Use use) { return operands[index_of(use)]; }
  const OperandPlan& operator[](Use use) const { return operands[index_of(use)]; }
  bool quantizes() const;
  int quantized_products() const;  ///< with one quantized operand or two
  bool switched(Use use, std::int64_t slot) const {
    if (late == Switch::kNone || slot < switch_slot) return false;
    return late == Switch::kAll || use == Use::kFpropX || use == Use::kFpropW;
  }
};

/// Returns the first slot in bf16 when the last (1 - at) of a run use it: ceil(at * steps); never for steps =
/// 0.
std::int64_t switch_slot(double at, std::int64_t steps);

/// Returns the device's description of a use of a matrix [rows, columns]. Its plan must be quantized.
QuantizeSpec spec_of(const OperandPlan& plan, Use use, std::int64_t rows, std::int64_t columns, DType input);

/// Operands of wgrad that go through the randomised Hadamard transform. With one operand alone it does not
/// cancel: a control that must fail.
enum class Rotate : std::uint8_t { kNone, kWgrad, kX, kDy };

using FormatSet = std::array<const Format*, kUses>;

struct Recipe {
  FormatSet formats{};
  PowerRule power = PowerRule::kRoundUp;
  bool stochastic = false;  ///< of gradients in E2M1
  int random_bits = 8;
  Rotate rotate = Rotate::kNone;
  bool four_over_six = false;
  bool float_scales = false;
  bool delayed = false;
  std::int64_t history = 1024;
  int margin = 0;
  bool latest = false;
  Switch late = Switch::kNone;
  double switch_at = 0.82;
};

/// Returns option `random_bits`; throws Error(kConfig) for numbers other than 8 and 24.
int random_bits(const Options& options);

/// The same format for each pair of uses: x, w and dy along the contracted dimension.
FormatSet formats_of(std::string_view x, std::string_view w, std::string_view dy);

/// `formats` replace the recipe's own. Stochastic rounding applies to gradients in E2M1; the rotation to 1x16
/// blocks of NVFP4, and only if both operands of wgrad have them (one, for the controls); four over six to
/// NVFP4 rounded to nearest and not rotated; f32 scales to fp8_block; delayed scales to FP8 per tensor.
SitePlan plan_of(const Recipe& recipe, const FormatSet& formats, std::int64_t steps);

}  // namespace tenon::quantized
