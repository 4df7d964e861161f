// Layer `flatten`: [batch, a, b, ...] as [batch, a b ...].
#pragma once

#include "common.hpp"

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
