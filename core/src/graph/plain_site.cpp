// Products of one site in the activations' own dtype (f32, f64, bf16), accumulated in f32 (f64).
#include "graph/plain_site.hpp"

#include "graph/channel_site.hpp"
#include "graph/operand_report.hpp"
#include "graph/turned_site.hpp"

#include <tenon/error.hpp>
#include <tenon/site_products.hpp>

#include <fmt/format.h>

#include <limits>

namespace tenon::graph {
namespace {

class PlainSite final : public LinearSite {
 public:
  PlainSite(const SiteInfo& info, SiteHost& host)
      : layer_(info.layer),
        site_(info.site),
        n_(info.n),
        k_(info.k),
        activation_(info.activation),
        parameter_(info.parameter),
        device_(host.device()),
        elementwise_(device_.family<Elementwise>()),
        operands_(host.operands()),
        products_(info, host.device().family<Blas>(), info.activation) {}

  SiteMemory memory() const override {
    SiteMemory memory;
    if (converts()) memory.persistent = static_cast<std::size_t>(dtype_bytes(activation_, n_ * k_));
    memory.scratch = products_.scratch_bytes();
    return memory;
  }

  bool reads_input() const override { return true; }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    const TensorView rounded = weight(call, w);
    if (call.numerics != nullptr) report(call, "fprop", "x", x, x, "w", w, rounded);
    run(SiteProduct::kFprop, x, rounded, y, bias, false, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    const TensorView rounded = weight(call, w);
    if (call.numerics != nullptr) report(call, "dgrad", "dy", dy, dy, "w", w, rounded);
    run(SiteProduct::kDgrad, dy, rounded, dx, {}, accumulate, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    if (call.numerics != nullptr) report(call, "wgrad", "dy", dy, dy, "x", x, x);
    run(SiteProduct::kWgrad, dy, x, dw, {}, accumulate, call.scratch);
  }

 private:
  /// Both operands of a product.
  void report(const SiteCall& call, std::string_view gemm, std::string_view a, const TensorView& a_input,
              const TensorView& a_rounded, std::string_view b, const TensorView& b_input,
              const TensorView& b_rounded) const {
    report_plain_operand(device_, call, {layer_, site_, gemm, a}, a_input, a_rounded);
    report_plain_operand(device_, call, {layer_, site_, gemm, b}, b_input, b_rounded);
  }

  bool converts() const { return activation_ != parameter_; }

  void run(SiteProduct product, TensorView a, TensorView b, TensorView c, TensorView bias, bool accumulate,
           TensorView scratch) {
    if (a.dtype != activation_ || b.dtype != activation_) {
      fail_plugin(fmt::format(
          "layer '{}' passed {} and {} to a site whose activations are {}; convert before the call", layer_,
          dtype_name(a.dtype), dtype_name(b.dtype), dtype_name(activation_)));
    }
    if (converts()) operands_.count(dtype_name(activation_), 2);
    products_.run(product, a, b, c, bias, accumulate, scratch);
  }

  /// The weight in the activations' dtype.
  TensorView weight(const SiteCall& call, TensorView w) {
    if (!converts()) return w;
    TensorView copy = call.persistent;
    copy.dtype = activation_;
    copy.shape = w.shape;
    if (version_ != call.weight_version || source_ != w.data) {
      elementwise_.convert(w, copy);
      version_ = call.weight_version;
      source_ = w.data;
    }
    return copy;
  }

  std::string layer_;
  int site_;
  std::int64_t n_, k_;
  DType activation_, parameter_;
  Device& device_;
  Elementwise& elementwise_;
  OperandCounter& operands_;
  SiteProducts products_;
  std::uint64_t version_ = std::numeric_limits<std::uint64_t>::max();
  const void* source_ = nullptr;
};

}  // namespace

std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host, bool channels_first) {
  // A bias that is added to what lies there already is exact where nothing is narrower than it.
  if (channels_first && info.activation == info.parameter) return make_channel_site(info, host);
  auto rows = std::make_unique<PlainSite>(info, host);
  if (channels_first) return make_turned_site(info, host, std::move(rows));
  return rows;
}

}  // namespace tenon::graph
