// Contract precision/1 for all components of this plugin: bf16 activations, f32 master weights, sites by a
// recipe, with the configuration's overrides for single sites.
#pragma once

#include "recipe.hpp"
#include "site.hpp"
#include "worst.hpp"

#include <tenon/options.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/sdk/site_selection.hpp>

#include <functional>
#include <memory>

namespace tenon::quantized {

class QuantizedPrecision : public Precision, public PrecisionMetrics {
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
  KeepWorst worst_;
  std::unique_ptr<Quantizer> quantizer_;
  Multiplied products_;
  std::int64_t on_codes_ = 0, on_anything_ = 0;  ///< products of the sites
};

}  // namespace tenon::quantized
