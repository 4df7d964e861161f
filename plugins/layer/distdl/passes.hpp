// The outputs of a rank in one pass, or in two: first those whose windows lie in the rank's own part of x,
// which need not wait for the exchange; then the slabs around them.
#pragma once

#include "windows.hpp"

#include <vector>

namespace tenon::distdl {

/// Windows at a box of this rank's outputs, over a box of what they slide over.
struct WindowRegion {
  WindowSpec window;
  std::int64_t read_from[3] = {0, 0, 0};  ///< where the box that is read begins
  std::int64_t made_from[3] = {0, 0, 0};  ///< where the box of outputs begins
  bool whole = false;                     ///< both boxes are all there is
};

struct WindowPass {
  std::vector<WindowRegion> regions;  ///< over what the exchange brings
  std::vector<WindowRegion> own;      ///< the same over the rank's part of x; empty: this pass waits
  std::int64_t places = 0;

  bool waits() const { return own.empty(); }
};

/// `early`: two passes, unless one of them had no outputs. The last pass waits.
std::vector<WindowPass> window_passes(const SlidingWindows& windows, bool early);

/// Copies `box` [batch, channels, extent...] from the planes [batch, all channels, extent...] in which it
/// begins at `first_channel` and `begin`; and back to them. `ops`: null in host memory.
void take_box(BoxOps* ops, TensorView planes, std::int64_t first_channel, const std::int64_t* begin,
              TensorView box);
void put_box(BoxOps* ops, TensorView box, TensorView planes, std::int64_t first_channel,
             const std::int64_t* begin);

}  // namespace tenon::distdl
