// A window that slides over 1 to 3 dimensions of x [batch, channels, extent...], of which any may be cut over
// the model grid, and so may the batch and the channels: what a rank reads is exchanged first, then the
// window slides over it without padding (Hewett, Grady 2020; the exchange asks nothing of sizes, strides,
// dilations or splits).
#pragma once

#include "halo.hpp"

#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>

namespace tenon::distdl {

/// What a window finds beyond the tensor.
enum class Pads : std::uint8_t { kZero, kLowest };

class SlidingWindows {
 public:
  /// Collective. From the options kernel, stride (absent: kernel), padding and, if there is one, dilation;
  /// refuses what does not fit. Outputs are the even parts of all outputs over the axes that cut the inputs.
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
  /// Along a spatial dimension: what this rank has of x, and what it makes of all outputs.
  ElementRange own(int dim) const { return halo_.own(dim + 2); }
  ElementRange made(int dim) const { return halo_.made(dim + 2); }
  /// Of the output with so many channels, cut as x is.
  Layout output_layout(std::int64_t channels) const { return halo_.output_layout(channels); }

  /// What the rank reads.
  void fetch(TensorView x, TensorView window, Pads pads);
  /// The same in two steps, with zeros beyond the tensor; x stays as it is until the second.
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
