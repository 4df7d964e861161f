// What a site in the activations' own type says about an operand, when somebody asked.
#pragma once

#include <tenon/device.hpp>
#include <tenon/numerics.hpp>
#include <tenon/site.hpp>

#include <string_view>

namespace tenon::graph {

/// Largest magnitude and squares of `input`, and what became of it in `rounded` (the same elements; the same
/// memory when nothing was rounded). Host memory; sums are in f64 in the order of elements.
QuantizeStats rounding_stats(const TensorView& input, const TensorView& rounded);

struct OperandNames {
  std::string_view layer;
  int site;
  std::string_view gemm, operand;
};
/// Tells `call.numerics`; what lies on the device comes to the host for it.
void report_plain_operand(Device& device, const SiteCall& call, const OperandNames& names,
                          const TensorView& input, const TensorView& rounded);

}  // namespace tenon::graph
