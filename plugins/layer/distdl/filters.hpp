// Filters of convolutions over the mesh: layouts of channels and features, and parameters.
#pragma once

#include "common.hpp"

#include <vector>

namespace tenon::distdl {

// Layouts over the mesh of the channels of x, the features of y and the weight between them. Sharded
// channels make partial sums of y, which are added over their axes; axes that shard the features make partial
// sums of the gradient of x. Groups whose channels are sharded stay with their filters, and nothing is
// summed.

/// Filters of one group that this rank has, within its own shards of x and y.
struct FilterGroup {
  std::int64_t first_channel = 0, first_feature = 0, features = 0;
};

struct ChannelPlan {
  Layout y;
  std::vector<DimSharding> weight, bias;
  std::vector<int> summed;          ///< axes over which a rank's products are partial sums of y
  std::vector<int> dx_summed;       ///< axes over which its gradients are partial sums of that of x
  std::int64_t channels = 0;        ///< read by a filter on this rank
  std::vector<FilterGroup> groups;  ///< at least one, which may have no features
};

/// `x`: layout of the input; `y`: of the output with all its features, sharded as x is. Throws Error(kConfig)
/// where groups or the option `axes` do not fit the sharding.
ChannelPlan plan_channels(InferContext& context, const Options& options, const Layout& x, Layout y);

// Parameters of layers with filters, from their options: the weight, [rows..., what a row is multiplied
// with], and the bias, one number for each feature.

/// From the options weight and init_scale; without the latter uniform within 1 / sqrt(fan) of zero.
ParameterSpec filter_weight(const InferContext& context, const Options& options, const Shape& shape,
                            std::int64_t fan);
ParameterSpec filter_bias(const InferContext& context, std::int64_t features);

/// Number of samples in one product, out of `samples`, at least 1; each has `elements` elements in its rows.
/// From the option chunk; 0: as many as keep them below 1 Mi elements.
std::int64_t samples_at_a_time(const Options& options, std::int64_t samples, std::int64_t elements);

}  // namespace tenon::distdl
