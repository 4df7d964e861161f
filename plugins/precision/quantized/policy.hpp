// Contract precision/1 for all components of this plugin: bf16 activations, f32 master weights, sites by a
// recipe, with the configuration's overrides for single sites.
#pragma once

#include "high_precision_fallback.hpp"
#include "plan.hpp"
#include "site.hpp"

#include <tenon/identities.hpp>
#include <tenon/options.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/sdk/site_selection.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace tenon::quantized {

// Options that all components of this plugin share, and a way to append a component's own options.

inline constexpr auto kSwitches =
    option::choice<Switch>({{"none", Switch::kNone}, {"forward", Switch::kForward}, {"all", Switch::kAll}});
inline constexpr auto kMultiplied = option::choice<Multiplied>(
    {{"values", Multiplied::kValues}, {"native", Multiplied::kNative}, {"auto", Multiplied::kAuto}});
inline constexpr const char* kGradientRounding[] = {"gradients", "none", nullptr};
inline constexpr auto kPowerRules = option::choice<PowerRule>({{"rceil", PowerRule::kRoundUp},
                                                               {"floor", PowerRule::kFloor},
                                                               {"ceil", PowerRule::kCeil},
                                                               {"even", PowerRule::kEven}});

constexpr OptionSpec format_option(const char* name, const char* text) {
  return option::text(name, nullptr).one_of(kFormatNames).doc_text(text);
}

/// Options of [precision.site."pattern"].
inline constexpr OptionSpec kSiteOptions[] = {
    format_option("fprop_x", "format of x in y = x w^T"),
    format_option("fprop_w", "format of w in y = x w^T"),
    format_option("dgrad_dy", "format of dy in dx = dy w"),
    format_option("dgrad_w", "format of w in dx = dy w"),
    format_option("wgrad_dy", "format of dy in dw = dy^T x"),
    format_option("wgrad_x", "format of x in dw = dy^T x"),
};

inline constexpr std::array kCommonOptions = {
    option::keep_first_blocks(),
    option::keep_last_blocks(),
    option::keep_first_gemms(),
    option::keep_last_gemms(),
    option::keep_layers(),
    option::boolean("head", "false").doc_text("quantize sites of the module \"head\", too"),
    option::real("keep_worst", "0")
        .between(0, 1)
        .doc_text(
            "fraction of the quantized sites that switch to bf16: those whose weights lose most by rounding"),
    option::integer("keep_worst_slot", "100")
        .at_least(0)
        .in_unit("slots")
        .doc_text("slot in which keep_worst measures; it acts from the next one on"),
    option::text("switch", "\"none\"")
        .one_of(kSwitches)
        .doc_text("products that switch to bf16 late in the run: none, those of the forward pass, or all"),
    option::real("switch_at", "0.82")
        .between(0, 1)
        .doc_text("fraction of the run's slots after which they switch"),
    option::text("products", "\"values\"")
        .one_of(kMultiplied)
        .doc_text("values: multiply dequantized values; native: multiply codes and scales, on a device with "
                  "low-precision GEMMs; auto: native in those products that the device has, else values"),
    option::sections<kSiteOptions>("site").doc_text(
        "formats for layers whose name matches a pattern; of several matching tables the last counts"),
};

template <std::size_t A, std::size_t B>
constexpr std::array<OptionSpec, A + B> with(const std::array<OptionSpec, A>& common,
                                             const std::array<OptionSpec, B>& own) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<OptionSpec, A + B>{(I < A ? common[I < A ? I : 0] : own[I < A ? 0 : I - A])...};
  }
  (std::make_index_sequence<A + B>{});
}

/// Interface `tenon.quantizer/1` of the components: one matrix rounded outside training. The device rounds;
/// the host unpacks and decodes the codes.
/// `formats`: names with static lifetime, the default first. `recipe` holds the defaults of a request (scale
/// rule, random bits, f32 block scales).
std::unique_ptr<Quantizer> make_quantizer(std::span<const std::string_view> formats, const Recipe& recipe);

/// Holds for every component of this plugin.
inline constexpr Identity kSwitchedAtOnce = {
    .why = "products that switch to bf16 in the first slot are those of bf16",
    .options = "switch = 'all'\nswitch_at = 0.0",
    .other = "type = 'bf16'"};

class QuantizedPrecision : public Precision, public PrecisionMetrics, protected ComponentIdentities {
 public:
  DType activations() const final { return DType::kBF16; }
  DType parameters() const final { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) final;
  double loss_scale() const final { return 1.0; }
  /// Refuses an update that would spread NaN or infinity.
  bool after_backward(const BackwardStats& stats) final;
  void state(StateVisitor& visitor) final { worst_.state(visitor); }
  void* query(std::string_view interface_id) final;
  /// Reports the share of the quantized products that run on codes, if codes are requested.
  void metrics(const std::function<void(std::string_view, double)>& sink) final;

 protected:
  /// `formats`: those of tenon.quantizer/1, the default first.
  QuantizedPrecision(std::string_view component, const Options& options, const Recipe& recipe,
                     std::span<const std::string_view> formats);

 private:
  /// Formats of a `site` section that override the recipe's; null where unset.
  struct Section {
    std::size_t pattern = 0;
    FormatSet formats{};
  };

  Recipe recipe_;
  SiteSelection selection_;
  std::vector<Section> sections_;
  HighPrecisionFallback worst_;
  std::unique_ptr<Quantizer> quantizer_;
  Multiplied products_;
  std::int64_t on_codes_ = 0, on_anything_ = 0;  ///< products of the sites
};

}  // namespace tenon::quantized
