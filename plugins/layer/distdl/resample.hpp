// The table of an interpolation along one dimension. An output is one input, or is between two neighbours:
// both are chosen and weighted by the output's global index alone, so that the bits of an output do not
// depend on which shard a rank makes.
#pragma once

#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/index_map.hpp>

#include <cstdint>

namespace tenon::distdl {

/// Rows are the outputs `made` out of all, columns the inputs `read` out of all.
LineSumSpec interpolation_table(Interpolation kind, DType dtype, std::int64_t all_inputs,
                                std::int64_t all_outputs, ElementRange made, ElementRange read);

}  // namespace tenon::distdl
