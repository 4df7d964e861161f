// Precision `fp16`: mixed precision training with loss scaling (arXiv 1710.03740). Master weights, the
// results of layers other than products, and the sums inside products are f32; operands and results of linear
// sites are rounded to binary16. The loss scale is static, or dynamic by one of two published rules. An
// update with an overflow is refused; the core agrees on this over the ranks that share the update.
#pragma once

#include "scaler.hpp"

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>

namespace tenon::fp16 {

class Fp16 final : public Precision, public LossScaler {
 public:
  static constexpr const char* kGradients[] = {"fp16", "fp32", nullptr};
  enum class LossScale : std::uint8_t { kDynamic, kStatic, kNone };
  static constexpr auto kLossScales = option::choice<LossScale>(
      {{"dynamic", LossScale::kDynamic}, {"static", LossScale::kStatic}, {"none", LossScale::kNone}});
  static constexpr auto kScalers =
      option::choice<ScalerKind>({{"pytorch", ScalerKind::kPytorch}, {"megatron", ScalerKind::kMegatron}});
  static constexpr OptionSpec kOptions[] = {
      option::text("gradients", "'fp16'")
          .one_of(kGradients)
          .doc_text("what dy, dx and dw are rounded to; 'fp32' leaves them as they are"),
      option::text("loss_scale", "'dynamic'")
          .one_of(kLossScales)
          .doc_text(
              "'static' multiplies the loss by `scale`; 'none' by 1, and overflow is left to run.on_nan"),
      option::real("scale", "128")
          .between(1e-6, 1e15)
          .doc_text("of loss_scale = 'static'; the paper used 8 to 32768"),
      option::text("scaler", "'pytorch'")
          .one_of(kScalers)
          .doc_text("rule of loss_scale = 'dynamic': that of torch.amp.GradScaler, or Megatron-LM's with "
                    "hysteresis"),
      option::real("init", nullptr)
          .between(1e-6, 1e15)
          .doc_text("first scale; by default 65536 (pytorch) or 2^32 (megatron)"),
      option::real("growth", "2").between(1.0000001, 65536).doc_text("factor after `interval` good slots"),
      option::real("backoff", "0.5").between(1e-6, 0.9999999).doc_text("factor after an overflow"),
      option::integer("interval", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text(
              "good slots in a row before the scale grows; by default 2000 (pytorch) or 1000 (megatron)"),
      option::integer("hysteresis", "2")
          .at_least(1)
          .in_unit("slots")
          .doc_text("megatron: overflows before the scale shrinks, counted anew when it grows"),
      option::real("min_scale", "1").between(1e-6, 1e15).doc_text("floor of a dynamic scale"),
      option::integer("patience", "20")
          .at_least(0)
          .in_unit("slots")
          .doc_text("overflows in a row at the floor, or under a static scale, that end the run; 0 = never"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "fp16",
      .summary = "products of binary16 operands, loss scaling, master weights in f32",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  Fp16(const Options& options, Host& host);

  DType activations() const override { return DType::kF32; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override;
  double loss_scale() const override { return scaler_.scale(); }
  bool after_backward(const BackwardStats& stats) override;
  void state(StateVisitor& visitor) override { scaler_.state(visitor); }
  void* query(std::string_view interface_id) override;

  bool answers_overflow() const override { return scales_; }

 private:
  Host& host_;
  bool gradients_;
  bool scales_;
  Scaler scaler_;
};

}  // namespace tenon::fp16
