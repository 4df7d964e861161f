// Layer `flatten`: [batch, a, b, ...] as [batch, a b ...]. Over a model grid the batch may be sharded, and of
// the other dimensions the first with more than one element, whose shards are then runs of the result's
// columns.
#pragma once

#include "parts.hpp"

namespace tenon::nn {

class Flatten final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "flatten", .summary = "one row per sample", .capabilities = kAnywhere};

  explicit Flatten(const Options&) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
};

}  // namespace tenon::nn
