// Products of one site in the activations' own dtype (f32, f64, bf16), accumulated in f32 (f64).
// Prepared products are kept per (product, rows, result dtype, accumulate): a chunked layer has at most two
// row counts.
#include "graph/plain_site.hpp"

#include "graph/operand_report.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace tenon::graph {
namespace {

enum class Product { kFprop, kDgrad, kWgrad };

class PlainSite final : public LinearSite {
 public:
  PlainSite(const SiteInfo& info, SiteHost& host)
      : layer_(info.layer),
        site_(info.site),
        n_(info.n),
        k_(info.k),
        bias_(info.bias),
        epilogue_(info.epilogue),
        activation_(info.activation),
        parameter_(info.parameter),
        device_(host.device()),
        blas_(device_.family<Blas>()),
        elementwise_(device_.family<Elementwise>()),
        operands_(host.operands()) {
    // Every product that the declared chunks need is made now; other result types come with the first call.
    for (const std::int64_t rows : {info.chunk, info.m % std::max<std::int64_t>(info.chunk, 1)}) {
      if (rows == 0) continue;
      for (const bool accumulate : {false, true}) {
        find(Product::kDgrad, rows, activation_, accumulate);
        find(Product::kWgrad, rows, parameter_, accumulate);
      }
      find(Product::kFprop, rows, activation_, false);
    }
  }

  SiteMemory memory() const override {
    SiteMemory memory;
    if (converts()) memory.persistent = static_cast<std::size_t>(dtype_bytes(activation_, n_ * k_));
    memory.scratch = scratch_;
    return memory;
  }

  bool reads_input() const override { return true; }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    const TensorView rounded = weight(call, w);
    if (call.numerics != nullptr) report(call, "fprop", "x", x, x, "w", w, rounded);
    run(find(Product::kFprop, x.shape[0], y.dtype, false), x, rounded, y, bias, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    const TensorView rounded = weight(call, w);
    if (call.numerics != nullptr) report(call, "dgrad", "dy", dy, dy, "w", w, rounded);
    run(find(Product::kDgrad, dy.shape[0], dx.dtype, accumulate), dy, rounded, dx, {}, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    if (call.numerics != nullptr) report(call, "wgrad", "dy", dy, dy, "x", x, x);
    run(find(Product::kWgrad, dy.shape[0], dw.dtype, accumulate), dy, x, dw, {}, call.scratch);
  }

 private:
  struct Entry {
    Product product;
    std::int64_t rows;
    DType result;
    bool accumulate;
    std::unique_ptr<Gemm> gemm;
  };

  /// Both operands of a product.
  void report(const SiteCall& call, std::string_view gemm, std::string_view a, const TensorView& a_input,
              const TensorView& a_rounded, std::string_view b, const TensorView& b_input,
              const TensorView& b_rounded) const {
    report_plain_operand(call, {layer_, site_, gemm, a}, a_input, a_rounded);
    report_plain_operand(call, {layer_, site_, gemm, b}, b_input, b_rounded);
  }

  bool converts() const { return activation_ != parameter_; }

  void run(Gemm& gemm, TensorView a, TensorView b, TensorView c, TensorView bias, TensorView scratch) {
    if (a.dtype != activation_ || b.dtype != activation_) {
      fail_plugin(fmt::format(
          "layer '{}' passed {} and {} to a site whose activations are {}; convert before the call", layer_,
          dtype_name(a.dtype), dtype_name(b.dtype), dtype_name(activation_)));
    }
    if (converts()) operands_.count(dtype_name(activation_), 2);
    gemm.run(a, b, c, bias, 1.0f, scratch);
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

  Gemm& find(Product product, std::int64_t rows, DType result, bool accumulate) {
    for (Entry& entry : gemms_) {
      if (entry.product == product && entry.rows == rows && entry.result == result &&
          entry.accumulate == accumulate) {
        return *entry.gemm;
      }
    }
    GemmSpec spec;
    spec.a = spec.b = activation_;
    spec.c = result;
    spec.accumulate = accumulate;
    switch (product) {
      case Product::kFprop:  // y[m,n] = x[m,k] w[n,k]^T
        spec.m = rows, spec.n = n_, spec.k = k_, spec.transpose_b = true;
        spec.bias = bias_, spec.epilogue = epilogue_;
        break;
      case Product::kDgrad:  // dx[m,k] = dy[m,n] w[n,k]
        spec.m = rows, spec.n = k_, spec.k = n_;
        break;
      case Product::kWgrad:  // dw[n,k] = dy[m,n]^T x[m,k]
        spec.m = n_, spec.n = k_, spec.k = rows, spec.transpose_a = true;
        break;
    }
    gemms_.push_back({product, rows, result, accumulate, blas_.gemm(spec)});
    scratch_ = std::max(scratch_, gemms_.back().gemm->scratch_bytes());
    return *gemms_.back().gemm;
  }

  std::string layer_;
  int site_;
  std::int64_t n_, k_;
  bool bias_;
  Epilogue epilogue_;
  DType activation_, parameter_;
  Device& device_;
  Blas& blas_;
  Elementwise& elementwise_;
  OperandCounter& operands_;
  std::vector<Entry> gemms_;
  std::size_t scratch_ = 0;
  std::uint64_t version_ = std::numeric_limits<std::uint64_t>::max();
  const void* source_ = nullptr;
};

}  // namespace

std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host) {
  return std::make_unique<PlainSite>(info, host);
}

}  // namespace tenon::graph
