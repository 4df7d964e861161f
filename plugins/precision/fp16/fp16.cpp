// Precision `fp16`: mixed precision training with loss scaling (arXiv 1710.03740). Master weights, the
// results of layers other than products, and the sums inside products are f32; operands and results of linear
// sites are rounded to binary16. The loss scale is static, or dynamic by one of two published rules. An
// update with an overflow is refused; the core agrees on this over the ranks that share the update.
// This file has the site, the options and the decision about an update; scaler.hpp has the rules of the
// scale.
#include "scaler.hpp"

#include <tenon/device.hpp>
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/site_products.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

namespace tenon::fp16 {

/// One linear site under `fp16`: operands x, w, dy and results y, dx, dw rounded to binary16 and stored in
/// f32; products in f32. The executor keeps x, which is rounded again for wgrad; the weight is copied once
/// per version.
class HalfSite final : public LinearSite {
 public:
  /// gradients: dy, dx and dw are rounded too.
  HalfSite(const SiteInfo& info, SiteHost& host, bool gradients);

  SiteMemory memory() const override;
  bool reads_input() const override { return true; }
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override;
  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override;
  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override;

 private:
  /// Sections of a call's scratch, after the scratch of the product.
  enum class Part : std::uint8_t { kFirst, kSecond, kResult };

  TensorView part(const SiteCall& call, Part which, TensorView like) const;
  TensorView rounded(const SiteCall& call, TensorView x, TensorView memory, const char* gemm,
                     const char* operand);
  TensorView weight(const SiteCall& call, TensorView w, const char* gemm);
  /// Rounds a product's result; adds it in f32 if accumulating.
  void store(TensorView result, TensorView to);
  void report(const SiteCall& call, TensorView x, TensorView values, const char* gemm, const char* operand);

  std::string layer_;
  int site_;
  std::int64_t n_, k_;
  bool gradients_;
  Device& device_;
  QuantOps& quant_;
  Elementwise& elementwise_;
  OperandCounter& operands_;
  SiteProducts products_;
  std::size_t first_, second_, result_;  ///< bytes of the sections
  std::uint64_t version_ = std::numeric_limits<std::uint64_t>::max();
  const void* source_ = nullptr;
  HostStage input_here_, values_here_;  ///< for reports, which use host memory
};

namespace {

std::size_t floats(std::int64_t elements) {
  return line_up(elements * sizeof(float));
}

}  // namespace

HalfSite::HalfSite(const SiteInfo& info, SiteHost& host, bool gradients)
    : layer_(info.layer),
      site_(info.site),
      n_(info.n),
      k_(info.k),
      gradients_(gradients),
      device_(host.device()),
      quant_(host.device().family<QuantOps>()),
      elementwise_(host.device().family<Elementwise>()),
      operands_(host.operands()),
      products_(info, host.device().family<Blas>(), DType::kF32) {
  const std::int64_t rows = products_.rows();
  // fprop: x; dgrad: dy, dx; wgrad: x, dy, dw. Without rounded gradients only x.
  first_ = floats(rows * k_);
  second_ = gradients ? floats(rows * n_) : 0;
  result_ = gradients ? floats(std::max(rows * k_, n_ * k_)) : 0;
}

SiteMemory HalfSite::memory() const {
  SiteMemory memory;
  memory.persistent = floats(n_ * k_);
  memory.scratch = products_.scratch_bytes() + first_ + second_ + result_;
  return memory;
}

void HalfSite::fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) {
  x = rounded(call, x, part(call, Part::kFirst, x), "fprop", "x");
  products_.run(SiteProduct::kFprop, x, weight(call, w, "fprop"), y, bias, false, call.scratch);
  quant_.round_to_f16(y, y);
  operands_.count("fp16", 2);
}

void HalfSite::dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) {
  w = weight(call, w, "dgrad");
  operands_.count("fp16", gradients_ ? 2 : 1);
  if (!gradients_) return products_.run(SiteProduct::kDgrad, dy, w, dx, {}, accumulate, call.scratch);
  dy = rounded(call, dy, part(call, Part::kSecond, dy), "dgrad", "dy");
  const TensorView result = accumulate ? part(call, Part::kResult, dx) : dx;
  products_.run(SiteProduct::kDgrad, dy, w, result, {}, false, call.scratch);
  store(result, dx);
}

void HalfSite::wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) {
  x = rounded(call, x, part(call, Part::kFirst, x), "wgrad", "x");
  operands_.count("fp16", gradients_ ? 2 : 1);
  if (!gradients_) return products_.run(SiteProduct::kWgrad, dy, x, dw, {}, accumulate, call.scratch);
  dy = rounded(call, dy, part(call, Part::kSecond, dy), "wgrad", "dy");
  const TensorView result = accumulate ? part(call, Part::kResult, dw) : dw;
  products_.run(SiteProduct::kWgrad, dy, x, result, {}, false, call.scratch);
  store(result, dw);
}

TensorView HalfSite::part(const SiteCall& call, Part which, TensorView like) const {
  std::size_t offset = products_.scratch_bytes();
  if (which != Part::kFirst) offset += first_;
  if (which == Part::kResult) offset += second_;
  like.data = call.scratch.as<std::byte>() + offset;
  return like;
}

TensorView HalfSite::rounded(const SiteCall& call, TensorView x, TensorView memory, const char* gemm,
                             const char* operand) {
  quant_.round_to_f16(x, memory);
  if (call.numerics != nullptr) report(call, x, memory, gemm, operand);
  return memory;
}

TensorView HalfSite::weight(const SiteCall& call, TensorView w, const char* gemm) {
  TensorView copy = w;
  copy.data = call.persistent.data;
  if (version_ != call.weight_version || source_ != w.data) {
    quant_.round_to_f16(w, copy);
    version_ = call.weight_version;
    source_ = w.data;
  }
  if (call.numerics != nullptr) report(call, w, copy, gemm, "w");
  return copy;
}

void HalfSite::store(TensorView result, TensorView to) {
  quant_.round_to_f16(result, result);
  if (result.data != to.data) elementwise_.add(to, result, to);
}

void HalfSite::report(const SiteCall& call, TensorView x, TensorView values, const char* gemm,
                      const char* operand) {
  OperandNumerics seen = operand_place(call, layer_, site_, gemm, operand);
  seen.format = "fp16";
  seen.reason = "recipe";
  seen.input = input_here_.read(device_, x);
  seen.stats = measure_rounding(seen.input, values_here_.read(device_, values));
  call.numerics->add(seen);
}

class Fp16 final : public Precision, public LossScaler, private IdentitiesOf<Fp16> {
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
          .doc_text("the scale of loss_scale = 'static'; the paper used 8 to 32768"),
      option::text("scaler", "'pytorch'")
          .one_of(kScalers)
          .doc_text("rule of loss_scale = 'dynamic': that of torch.amp.GradScaler, or Megatron-LM's with "
                    "hysteresis"),
      option::real("init", nullptr)
          .between(1e-6, 1e15)
          .doc_text("first scale; by default 65536 (pytorch) or 2^32 (megatron)"),
      option::real("growth", "2")
          .between(1.0000001, 65536)
          .doc_text("factor by which the scale grows after `interval` good slots"),
      option::real("backoff", "0.5")
          .between(1e-6, 0.9999999)
          .doc_text("factor by which the scale shrinks after an overflow"),
      option::integer("interval", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text(
              "good slots in a row before the scale grows; by default 2000 (pytorch) or 1000 (megatron)"),
      option::integer("hysteresis", "2")
          .at_least(1)
          .in_unit("slots")
          .doc_text("megatron: overflows before the scale shrinks; the count restarts when it grows"),
      option::real("min_scale", "1").between(1e-6, 1e15).doc_text("floor of a dynamic scale"),
      option::integer("patience", "20")
          .at_least(0)
          .in_unit("slots")
          .doc_text("consecutive overflows at the floor, or under a static scale, after which the run ends; "
                    "0 = never"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "fp16",
      .summary = "products of binary16 operands, loss scaling, master weights in f32",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "a loss times 1 is the loss",
       .options = "loss_scale = 'static'\nscale = 1.0",
       .other = "type = 'fp16'\nloss_scale = 'none'"},
      {.why = "a scale that begins at its floor and has no time to grow stays",
       .options = "init = 1.0\ninterval = 1000000000",
       .other = "type = 'fp16'\nloss_scale = 'static'\nscale = 1.0"},
      {.why = "a power of two scales gradients in f32 without rounding",
       .options = "gradients = 'fp32'\nloss_scale = 'static'\nscale = 1024.0",
       .other = "type = 'fp16'\ngradients = 'fp32'\nloss_scale = 'none'",
       .given = "sync = {type = 'ddp', communication = 'gradient'}"},
  };

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

namespace {

ScalerSettings settings_of(const Options& options) {
  ScalerSettings settings;
  settings.patience = options.integer("patience");
  settings.min_scale = options.real("min_scale");
  switch (options.choice("loss_scale", Fp16::kLossScales)) {
    case Fp16::LossScale::kStatic:
      settings.kind = ScalerKind::kStatic;
      settings.init = options.real("scale");
      return settings;
    case Fp16::LossScale::kNone:
      settings.kind = ScalerKind::kNone;
      settings.init = 1.0;
      return settings;
    case Fp16::LossScale::kDynamic:
      settings.kind = options.choice("scaler", Fp16::kScalers);
  }
  const bool megatron = settings.kind == ScalerKind::kMegatron;
  settings.init = options.has("init") ? options.real("init") : megatron ? 0x1p32 : 65536.0;
  settings.interval = options.has("interval") ? options.integer("interval") : megatron ? 1000 : 2000;
  settings.growth = options.real("growth");
  settings.backoff = options.real("backoff");
  settings.hysteresis = megatron ? options.integer("hysteresis") : 1;
  if (settings.init < settings.min_scale) {
    fail_config(
        fmt::format("precision.fp16: init = {} lies below min_scale = {}; the scale begins at init and "
                    "never falls below min_scale",
                    settings.init, settings.min_scale));
  }
  return settings;
}

}  // namespace

Fp16::Fp16(const Options& options, Host& host)
    : host_(host),
      gradients_(options.text("gradients") == "fp16"),
      scales_(options.choice("loss_scale", kLossScales) != LossScale::kNone),
      scaler_(settings_of(options)) {}

std::unique_ptr<LinearSite> Fp16::bind(const SiteInfo& site, SiteHost& host) {
  return std::make_unique<HalfSite>(site, host, gradients_);
}

bool Fp16::after_backward(const BackwardStats& stats) {
  const double before = scaler_.scale();
  scaler_.update(stats.found_non_finite);
  if (scaler_.scale() != before) {
    host_.log(LogLevel::kInfo, fmt::format("loss scale {} -> {}{}", before, scaler_.scale(),
                                           stats.found_non_finite ? ": gradients overflowed" : ""));
  }
  return !stats.found_non_finite;
}

void* Fp16::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  return interface_id == LossScaler::kId ? static_cast<LossScaler*>(this) : nullptr;
}

}  // namespace tenon::fp16

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_fp16",
                               .version = "0.1.0",
                               .summary = "binary16 operands with loss scaling"},
             tenon::fp16::Fp16)
