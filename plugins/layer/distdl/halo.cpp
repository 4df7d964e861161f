// Makes an exchange from index maps and the layout of x.
#include "halo.hpp"

#include <fmt/format.h>

namespace tenon::distdl {

void expect_planes(const InferContext& context, const Layout& x) {
  if (x.shape.rank() < 3 || x.shape.rank() > 5)
    refuse(context, "expected x [batch, channels, 1 to 3 extents], found shape " + x.shape.text());
}

void expect_whole_channels(const InferContext& context, const Layout& x) {
  for (const DimSharding& sharding : x.sharding) {
    if (sharding.dim != 1) continue;
    refuse(context,
           "channels are sharded (" + layout_text(x) +
               "), which this layer cannot do; put a repartition before it that shards other dimensions");
  }
}

std::int64_t number_for(const InferContext& context, const Options& options, std::string_view name, int dim,
                        int spatial) {
  const auto values = options.integers(name);
  if (values.size() != 1 && values.size() != static_cast<std::size_t>(spatial)) {
    refuse(
        context,
        fmt::format("option '{}' takes one number or {}, one for each dimension after the channels; found {}",
                    name, spatial, values.size()));
  }
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(dim)];
}

Sliding sliding_for(const InferContext& context, const Options& options, int dim, int spatial) {
  Sliding window;
  window.kernel = number_for(context, options, "kernel", dim, spatial);
  window.stride = number_for(context, options, options.has("stride") ? "stride" : "kernel", dim, spatial);
  window.dilation = number_for(context, options, "dilation", dim, spatial);
  window.pad_low = window.pad_high = number_for(context, options, "padding", dim, spatial);
  return window;
}

void Halo::infer(InferContext& context, const ValueSpec& x, std::span<const Reach> reaches) {
  Mesh& mesh = context.mesh();
  MoveSpec move{.from = x.layout, .to = {x.layout.shape, x.layout.sharding}, .dtype = x.dtype};
  move.windows = {nullptr, nullptr};
  move.device = &context.device();
  for (std::size_t d = 0; d < reaches.size(); ++d) {
    move.windows.push_back(reaches[d].map);
    move.to.shape[static_cast<int>(d) + 2] = reaches[d].outputs;
  }
  for (DimSharding& sharding : move.to.sharding) {
    if (sharding.dim >= 2)
      sharding.offsets =
          balanced_offsets(move.to.shape[sharding.dim], static_cast<int>(sharding.offsets.size()) - 1);
  }
  outputs_ = move.to;
  map_ = make_map(mesh, "halo_exchange", move, fmt::format("layer '{}'", context.name()));
  own_ = part_of(x.layout, mesh.place()), made_ = part_of(outputs_, mesh.place());
  for (int dim = 2; dim < x.layout.shape.rank(); ++dim)
    reads_.push_back(dim_window(move.windows[dim].get(), own(dim), made(dim), x.layout.shape[dim]));
}

Layout Halo::output_layout(std::int64_t channels) const {
  Layout layout = outputs_;
  layout.shape[1] = channels;
  return layout;
}

ValueSpec Halo::output(InferContext& context, std::int64_t channels) const {
  return placed(context, output_layout(channels));
}

}  // namespace tenon::distdl
