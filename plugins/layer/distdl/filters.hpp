// Parameters of layers with filters, from their options: the weight, [rows..., what a row is multiplied
// with], and the bias, one number for each feature.
#pragma once

#include "common.hpp"

namespace tenon::distdl {

/// From the options weight and init_scale; without the latter uniform within 1 / sqrt(fan) of zero.
ParameterSpec filter_weight(const InferContext& context, const Options& options, const Shape& shape,
                            std::int64_t fan);
ParameterSpec filter_bias(const InferContext& context, std::int64_t features);

/// Number of samples in one product, out of `samples`, at least 1; each has `elements` elements in its rows.
/// From the option chunk; 0: as many as keep them below 1 Mi elements.
std::int64_t samples_at_a_time(const Options& options, std::int64_t samples, std::int64_t elements);

}  // namespace tenon::distdl
