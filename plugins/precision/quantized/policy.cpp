// Creates sites from options; site.cpp does the work.
#include "policy.hpp"

#include <tenon/error.hpp>

namespace tenon::quantized {

QuantizedPrecision::QuantizedPrecision(std::string_view component, const Options& options,
                                       const Recipe& recipe, std::span<const std::string_view> formats)
    : recipe_(recipe),
      selection_(component, options),
      worst_(options.real("keep_worst"), options.integer("keep_worst_slot")),
      quantizer_(make_quantizer(formats, recipe)) {
  recipe_.late = options.choice("switch", kSwitches);
  recipe_.switch_at = options.real("switch_at");
  products_ = options.choice("products", kMultiplied);
  for (const std::string_view pattern : options.section_names("site")) {
    const Options& table = options.section("site", pattern);
    Section section{selection_.add_pattern(pattern)};
    for (std::size_t i = 0; i < kUses; ++i) {
      const std::string_view key = key_of(static_cast<Use>(i));
      if (table.has(key)) section.formats[i] = &format_of(table.text(key));
    }
    sections_.push_back(section);
  }
}

std::unique_ptr<LinearSite> QuantizedPrecision::bind(const SiteInfo& site, SiteHost& host) {
  const bool kept = selection_.keeps(site);
  FormatSet formats = recipe_.formats;
  std::string reason = "recipe";
  for (const Section& section : sections_) {
    if (!selection_.match(section.pattern, site)) continue;
    reason = "site section";
    for (std::size_t i = 0; i < kUses; ++i)
      formats[i] = section.formats[i] != nullptr ? section.formats[i] : recipe_.formats[i];
  }
  SitePlan plan = plan_of(recipe_, formats, site.steps);
  plan.reason = reason;
  plan.may_keep = worst_.active();
  plan.products = products_;
  const bool quantized = !kept && plan.quantizes();
  selection_.bound(site, quantized);
  if (!quantized) return nullptr;
  auto made = std::make_unique<QuantizedSite>(site, host, plan, &worst_, worst_.add(site.layer, site.site));
  on_codes_ += made->native_gemms();
  on_anything_ += plan.quantized_products();
  return made;
}

bool QuantizedPrecision::after_backward(const BackwardStats& stats) {
  worst_.end_slot(stats.slot);
  return !stats.found_non_finite;
}

void* QuantizedPrecision::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == PrecisionMetrics::kId && products_ != Multiplied::kValues)
    return static_cast<PrecisionMetrics*>(this);
  return interface_id == Quantizer::kId ? quantizer_.get() : nullptr;
}

void QuantizedPrecision::metrics(const std::function<void(std::string_view, double)>& sink) {
  if (on_anything_ > 0)
    sink("native_products", static_cast<double>(on_codes_) / static_cast<double>(on_anything_));
}

}  // namespace tenon::quantized
