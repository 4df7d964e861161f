// Layer `channel_linear`: y[b, :, p] = w x[b, :, p] + c at every point p of x [batch, channels, points...]: a
// convolution with a window of one point, over any number of dimensions. The points of a sample are the
// columns of a linear site with channels first, so its number format is the precision policy's choice. Points
// and samples may be sharded over a mesh; weights are replicated and their gradients summed.
#pragma once

#include "common.hpp"
#include "layer_common/options.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/sdk/gradient_sum.hpp>

namespace tenon::fno {

class ChannelLinear final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::features("channels of the result"),
      layer_common::bias(),
      layer_common::init_scale("standard deviation of the normal initial weights; absent: uniform within 1 / "
                               "sqrt(channels of x) of zero"),
      layer_common::module_kind("\"linear\""),
      layer_common::weight_name(),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "channel_linear",
                                       .summary = "linear map of the channels at every point",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit ChannelLinear(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  void add_bias_gradient(BackwardContext& context);
  /// [channels, points] of one sample.
  TensorView sample(const TensorView& view, std::int64_t index) const;
  /// [batch, channels, height, width], one point after the other.
  TensorView images(const TensorView& view) const;

  const Options& options_;  // outlives the layer
  std::int64_t batch_ = 0, points_ = 0, height_ = 1, in_ = 0, out_ = 0;
  bool has_bias_ = false;
  Elementwise* elementwise_ = nullptr;
  PartNormOps* sets_ = nullptr;
  ParameterRef weight_, bias_;
  GradientSum weight_sum_, bias_sum_;
  SiteRef site_;
  WorkspaceRef sums_, terms_;  ///< of the bias's gradient
};

}  // namespace tenon::fno
