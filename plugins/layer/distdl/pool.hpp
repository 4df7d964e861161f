// Layers `max_pool` and `average_pool`: the greatest element, or the mean, of each window over 1 to 3
// dimensions, any of which may be sharded over the mesh, and so may batch and channels.
#pragma once

#include "layer_common/options.hpp"
#include "windows.hpp"

namespace tenon::distdl {

inline constexpr OptionSpec kPoolOptions[] = {
    layer_common::kernel("extents of the window, or one number for all"),
    layer_common::stride_or_kernel(),
    layer_common::padding(
        "on both sides of each dimension, at most half the kernel: never the greatest, zeros of a mean"),
    layer_common::dilation(),
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
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "max_pool",
                                       .summary = "greatest element of each window, over a mesh too",
                                       .options = kPoolOptions,
                                       .ports = kPorts};
  using Pool::Pool;
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  SavedRef index_;
};

class AveragePool final : public Pool {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "average_pool",
                                       .summary = "mean of each window, over a mesh too",
                                       .options = kPoolOptions,
                                       .ports = kPorts};
  using Pool::Pool;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
};

}  // namespace tenon::distdl
