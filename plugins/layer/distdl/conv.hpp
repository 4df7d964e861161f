// Layer `conv`: y = w * x + b over 1 to 3 dimensions, of which any may be cut over the model grid, and so may
// the batch: then weights are copied and their gradients summed. Channels and features may be cut, too, and
// the weight with them. On one rank it is `conv2d` in other dimensions.
#pragma once

#include "channels.hpp"
#include "gradient_windows.hpp"

#include <vector>

namespace tenon::distdl {

class Conv final : public Layer {
 public:
  static constexpr const char* kBackwards[] = {"gather", "scatter", nullptr};
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
      option::integers("axes", "[]")
          .at_least(0)
          .doc_text("axes of the model grid that cut the features of the result, and weight and bias with "
                    "them; x is copied over these axes"),
      option::text("backward", "\"gather\"")
          .one_of(kBackwards)
          .doc_text("how the gradient of an x that is cut in space is found: gather fetches the gradients of "
                    "all outputs that read a rank's part and keeps the bits of one rank; scatter adds into "
                    "others' parts"),
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
  void declare_parameters(InferContext& context);
  void declare_sites(InferContext& context);
  void declare_memory(InferContext& context);
  /// Rows of the windows of one group of some samples, and of their products.
  TensorView columns(RunContext& context, std::int64_t rows) const;
  TensorView products(RunContext& context, std::int64_t rows, const FilterGroup& group) const;
  void add_bias(ForwardContext& context);

  /// Where what this rank's products add to the gradient of x goes.
  GradientSink own_terms(BackwardContext& context, const GradientSink& dx) const;
  void add_input_gradient(BackwardContext& context, const WindowSpec& window, SiteRef site,
                          const FilterGroup& group, TensorView rows, std::int64_t begin,
                          const GradientSink& to);
  void add_gathered_gradients(BackwardContext& context, TensorView gathered, const GradientSink& to);
  void settle(BackwardContext& context, const GradientSink& own, const GradientSink& dx);

  const Options& options_;  // outlives the layer
  SlidingWindows windows_;
  ChannelPlan plan_;
  WindowSpec point_;  ///< of one element: turns rows of a product into planes and back
  Shape x_, y_;       ///< this rank's parts
  std::int64_t places_ = 0, chunk_ = 1;
  std::int64_t n_ = 0, k_ = 0;  ///< of the largest group
  bool idle_ = false;           ///< no outputs on this rank
  bool covers_ = false;         ///< this rank's products reach every element of its part of x
  bool scatters_ = false, has_bias_ = false;
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ParameterRef weight_, bias_;
  GradientSum weight_sum_, bias_sum_;
  std::vector<SiteRef> sites_;                 ///< one per group
  std::vector<SiteRef> gathered_sites_;        ///< likewise, over the rows of gathered gradients
  std::unique_ptr<GradientWindows> gather_;    ///< null where none are fetched
  std::unique_ptr<LinearMap> y_sum_, dx_sum_;  ///< null where there is nothing to sum
  SavedRef window_;
  WorkspaceRef columns_, products_, bias_scratch_, gradient_, terms_, gathered_;
};

}  // namespace tenon::distdl
