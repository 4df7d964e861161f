// Layer `channel_linear`: y[b, :, p] = w x[b, :, p] + c at every point p of x [batch, channels, points...]: a
// convolution with a window of one point, over any number of dimensions. The points of some samples at a time
// become rows of a matrix, so the product is a linear site and its number format the precision policy's
// choice. Points and samples may be cut over a model grid; weights are copied and their gradients summed.
#pragma once

#include "common.hpp"

#include <tenon/gradient_sum.hpp>
#include <tenon/operators_extra.hpp>

namespace tenon::fno {

class ChannelLinear final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("features", nullptr).mandatory().at_least(1).doc_text("channels of the result"),
      option::boolean("bias", "true").doc_text("add a learned bias, zero at first"),
      option::real("init_scale", nullptr)
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights; absent: uniform within 1 / "
                    "sqrt(channels of x) of zero"),
      option::text("module", "\"linear\"").doc_text("module kind that the precision policy sees"),
      option::text("weight", nullptr)
          .doc_text("name of the weight, to tie it to another layer's; absent: NODE.weight"),
      option::integer("chunk", "0")
          .at_least(0)
          .in_unit("samples")
          .doc_text("samples whose points are held as rows at a time; 0: as many as keep them below 256 Ki "
                    "elements"),
  };
  static constexpr ComponentInfo kInfo{.id = "channel_linear",
                                       .summary = "linear map of the channels at every point",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit ChannelLinear(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  TensorView rows(RunContext& context, WorkspaceRef memory, std::int64_t samples,
                  std::int64_t channels) const;

  const Options& options_;  // outlives the layer
  WindowSpec point_;        ///< a window of one element, which turns planes into rows and back
  std::int64_t batch_ = 0, points_ = 0, in_ = 0, out_ = 0, chunk_ = 0;
  bool has_bias_ = false;
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ParameterRef weight_, bias_;
  GradientSum weight_sum_, bias_sum_;
  SiteRef site_;
  WorkspaceRef x_rows_, y_rows_, bias_scratch_;
};

}  // namespace tenon::fno
