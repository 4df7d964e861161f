// A linear site whose operands are rounded to number formats by a plan: activations and gradients in each
// call, weights once per version. wgrad's x is kept from fprop as codes and scales, unless plain x may be
// needed later or the layer keeps its input in any case.
#pragma once

#include "operand.hpp"
#include "product.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/site.hpp>

#include <limits>
#include <optional>

namespace tenon::quantized {

/// Interface from a running site to its policy.
class SiteWatch {
 public:
  virtual ~SiteWatch() = default;
  /// Returns whether the site must run in bf16 from now on.
  virtual bool kept(int handle) const = 0;
  /// Returns whether sites measure their weights in this slot.
  virtual bool measures(std::int64_t slot) const = 0;
  /// Receives noise / signal of the rounded weight.
  virtual void measured(int handle, double error) = 0;
};

class QuantizedSite final : public LinearSite {
 public:
  /// `watch` may be null and must outlive the site.
  QuantizedSite(const SiteInfo& info, SiteHost& host, const SitePlan& plan, SiteWatch* watch, int handle);

  /// Returns how many of the three products multiply codes.
  int native_gemms() const { return codes_.count(); }

  SiteMemory memory() const override;
  bool reads_input() const override { return !keeps_codes_; }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override;
  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override;
  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override;

 private:
  /// Source of a rounded weight in persistent memory: everything that its values depend on.
  struct WeightCopy {
    float scale = 1;
    const void* source = nullptr;
    std::uint64_t version = 0;
    /// Delayed scales change with the slot, and an evaluation before it uses other scales.
    std::int64_t slot = -1;
    bool training = false;
    bool plain = false;
  };
  struct Scratch {
    TensorView products, kernel, a, a_scales, a_codes, b, b_scales, b_codes, kept;
  };
  struct Kept {
    TensorView codes, scales;
  };
  /// One copy of a weight: its values, and codes if a product reads those.
  struct Weight {
    TensorView values, codes, scales;
  };
  /// `backward` is empty if dgrad uses the other one.
  struct Weights {
    Weight forward, backward;
  };

  OperandUse& use(Use which) { return uses_[index_of(which)]; }
  const OperandUse& use(Use which) const { return uses_[index_of(which)]; }
  bool plain(Use which, const SiteCall& call) const;
  /// Returns whether the product reads this operand as codes, unless it is plain in a call.
  bool takes_codes(Use which) const;
  void prepare_uses();
  void prepare_codes(bool head);
  template <typename Call>
  void for_each_form(bool head, Call call) const;
  void prepare_products(bool head);
  std::int64_t columns(Use which) const;
  bool kept_in_scratch(Use which, std::int64_t rows, std::int64_t padded) const;
  std::int64_t padded(std::int64_t rows) const;
  Scratch cut(TensorView memory, Use a, Use b, std::int64_t rows, std::size_t* used) const;
  Kept cut_kept(TensorView memory, std::size_t* used) const;
  Weights cut_weights(TensorView memory, std::size_t* used) const;
  AmaxHistory* history(Use which);

  Side weight(const SiteCall& call, Use which, TensorView w, const Scratch& scratch);
  Side rounded(const SiteCall& call, Use which, TensorView x, const Scratch& scratch, const Kept* kept);
  Side plain_side(TensorView x, TensorView values);
  void keep_input(const SiteCall& call, TensorView x, const Scratch& scratch);
  void multiply(const SiteCall& call, Product product, Use a_use, const Side& a, Use b_use, const Side& b,
                TensorView c, TensorView bias, bool accumulate, TensorView scratch);

  SiteName name_;
  std::int64_t n_, k_, chunk_, rest_;
  DType parameter_;
  SitePlan plan_;
  SiteWatch* watch_;
  int handle_;
  Device& device_;
  QuantOps& quant_;
  Elementwise& elementwise_;
  OperandCounter& counter_;
  std::vector<OperandUse> uses_;
  Products products_;
  NativeGemms codes_;
  std::optional<AmaxHistory> history_x_, history_w_, history_dy_;
  WeightCopy forward_, backward_;
  bool shared_weight_ = false;  ///< fprop and dgrad multiply by the same values
  bool shared_input_ = false;   ///< wgrad reuses fprop's codes of x
  bool keeps_codes_ = false;
  float kept_scale_ = 1;  ///< of the codes of x
};

}  // namespace tenon::quantized
