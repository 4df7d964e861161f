// Layers `max_pool` and `average_pool`: the greatest element, or the mean, of each window over 1 to 3
// dimensions, any of which may be sharded over the mesh, and so may batch and channels.
#pragma once

#include "windows.hpp"

namespace tenon::distdl {

inline constexpr OptionSpec kPoolOptions[] = {
    option::integers("kernel", nullptr)
        .mandatory()
        .between(1, 32767)
        .doc_text("extents of the window, or one number for all"),
    option::integers("stride", nullptr)
        .between(1, 32767)
        .doc_text("distance of neighbouring windows; absent: the kernel, so that they do not overlap"),
    option::integers("padding", "[0]")
        .between(0, 32767)
        .doc_text(
            "on both sides of each dimension, at most half the kernel: never the greatest, zeros of a mean"),
    option::integers("dilation", "[1]")
        .between(1, 32767)
        .doc_text("distance of neighbouring elements of a window"),
};

/// Common steps of both pools around the operator.
class Pool : public Layer {
 public:
  explicit Pool(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 protected:
  TensorView scratch(RunContext& context) const;

  const Options& options_;  // outlives the layer
  SlidingWindows windows_;
  Shape y_;  ///< this rank's shard
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  WorkspaceRef window_;
};

class MaxPool final : public Pool {
 public:
  static constexpr ComponentInfo kInfo{.id = "max_pool",
                                       .summary = "greatest element of each window, over a mesh too",
                                       .options = kPoolOptions,
                                       .capabilities = kOnHost};
  using Pool::Pool;
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  SavedRef index_;
};

class AveragePool final : public Pool {
 public:
  static constexpr ComponentInfo kInfo{.id = "average_pool",
                                       .summary = "mean of each window, over a mesh too",
                                       .options = kPoolOptions,
                                       .capabilities = kOnHost};
  using Pool::Pool;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
};

}  // namespace tenon::distdl
