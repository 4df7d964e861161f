// Layer `conv2d`: y = w * x + b over images [batch, channels, height, width]. The windows of x become rows of
// a matrix, so each group's product is a linear site with k = channels of the group x kernel, and its number
// format is the precision policy's choice. Rows exist for a few samples at a time; backward recomputes them.
// Where the policy keeps the site as it is and the device computes convolutions, there are no rows.
#pragma once

#include "window.hpp"

#include <tenon/layer.hpp>
#include <tenon/ops/reduce.hpp>

#include <vector>

namespace tenon::nn {

class Conv2d final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("features", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("channels of the result"),
      option::integers("kernel", nullptr)
          .mandatory()
          .between(1, 32767)
          .doc_text("[height, width] of the window, or one number for both"),
      option::integers("stride", "[1]").between(1, 32767).doc_text("distance of neighbouring windows"),
      option::integers("padding", "[0]").between(0, 32767).doc_text("rows and columns of zeros on each side"),
      option::integers("dilation", "[1]")
          .between(1, 32767)
          .doc_text("distance of neighbouring elements of a window"),
      option::integer("groups", "1")
          .between(1, 2147483647)
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
          .between(0, 2147483647)
          .in_unit("samples")
          .doc_text(
              "samples whose windows are held as rows at a time, where there are rows; 0: as many as keep "
              "them below 1 Mi elements"),
  };
  static constexpr ComponentInfo kInfo{.id = "conv2d",
                                       .summary = "convolution of images, as linear sites over their windows",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit Conv2d(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  /// Windows of one group of some samples, as rows; and the rows of the product.
  TensorView columns(RunContext& context, std::int64_t samples) const;
  TensorView rows(RunContext& context, std::int64_t samples) const;
  std::int64_t groups() const { return static_cast<std::int64_t>(sites_.size()); }

  const Options& options_;  // outlives the layer
  WindowSpec window_;
  WindowSpec point_;  ///< of one element: converts rows of a product to planes and back
  std::int64_t batch_ = 0, places_ = 0, chunk_ = 0;
  std::int64_t n_ = 0, k_ = 0;  ///< of one group
  std::int64_t group_channels_ = 0;
  bool has_bias_ = false;
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  ParameterRef weight_, bias_;
  std::vector<SiteRef> sites_;
  WorkspaceRef columns_, rows_, bias_scratch_;
};

}  // namespace tenon::nn
