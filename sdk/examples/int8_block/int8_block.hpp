// Precision `int8_block` (contract precision/1): both operands of a linear site's products go through int8
// with one f32 scale per block along the dimension that the product sums over; the products themselves,
// activations, weights and gradients stay in f32. It emulates exactly: code * scale is formed in f32 and
// multiplied by the device's own f32 product.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/state.hpp>

namespace int8_block {

/// The products of a site that go through int8.
struct Products {
  bool fprop = true, dgrad = true, wgrad = true;
};

class Int8Block final : public tenon::Precision {
 public:
  static constexpr const char* kGemms[] = {"fprop", "dgrad", "wgrad", nullptr};
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("block", "32")
          .between(1, 65536)
          .in_unit("elements")
          .doc_text("numbers that share a scale, along the dimension that the product sums over"),
      tenon::option::texts("gemms", "[\"fprop\", \"dgrad\", \"wgrad\"]")
          .one_of(kGemms)
          .doc_text("products whose operands are quantized; the others run in f32"),
      tenon::option::integer("keep_last", "0")
          .at_least(0)
          .in_unit("layers")
          .doc_text("layers with products, counted from the last, that stay in f32 as a whole"),
  };
  static constexpr tenon::ComponentInfo kInfo{.id = "int8_block",
                                              .summary = "products of int8 operands with a scale per block",
                                              .options = kOptions,
                                              .capabilities = TENON_CAP_HOST};

  explicit Int8Block(const tenon::Options& options);

  tenon::DType activations() const override { return tenon::DType::kF32; }
  tenon::DType parameters() const override { return tenon::DType::kF32; }
  std::unique_ptr<tenon::LinearSite> bind(const tenon::SiteInfo& site, tenon::SiteHost& host) override;
  double loss_scale() const override { return 1.0; }
  /// Refuses an update that would spread NaN or infinity.
  bool after_backward(const tenon::BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(tenon::StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t block_, keep_last_;
  Products products_;
};

}  // namespace int8_block
