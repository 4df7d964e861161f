// Layer `squared_relu`: max(x, 0)^2 (So et al. 2021). Backward reads x: y is 0 where a small square
// underflows, and the slope is not.
#pragma once

#include "pointwise.hpp"

namespace tenon::nn {

class SquaredRelu final : public Pointwise {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "squared_relu", .summary = "max(x, 0) squared", .capabilities = kAnywhere};

  explicit SquaredRelu(const Options&) : Pointwise(Epilogue::kSquaredRelu, Reads::kInput) {}
};

}  // namespace tenon::nn
