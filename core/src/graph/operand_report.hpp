// Checks the operands of a site in the activations' own type, and reports them to an observer that asked.
#pragma once

#include <tenon/device.hpp>
#include <tenon/numerics.hpp>
#include <tenon/site.hpp>

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

}  // namespace tenon::graph
