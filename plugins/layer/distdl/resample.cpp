// Places between inputs are fractions of integers.
#include "resample.hpp"

namespace tenon::distdl {

LineSumSpec interpolation_table(Interpolation kind, DType dtype, std::int64_t all_inputs,
                                std::int64_t all_outputs, ElementRange made, ElementRange read) {
  LineSumSpec table;
  table.dtype = dtype;
  table.columns = read.size();
  const auto map = interpolation_map(kind, all_inputs, all_outputs);
  for (std::int64_t j = made.begin; j < made.end; ++j) {
    const ElementRange reads = map->inputs({j, j + 1});
    // The place among the inputs is part / whole, exact in integers; before the first input it is negative.
    const bool aligned = kind == Interpolation::kLinearAligned;
    const std::int64_t whole = aligned ? all_outputs - 1 : 2 * all_outputs;
    const std::int64_t part = aligned ? j * (all_inputs - 1) : (2 * j + 1) * all_inputs - all_outputs;
    const std::int64_t beyond = part - reads.begin * whole, low = reads.begin - read.begin;
    if (reads.size() == 1 || beyond <= 0) {
      table.add_row({{low, 1}});
    } else {
      const double share = table.rounded(static_cast<double>(beyond) / static_cast<double>(whole));
      table.add_row({{low, 1 - share}, {low + 1, share}});
    }
  }
  return table;
}

}  // namespace tenon::distdl
