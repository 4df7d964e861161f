// Linear sites of the core: those of a policy that keeps, with products in the activations' dtype and the
// weight converted once per version, or from images where the device computes the convolution; and the
// turning round of operands, around the site of any policy. Their operands in the activations' own type are
// checked, and reported to an observer that asked.
#pragma once

#include <tenon/device.hpp>
#include <tenon/numerics.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/site.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace tenon::graph {

/// Returns the largest magnitude and squares of `input`, and its errors in `rounded` (the same elements; the
/// same memory when nothing was rounded). Host memory; sums are in f64 in the order of elements.
QuantizeStats rounding_stats(const TensorView& input, const TensorView& rounded);

struct OperandNames {
  std::string_view layer;
  int site;
  std::string_view gemm, operand;
};
/// Reports to `call.numerics`; operands on the device are copied to the host for it.
void report_plain_operand(Device& device, const SiteCall& call, const OperandNames& names,
                          const TensorView& input, const TensorView& rounded);

/// Checks and reports the two operands of each product of one site.
class PlainOperands {
 public:
  struct Operand {
    std::string_view name;  ///< "x", "w", "dy"
    TensorView input, rounded;
  };

  PlainOperands(const SiteInfo& info, Device& device)
      : layer_(info.layer), site_(info.site), activation_(info.activation), device_(device) {}

  /// Throws Error(kPlugin) if one is not in the activations' type.
  void check(const TensorView& a, const TensorView& b) const;
  /// Reports to `call.numerics` unless it is null; `product` is "fprop", "dgrad" or "wgrad".
  void report(const SiteCall& call, std::string_view product, const Operand& a, const Operand& b) const;

 private:
  std::string layer_;
  int site_;
  DType activation_;
  Device& device_;
};

/// `channels_first`: operands are as SiteSpec::channels_first says.
std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host, bool channels_first);

/// A site with channels first around one that reads rows: operands are turned round on the way. `rows`: the
/// site of the policy, for operands [rows, k] and [rows, n].
std::unique_ptr<LinearSite> make_transposed_site(const SiteInfo& info, SiteHost& host,
                                                 std::unique_ptr<LinearSite> rows);

/// Null where the device computes no such convolution, or the activations are narrower than the weight.
std::unique_ptr<LinearSite> make_image_site(const SiteInfo& info, SiteHost& host,
                                            const ConvolutionSpec& images);

}  // namespace tenon::graph
