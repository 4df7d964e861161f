// Layer `silu`: x / (1 + exp(-x)), also called swish (Elfwing, Uchibe, Doya 2018).
#pragma once

#include "pointwise.hpp"

namespace tenon::nn {

class Silu final : public Pointwise {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "silu", .summary = "x / (1 + exp(-x))", .capabilities = kAnywhere};

  explicit Silu(const Options&) : Pointwise(Epilogue::kSilu, Reads::kInput) {}
};

}  // namespace tenon::nn
