// Transform `untie`: the head of a language model gets a weight of its own, with the values of the embedding
// that it shared.
#pragma once

#include "common.hpp"

#include <tenon/plugin.hpp>

namespace tenon::transform_basic {

class Untie final : public TransformBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "untie",
                                       .summary = "a tied head becomes a parameter of its own"};

  explicit Untie(const Options&) {}
  TransformedModel describe(std::span<StoredModel* const> sources) override;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override;
};

}  // namespace tenon::transform_basic
