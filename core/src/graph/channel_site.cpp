// y[n, rows] = w[n, k] x[k, rows] for one sample, and its adjoints.
#include "graph/channel_site.hpp"

#include "graph/operand_report.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/site_products.hpp>

namespace tenon::graph {
namespace {

class ChannelSite final : public LinearSite {
 public:
  ChannelSite(const SiteInfo& info, SiteHost& host)
      : sides_(info, host.device()),
        rows_(info.chunk),
        n_(info.n),
        dtype_(info.activation),
        blas_(host.device().family<Blas>()),
        elementwise_(host.device().family<Elementwise>()) {
    GemmSpec fprop{.m = n_, .n = rows_, .k = info.k};
    fprop.accumulate = info.bias, fprop.epilogue = info.epilogue;
    fprop_ = gemm(fprop);
    if (info.bias) bias_ = gemm({.m = n_, .n = rows_, .k = 1});
    for (const bool accumulate : {false, true}) {
      GemmSpec dgrad{.m = info.k, .n = rows_, .k = n_, .transpose_a = true};
      GemmSpec wgrad{.m = n_, .n = info.k, .k = rows_, .transpose_b = true};
      dgrad.accumulate = wgrad.accumulate = accumulate;
      dgrad_[accumulate ? 1 : 0] = gemm(dgrad), wgrad_[accumulate ? 1 : 0] = gemm(wgrad);
    }
  }

  SiteMemory memory() const override {
    SiteMemory memory;
    if (bias_ != nullptr) memory.persistent = static_cast<std::size_t>(dtype_bytes(dtype_, rows_));
    memory.scratch = line_up(scratch_);
    return memory;
  }

  bool reads_input() const override { return true; }

  /// The bias is there first, one number per line, and the product is added to it.
  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    take(call, "fprop", "x", x, "w", w);
    if (bias_ != nullptr) bias_->run(bias.reshaped({n_, 1}), ones(call), y, {}, 1.0f, call.scratch);
    fprop_->run(w, x, y, {}, 1.0f, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    take(call, "dgrad", "dy", dy, "w", w);
    dgrad_[accumulate ? 1 : 0]->run(w, dy, dx, {}, 1.0f, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    take(call, "wgrad", "dy", dy, "x", x);
    wgrad_[accumulate ? 1 : 0]->run(dy, x, dw, {}, 1.0f, call.scratch);
  }

 private:
  std::unique_ptr<Gemm> gemm(GemmSpec spec) {
    spec.a = spec.b = spec.c = dtype_;
    auto prepared = blas_.gemm(spec);
    scratch_ = std::max(scratch_, prepared->scratch_bytes());
    return prepared;
  }

  /// [1, rows]
  TensorView ones(const SiteCall& call) {
    TensorView view = call.persistent;
    view.dtype = dtype_, view.shape = Shape{1, rows_};
    if (ones_ != view.data) elementwise_.fill(view.reshaped({rows_}), 1);
    ones_ = view.data;
    return view;
  }

  void take(const SiteCall& call, std::string_view product, std::string_view a_name, const TensorView& a,
            std::string_view b_name, const TensorView& b) const {
    sides_.check(a, b);
    sides_.report(call, product, {a_name, a, a}, {b_name, b, b});
  }

  PlainOperands sides_;
  std::int64_t rows_, n_;
  DType dtype_;
  Blas& blas_;
  Elementwise& elementwise_;
  std::size_t scratch_ = 0;
  std::unique_ptr<Gemm> fprop_, bias_, dgrad_[2], wgrad_[2];
  const void* ones_ = nullptr;  ///< their memory
};

}  // namespace

std::unique_ptr<LinearSite> make_channel_site(const SiteInfo& info, SiteHost& host) {
  return std::make_unique<ChannelSite>(info, host);
}

}  // namespace tenon::graph
