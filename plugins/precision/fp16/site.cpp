// The three products of site.hpp.
#include "site.hpp"

#include <algorithm>

namespace tenon::fp16 {
namespace {

std::size_t floats(std::int64_t elements) {
  return line_up(static_cast<std::size_t>(elements) * sizeof(float));
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

}  // namespace tenon::fp16
