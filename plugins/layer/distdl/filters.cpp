// Filters: the sharding of features and channels over the ranks, parameters, chunks.
#include "filters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tenon::distdl {
namespace {

// Sharding of features and channels over the ranks.

/// Axes along which there are several ranks.
std::vector<int> with_peers(std::vector<int> axes, const Mesh& mesh) {
  std::erase_if(axes, [&](int axis) { return mesh.extent(axis) == 1; });
  return axes;
}

/// The axes of option `axes`, which shard the features evenly.
DimSharding wanted_sharding(InferContext& context, const Options& options, const Layout& x,
                            std::int64_t features) {
  const Mesh& mesh = context.mesh();
  const std::vector<int> taken = sharded_axes(x);
  DimSharding sharding;
  sharding.dim = 1;
  int parts = 1;
  for (const std::int64_t wanted : options.integers("axes")) {
    if (wanted >= mesh.axes()) {
      refuse(context,
             fmt::format("axis {} of the mesh is to shard the features, but parallel.grid has {} axes",
                         wanted, mesh.axes()));
    }
    const auto axis = static_cast<int>(wanted);
    if (std::find(taken.begin(), taken.end(), axis) != taken.end()) {
      refuse(context,
             fmt::format("axis {} of the mesh is to shard the features, but it shards x ({}); choose axes "
                         "over which x is replicated, or put a repartition before the layer",
                         axis, layout_text(x)));
    }
    sharding.axes.push_back(axis);
    parts *= mesh.extent(axis);
  }
  sharding.offsets = balanced_offsets(features, parts);
  return sharding;
}

/// The sharding of the features that keeps each group's filters with its channels.
DimSharding follow_groups(InferContext& context, const DimSharding& of_channels, std::int64_t groups,
                          std::int64_t channels, std::int64_t features) {
  const std::int64_t each = channels / groups;
  DimSharding sharding = of_channels;
  for (std::int64_t& offset : sharding.offsets) {
    if (offset % each != 0) {
      refuse(context,
             fmt::format("channels of x are sharded at {}, but its {} groups have {} channels each; shard "
                         "between groups, or put a repartition before the layer that shards other dimensions",
                         fmt::join(of_channels.offsets, ", "), groups, each));
    }
    offset = offset / each * (features / groups);
  }
  return sharding;
}

/// The same sharding of another dimension.
DimSharding along(int dim, DimSharding sharding) {
  sharding.dim = dim;
  return sharding;
}

void find_groups(ChannelPlan& plan, const Box& x, const Box& y, std::int64_t groups, std::int64_t each_in,
                 std::int64_t each_out) {
  plan.channels = groups == 1 ? x.extents[1] : each_in;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = std::max(y.offset[1], g * each_out),
                       last = std::min(y.end(1), (g + 1) * each_out);
    if (first >= last) continue;
    plan.groups.push_back({groups == 1 ? 0 : g * each_in - x.offset[1], first - y.offset[1], last - first});
  }
  if (plan.groups.empty()) plan.groups.emplace_back();
}

}  // namespace

ChannelPlan plan_channels(InferContext& context, const Options& options, const Layout& x, Layout y) {
  const std::int64_t groups = options.integer("groups"), channels = x.shape[1], features = y.shape[1];
  if (channels % groups != 0 || features % groups != 0) {
    refuse(context, fmt::format("groups = {} must divide the {} channels of x and the {} features", groups,
                                channels, features));
  }
  ChannelPlan plan;
  const Mesh& mesh = context.mesh();
  std::erase_if(y.sharding, [](const DimSharding& sharding) { return sharding.dim == 1; });
  const DimSharding wanted = wanted_sharding(context, options, x, features);
  const DimSharding* sharding = sharding_of(x, 1);
  DimSharding of_features = wanted;
  if (sharding != nullptr && groups > 1) {
    if (!wanted.axes.empty()) {
      refuse(context, fmt::format("the {} groups are sharded with the channels of x ({}), and their features "
                                  "with them; leave out the option axes",
                                  groups, layout_text(x)));
    }
    of_features = follow_groups(context, *sharding, groups, channels, features);
  } else if (sharding != nullptr) {
    plan.weight.push_back(*sharding);
    plan.summed = with_peers(sharding->axes, mesh);
  }
  if (!of_features.axes.empty()) {
    y.sharding.push_back(of_features);
    plan.weight.push_back(along(0, of_features));
    plan.bias.push_back(along(0, of_features));
  }
  plan.dx_summed = with_peers(wanted.axes, mesh);
  check_layout(y, mesh.extents(), fmt::format("layer '{}'", context.name()));
  plan.y = std::move(y);
  find_groups(plan, part_of(x, context.mesh().place()), part_of(plan.y, context.mesh().place()), groups,
              channels / groups, features / groups);
  return plan;
}

namespace {

// Specs of weights and biases, and chunks.

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

}  // namespace

ParameterSpec filter_weight(const InferContext& context, const Options& options, const Shape& shape,
                            std::int64_t fan) {
  ParameterSpec weight;
  weight.name = options.has("weight") ? options.text("weight") : fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  weight.shape = shape;
  const bool normal = options.has("init_scale");
  weight.init = normal ? Initializer::kNormal : Initializer::kUniform;
  weight.init_scale = normal ? options.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(fan));
  return weight;
}

ParameterSpec filter_bias(const InferContext& context, std::int64_t features) {
  ParameterSpec bias;
  bias.name = fmt::format("{}.bias", context.name());
  bias.dtype = context.parameters();
  bias.shape = Shape{features};
  bias.decay = false;
  bias.init = Initializer::kZero;
  return bias;
}

std::int64_t samples_at_a_time(const Options& options, std::int64_t samples, std::int64_t elements) {
  const std::int64_t wanted = options.integer("chunk");
  return std::min(samples, wanted > 0 ? wanted : std::max<std::int64_t>(1, kChunkElements / elements));
}

}  // namespace tenon::distdl
