// Windows that slide over shards: the exchange of what they read, the passes over outputs, and gradients.
#pragma once

#include "halo.hpp"

#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>

#include <vector>

namespace tenon::distdl {

// A window that slides over 1 to 3 dimensions of x [batch, channels, extent...], any of which may be sharded
// over the mesh, and so may the batch and the channels: the elements that a rank reads are exchanged
// first, then the window slides over them without padding (Hewett, Grady 2020; the exchange does not restrict
// sizes, strides, dilations or splits).

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
  bool sharded_in_space() const;
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

  StridedCopyOps* boxes_ = nullptr;  ///< null in host memory
  WindowSpec window_, global_;
  Halo halo_;
};

// The outputs of a rank in one pass, or in two: first those whose windows are inside the rank's own shard of
// x, which need not wait for the exchange; then the slabs around them.

/// Windows at a box of this rank's outputs, over a box of their input.
struct WindowRegion {
  WindowSpec window;
  std::int64_t read_from[3] = {0, 0, 0};  ///< begin of the box that is read
  std::int64_t made_from[3] = {0, 0, 0};  ///< begin of the box of outputs
  bool whole = false;                     ///< both boxes cover everything
};

struct WindowPass {
  std::vector<WindowRegion> regions;  ///< over the exchanged elements
  std::vector<WindowRegion> own;      ///< the same over the rank's shard of x; empty: this pass waits
  std::int64_t places = 0;

  bool waits() const { return own.empty(); }
};

/// `early`: two passes, unless one of them would have no outputs. The last pass waits.
std::vector<WindowPass> window_passes(const SlidingWindows& windows, bool early);

/// Copies `box` [batch, channels, extent...] from the planes [batch, all channels, extent...] in which it
/// begins at `first_channel` and `begin`; and back to them. `ops`: null in host memory.
void take_box(StridedCopyOps* ops, TensorView planes, std::int64_t first_channel, const std::int64_t* begin,
              TensorView box);
void put_box(StridedCopyOps* ops, TensorView box, TensorView planes, std::int64_t first_channel,
             const std::int64_t* begin);

/// The gradient of a sliding window in gather form: a rank gets the gradients of all outputs, its own and
/// other ranks', that read its shard of x, and adds up each element of its own in the order of one rank. The
/// result equals that of one rank bit for bit, whichever rank made the outputs; nothing is added into other
/// ranks' shards.
class GradientWindows {
 public:
  /// Collective. `x` and `y`: layouts of the input and of the output of `windows`.
  GradientWindows(InferContext& context, const SlidingWindows& windows, const Layout& x, const Layout& y,
                  DType dtype);

  /// Shape of the gradients that this rank gets: [batch, features, places...].
  Shape shape() const { return exchange_->local_range(); }
  /// Rows of one sample's gradients; 0 where no window reads this rank's shard.
  std::int64_t places() const { return rows_.places(); }
  /// A window of one element over these gradients, which converts them to rows.
  const WindowSpec& rows() const { return rows_; }
  /// Converts those rows' products to the gradient of this rank's shard of x.
  const WindowSpec& fold() const { return fold_; }

  /// Collective; the caller leaves `dy` unchanged until finish.
  Flight start(TensorView dy, TensorView gathered) { return exchange_->start_forward(dy, gathered, false); }
  void finish(Flight flight) { exchange_->finish(flight); }

 private:
  WindowSpec rows_, fold_;
  std::unique_ptr<LinearMap> exchange_;
};

}  // namespace tenon::distdl
