// Precision `mor`: mixture of representations (arXiv 2512.22804). Every operand of a product is tried in
// E4M3, and kept in BF16 if the error is too large: decided per tensor by its mean relative error, or per
// block. Activations are bf16, master weights f32; products are the device's BF16 products.
#pragma once

#include "ledger.hpp"
#include "quantizer.hpp"

#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/site_selection.hpp>
#include <tenon/state.hpp>

namespace tenon::mor {

class Mor final : public Precision, public PrecisionMetrics {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("level", "'tensor'")
          .one_of(kLevels)
          .doc_text("what is decided about: an operand as a whole, E4M3 or BF16 ('tensor'); each block, E4M3 "
                    "or BF16 "
                    "by error ('sub2'), or E4M3, E5M2 or BF16 by dynamic range ('sub3')"),
      option::real("threshold", "0.045")
          .between(0, 1)
          .doc_text("level 'tensor': largest mean relative error of E4M3 over elements that are not zero"),
      option::text("partition", "'128x128'")
          .doc_text("blocks that have a scale: RxC (across x along the dimension that a product sums over), "
                    "'row' (1 x "
                    "all), 'column' (all x 1) or 'tensor'"),
      option::text("strategy", "'gam'")
          .one_of(kStrategies)
          .doc_text("scales: 'gam' = one mantissa per tensor and an exponent per block, 'block' = of the "
                    "block's own "
                    "largest magnitude, 'e8' = that as a power of two, 'current' = one of the tensor's "
                    "largest magnitude"),
      option::boolean("e2m3", "false")
          .doc_text("levels 'sub2' and 'sub3': E2M3 where a block's magnitudes span a factor of at most 7.5"),
      option::boolean("fp4", "false")
          .doc_text("experimental, level 'tensor': NVFP4 where its own mean relative error is at most "
                    "fp4_threshold"),
      option::real("fp4_threshold", "0.15").between(0, 1).doc_text("of fp4"),
      option::integer("keep_first", "0")
          .between(0, 2147483647)
          .in_unit("blocks")
          .doc_text("blocks of the network, counted from the first, that stay in bf16"),
      option::integer("keep_last", "0")
          .between(0, 2147483647)
          .in_unit("blocks")
          .doc_text("the same from the last"),
      option::texts("keep", "[]")
          .doc_text("patterns of layer names that stay in bf16; * stands for anything"),
      option::boolean("head", "false").doc_text("decide about sites of the module 'head', too"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "mor",
      .summary = "products of operands in E4M3 or BF16, as their numbers allow",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Mor(const Options& options)
      : settings_(settings_of(options)), selection_("mor", options), quantizer_(settings_) {}

  DType activations() const override { return DType::kBF16; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override;
  double loss_scale() const override { return 1.0; }
  bool after_backward(const BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(StateVisitor&) override {}  // the sites hold all state
  void* query(std::string_view interface_id) override;

  void metrics(const std::function<void(std::string_view, double)>& sink) override { ledger_.metrics(sink); }

 private:
  Settings settings_;
  SiteSelection selection_;
  Ledger ledger_;
  MorQuantizer quantizer_;
};

}  // namespace tenon::mor
