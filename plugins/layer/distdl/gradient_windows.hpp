// The gradient of a sliding window in gather form: a rank gets the gradients of all outputs, its own and
// other ranks', that read its shard of x, and adds up each element of its own in the order of one rank. The
// result equals that of one rank bit for bit, whichever rank made the outputs; nothing is added into other
// ranks' shards.
#pragma once

#include "windows.hpp"

namespace tenon::distdl {

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
