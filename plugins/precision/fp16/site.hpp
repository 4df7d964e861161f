// One linear site under `fp16`: operands x, w, dy and results y, dx, dw rounded to binary16 and stored in
// f32; products in f32. The executor keeps x, which is rounded again for wgrad; the weight is copied once per
// version.
#pragma once

#include <tenon/device.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/site_products.hpp>

#include <limits>
#include <string>

namespace tenon::fp16 {

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

}  // namespace tenon::fp16
