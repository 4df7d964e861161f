// Layer `conv`: y = w * x + b over 1 to 3 dimensions, of which any may be cut over the model grid, and so may
// the batch; weights are copied, their gradients summed. On one rank it is `conv2d` in other dimensions.
#pragma once

#include "windows.hpp"

#include <vector>

namespace tenon::distdl {

class Conv final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("features", nullptr).mandatory().at_least(1).doc_text("channels of the result"),
      option::integers("kernel", nullptr)
          .mandatory()
          .at_least(1)
          .doc_text("extents of the window, or one number for all"),
      option::integers("stride", "[1]").at_least(1).doc_text("distance of neighbouring windows"),
      option::integers("padding", "[0]").at_least(0).doc_text("zeros on both sides of each dimension"),
      option::integers("dilation", "[1]")
          .at_least(1)
          .doc_text("distance of neighbouring elements of a window"),
      option::integer("groups", "1")
          .at_least(1)
          .doc_text("channels are cut into this many groups, each with filters of its own"),
      option::boolean("bias", "true").doc_text("add a learned bias, zero at first"),
      option::real("init_scale", nullptr)
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights; absent: uniform within 1 / sqrt(k) of "
                    "zero, k = channels of a group x kernel"),
      option::text("module", "\"conv\"").doc_text("module kind that the precision policy sees"),
      option::text("weight", nullptr)
          .doc_text("name of the weight, to tie it to another layer's; absent: NODE.weight"),
      option::integer("chunk", "0")
          .at_least(0)
          .in_unit("samples")
          .doc_text("samples whose windows are held as rows at a time; 0: as many as keep them below 1 Mi "
                    "elements"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "conv",
      .summary = "convolution in 1 to 3 dimensions that may lie over a model grid",
      .options = kOptions,
      .capabilities = kOnHost};

  explicit Conv(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  void declare_parameters(InferContext& context, const Layout& y);
  /// Rows of the windows of one group of some samples, and of their products.
  TensorView columns(RunContext& context, std::int64_t samples) const;
  TensorView rows(RunContext& context, std::int64_t samples) const;

  const Options& options_;  // outlives the layer
  SlidingWindows windows_;
  WindowSpec point_;  ///< of one element: turns rows of a product into planes and back
  std::int64_t features_ = 0, channels_ = 0, places_ = 0, chunk_ = 1;
  std::int64_t n_ = 0, k_ = 0;  ///< of one group
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  bool has_bias_ = false;
  ParameterRef weight_, bias_;
  GradientSum weight_sum_, bias_sum_;
  std::vector<SiteRef> sites_;
  SavedRef window_;
  WorkspaceRef columns_, rows_, bias_scratch_, gradient_;
};

}  // namespace tenon::distdl
