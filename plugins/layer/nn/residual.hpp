// Layer `residual`: the sum of two values of equal shape; both get the gradient of the sum.
#pragma once

#include "common.hpp"

namespace tenon::nn {

class Residual final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "residual", .summary = "sum of two values of equal shape", .capabilities = kAnywhere};

  explicit Residual(const Options&) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
};

}  // namespace tenon::nn
