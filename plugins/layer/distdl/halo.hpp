// What a rank reads of x [batch, channels, 1 to 3 extents] to make its part of the outputs, where an index
// map per dimension behind the channels says what outputs read. All dimensions may be cut over the model
// grid. Behind the channels outputs are the even parts of all outputs over the axes that cut the inputs;
// batch and channels stay cut as they are.
#pragma once

#include "common.hpp"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::distdl {

/// Refuses x of other dimensions.
void expect_planes(const InferContext& context, const Layout& x);
/// Refuses x whose channels are cut.
void expect_whole_channels(const InferContext& context, const Layout& x);
/// An option that holds one number for all dimensions behind the channels, or one for each: that of `dim`.
std::int64_t number_for(const InferContext& context, const Options& options, std::string_view name, int dim,
                        int spatial);
/// The options kernel, stride (absent: kernel), dilation and padding of a dimension.
Sliding sliding_for(const InferContext& context, const Options& options, int dim, int spatial);

class Halo {
 public:
  /// How many outputs there are along a dimension, and what they read; a null map: what lies at their place.
  struct Reach {
    std::shared_ptr<const IndexMap> map;
    std::int64_t outputs = 0;
  };
  /// Collective. One reach for each dimension behind the channels.
  void infer(InferContext& context, const ValueSpec& x, std::span<const Reach> reaches);

  Shape window_shape() const { return map_->local_range(); }  ///< [batch, channels, extent...] of this rank
  /// Along dimension `dim` of x what this rank has of it, and what it makes of [batch, channels of x,
  /// extent...].
  ElementRange own(int dim) const { return {own_.offset[dim], own_.end(dim)}; }
  ElementRange made(int dim) const { return {made_.offset[dim], made_.end(dim)}; }
  /// What it reads along the `d`th dimension behind the channels.
  const DimWindow& read(int d) const { return reads_[static_cast<std::size_t>(d)]; }
  std::int64_t samples() const { return made_.extents[0]; }
  bool empty() const { return made_.elements() == 0; }  ///< this rank makes nothing
  Layout output_layout(std::int64_t channels) const;
  /// This rank's part of such an output.
  ValueSpec output(InferContext& context, std::int64_t channels) const;

  /// What the rank reads; zeros beyond the tensor.
  void fetch(TensorView x, TensorView window) { map_->forward(x, window); }
  /// The same in two steps; x stays as it is until the second.
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
