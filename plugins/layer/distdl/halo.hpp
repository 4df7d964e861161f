// Elements of x [batch, channels, 1 to 3 extents] that a rank reads to make its shard of the outputs. An
// index map per dimension after the channels names the elements that outputs read. All dimensions may be
// sharded over the mesh. After the channels, outputs are sharded evenly over the axes that shard the
// inputs; batch and channels keep their sharding.
#pragma once

#include "common.hpp"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::distdl {

/// Refuses x of other dimensions.
void expect_planes(const InferContext& context, const Layout& x);
/// Refuses x whose channels are sharded.
void expect_whole_channels(const InferContext& context, const Layout& x);
/// The number for `dim` of an option that holds one for all dimensions after the channels, or one for each.
std::int64_t number_for(const InferContext& context, const Options& options, std::string_view name, int dim,
                        int spatial);
/// The options kernel, stride (absent: kernel), dilation and padding of a dimension.
Sliding sliding_for(const InferContext& context, const Options& options, int dim, int spatial);

class Halo {
 public:
  /// Number of outputs along a dimension, and the inputs that they read; a null map: those at the same place.
  struct Reach {
    std::shared_ptr<const IndexMap> map;
    std::int64_t outputs = 0;
  };
  /// Collective. One reach for each dimension after the channels.
  void infer(InferContext& context, const ValueSpec& x, std::span<const Reach> reaches);

  Shape window_shape() const { return map_->local_range(); }  ///< [batch, channels, extent...] of this rank
  /// This rank's ranges along dimension `dim`: its own of x, and the one that it makes of [batch, channels of
  /// x, extent...].
  ElementRange own(int dim) const { return {own_.offset[dim], own_.end(dim)}; }
  ElementRange made(int dim) const { return {made_.offset[dim], made_.end(dim)}; }
  /// The window that it reads along the `d`th dimension after the channels.
  const DimWindow& read(int d) const { return reads_[d]; }
  std::int64_t samples() const { return made_.extents[0]; }
  bool empty() const { return made_.elements() == 0; }  ///< this rank makes nothing
  Layout output_layout(std::int64_t channels) const;
  /// This rank's shard of such an output.
  ValueSpec output(InferContext& context, std::int64_t channels) const;

  /// Fetches the elements that the rank reads; zeros beyond the tensor.
  void fetch(TensorView x, TensorView window) { map_->forward(x, window); }
  /// The same in two steps; the caller leaves x unchanged until the second.
  Flight start_fetch(TensorView x, TensorView window) { return map_->start_forward(x, window, false); }
  void finish_fetch(Flight flight) { map_->finish(flight); }
  /// Adds the gradient of every window to the elements of x that it read.
  void give_back(TensorView window, const GradientSink& dx) { map_->adjoint(window, dx.view, dx.accumulate); }

 private:
  Layout outputs_;  ///< with the channels of x
  Box own_, made_;
  std::vector<DimWindow> reads_;
  std::unique_ptr<LinearMap> map_;
};

}  // namespace tenon::distdl
