// Layer `relu`: max(x, 0). Its derivative follows from y, so x need not outlive the product that made it.
#pragma once

#include "pointwise.hpp"

namespace tenon::nn {

class Relu final : public Pointwise {
 public:
  static constexpr ComponentInfo kInfo{.id = "relu", .summary = "max(x, 0)", .capabilities = kAnywhere};

  explicit Relu(const Options&) : Pointwise(Epilogue::kRelu, Reads::kOutput) {}
};

}  // namespace tenon::nn
