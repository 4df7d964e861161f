// Layer `coordinates`: x [batch, channels, points...] with one more channel per dimension, which holds i / n
// at point i of n. Index 0 is on the boundary and the end of the last interval is not, as in periodic grids.
#pragma once

#include "box.hpp"

#include <vector>

namespace tenon::fno {

class Coordinates final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "coordinates",
                                       .summary = "the place of every point as further channels",
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};

  explicit Coordinates(const Options&) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  Shape x_;
  std::vector<double> grid_;  ///< [dims, points...]
  BoxCopier boxes_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  WorkspaceRef room_, grid_room_;  ///< the second for the grid, where the device has memory of its own
};

}  // namespace tenon::fno
