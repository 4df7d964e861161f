// The comparison of numerics records, for policies outside the core (site_products.hpp).
#include "graph/operand_report.hpp"

#include <tenon/error.hpp>
#include <tenon/site_products.hpp>

TENON_ABI_BEGIN

QuantizeStats measure_rounding(TensorView input, TensorView rounded) {
  if (input.elements() != rounded.elements()) {
    fail_plugin("measure_rounding was given " + std::to_string(input.elements()) + " elements and " +
                std::to_string(rounded.elements()) + " rounded ones");
  }
  return graph::rounding_stats(input, rounded);
}

TENON_ABI_END
