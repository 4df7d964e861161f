// Products of one site in the activations' own dtype (f32, f64, bf16), accumulated in f32 (f64).
#include "graph/plain_site.hpp"

#include "graph/channel_site.hpp"
#include "graph/operand_report.hpp"
#include "graph/turned_site.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/site_products.hpp>

#include <limits>

namespace tenon::graph {
namespace {

class PlainSite final : public LinearSite {
 public:
  PlainSite(const SiteInfo& info, SiteHost& host)
      : sides_(info, host.device()),
        n_(info.n),
        k_(info.k),
        activation_(info.activation),
        parameter_(info.parameter),
        elementwise_(host.device().family<Elementwise>()),
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
    sides_.report(call, "fprop", {"x", x, x}, {"w", w, rounded});
    run(SiteProduct::kFprop, x, rounded, y, bias, false, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    const TensorView rounded = weight(call, w);
    sides_.report(call, "dgrad", {"dy", dy, dy}, {"w", w, rounded});
    run(SiteProduct::kDgrad, dy, rounded, dx, {}, accumulate, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    sides_.report(call, "wgrad", {"dy", dy, dy}, {"x", x, x});
    run(SiteProduct::kWgrad, dy, x, dw, {}, accumulate, call.scratch);
  }

 private:
  bool converts() const { return activation_ != parameter_; }

  void run(SiteProduct product, TensorView a, TensorView b, TensorView c, TensorView bias, bool accumulate,
           TensorView scratch) {
    sides_.check(a, b);
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

  PlainOperands sides_;
  std::int64_t n_, k_;
  DType activation_, parameter_;
  Elementwise& elementwise_;
  OperandCounter& operands_;
  SiteProducts products_;
  std::uint64_t version_ = std::numeric_limits<std::uint64_t>::max();
  const void* source_ = nullptr;
};

}  // namespace

std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host, bool channels_first) {
  // A bias that is stored first, with the product added to it, is exact where no dtype is narrower than it.
  if (channels_first && info.activation == info.parameter) return make_channel_site(info, host);
  auto rows = std::make_unique<PlainSite>(info, host);
  if (channels_first) return make_turned_site(info, host, std::move(rows));
  return rows;
}

}  // namespace tenon::graph
