// A window that slides over 1 to 3 dimensions of x [batch, channels, extent...], any of which may be sharded
// over the model grid, and so may the batch and the channels: the elements that a rank reads are exchanged
// first, then the window slides over them without padding (Hewett, Grady 2020; the exchange does not restrict
// sizes, strides, dilations or splits).
#pragma once

#include "halo.hpp"

#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>

namespace tenon::distdl {

/// Value that a window reads beyond the tensor.
enum class Pads : std::uint8_t { kZero, kLowest };

class SlidingWindows {
 public:
  /// Collective. From the options kernel, stride (absent: kernel), padding and, if there is one, dilation;
  /// refuses what does not fit. Outputs are sharded evenly over the axes that shard the inputs.
  void infer(InferContext& context, const Options& options, const ValueSpec& x);

  int spatial() const { return window_.spatial; }
  const WindowSpec& local() const { return window_; }          ///< over what this rank reads; without padding
  const WindowSpec& global() const { return global_; }         ///< over the whole tensor
  Sliding sliding(int dim) const;                              ///< along one of the spatial dimensions
  Shape window_shape() const { return halo_.window_shape(); }  ///< [batch, channels, extent...] of this rank
  bool empty() const { return window_shape().elements() == 0; }
  /// Whether several ranks share the extent of a spatial dimension.
  bool cut_in_space() const;
  std::int64_t samples() const { return halo_.samples(); }
  /// This rank's ranges along a spatial dimension: its own of x, and the one that it makes of all outputs.
  ElementRange own(int dim) const { return halo_.own(dim + 2); }
  ElementRange made(int dim) const { return halo_.made(dim + 2); }
  /// Layout of the output with so many channels, sharded as x is.
  Layout output_layout(std::int64_t channels) const { return halo_.output_layout(channels); }

  /// Fetches the elements that the rank reads.
  void fetch(TensorView x, TensorView window, Pads pads);
  /// The same in two steps, with zeros beyond the tensor; the caller leaves x unchanged until the second.
  Flight start_fetch(TensorView x, TensorView window) { return halo_.start_fetch(x, window); }
  void finish_fetch(Flight flight) { halo_.finish_fetch(flight); }
  /// Adds the gradient of every window to the elements of x that it read.
  void give_back(TensorView window, const GradientSink& dx) { halo_.give_back(window, dx); }

 private:
  /// Writes minus infinity into every element beyond the tensor.
  void lower_pads(TensorView window) const;

  BoxOps* boxes_ = nullptr;  ///< null in host memory
  WindowSpec window_, global_;
  Halo halo_;
};

}  // namespace tenon::distdl
