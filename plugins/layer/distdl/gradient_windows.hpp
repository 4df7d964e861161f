// The gradient of a sliding window in gather form: a rank gets the gradients of all outputs, its own and
// others', that read its part of x, and adds up each element of its own in the order of one rank. What one
// rank finds is found bit for bit, whoever made the outputs; nothing is added into others' parts.
#pragma once

#include "windows.hpp"

namespace tenon::distdl {

class GradientWindows {
 public:
  /// Collective. `x` and `y`: layouts of what `windows` slides over and of what that makes.
  GradientWindows(InferContext& context, const SlidingWindows& windows, const Layout& x, const Layout& y,
                  DType dtype);

  /// Of the gradients that this rank gets: [batch, features, places...].
  Shape shape() const { return exchange_->local_range(); }
  /// Rows that one sample's gradients become; 0 where no window reads what this rank has.
  std::int64_t places() const { return rows_.places(); }
  /// A window of one element over these gradients, which makes them rows.
  const WindowSpec& rows() const { return rows_; }
  /// From those rows' products to the gradient of this rank's part of x.
  const WindowSpec& fold() const { return fold_; }

  /// Collective; `dy` stays as it is until finish.
  Flight start(TensorView dy, TensorView gathered) { return exchange_->start_forward(dy, gathered, false); }
  void finish(Flight flight) { exchange_->finish(flight); }

 private:
  WindowSpec rows_, fold_;
  std::unique_ptr<LinearMap> exchange_;
};

}  // namespace tenon::distdl
