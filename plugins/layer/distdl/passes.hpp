// The outputs of a rank in one pass, or in two: first those whose windows are inside the rank's own shard of
// x, which need not wait for the exchange; then the slabs around them.
#pragma once

#include "windows.hpp"

#include <vector>

namespace tenon::distdl {

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
void take_box(BoxOps* ops, TensorView planes, std::int64_t first_channel, const std::int64_t* begin,
              TensorView box);
void put_box(BoxOps* ops, TensorView box, TensorView planes, std::int64_t first_channel,
             const std::int64_t* begin);

}  // namespace tenon::distdl
