// Base of the layers y = map(x): the map is offered to the producing site as epilogue.
#pragma once

#include "common.hpp"

#include <tenon/ops/norm.hpp>

namespace tenon::nn {

class Pointwise : public Layer {
 public:
  void infer(InferContext& context) final;
  void forward(ForwardContext& context) final;
  void backward(BackwardContext& context) final;
  void* query(std::string_view interface_id) final { return nullptr; }

 protected:
  /// Value that backward reads: x, or y where the derivative follows from it (x itself may then never exist).
  enum class Reads { kInput, kOutput };
  Pointwise(Epilogue map, Reads reads) : map_(map), reads_(reads) {}

 private:
  Epilogue map_;
  Reads reads_;
  NeuralOps* nn_ = nullptr;
};

}  // namespace tenon::nn
