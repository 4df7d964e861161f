// Layer `conv`: y = w * x + b over 1 to 3 dimensions, any of which may be sharded over the mesh, and so
// may the batch: then weights are replicated and their gradients summed. Channels and features may be
// sharded, too, and the weight with them. On one rank it is `conv2d` in other dimensions.
#pragma once

#include "filters.hpp"
#include "layer_common/options.hpp"
#include "windows.hpp"

#include <tenon/ops/reduce.hpp>

#include <vector>

namespace tenon::distdl {

class Conv final : public Layer {
 public:
  static constexpr const char* kBackwards[] = {"gather", "scatter", nullptr};
  static constexpr OptionSpec kOptions[] = {
      layer_common::features("channels of the result"),
      layer_common::kernel("extents of the window, or one number for all"),
      layer_common::stride(),
      layer_common::padding("zeros on both sides of each dimension"),
      layer_common::dilation(),
      layer_common::groups(),
      layer_common::bias(),
      layer_common::filter_init_scale(),
      layer_common::module_kind("\"conv\""),
      layer_common::weight_name(),
      layer_common::chunk(
          "samples whose windows are held as rows at a time; 0: as many as keep them below 1 Mi "
          "elements"),
      option::integers("axes", "[]")
          .between(0, 63)
          .doc_text("axes of the mesh that shard the features of the result, and weight and bias with them; "
                    "x is replicated over these axes"),
      option::text("backward", "\"gather\"")
          .one_of(kBackwards)
          .doc_text("how the gradient of an x that is sharded in space is found: gather fetches the "
                    "gradients of all outputs that read a rank's shard and keeps the bits of one rank; "
                    "scatter adds into others' shards"),
      option::boolean("overlap", "false")
          .doc_text("where x is sharded in space: compute the outputs that read a rank's own shard alone "
                    "while the others' shards travel. It copies what these outputs read and are, and adds up "
                    "gradients of weights in another order; needs backward = gather"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "conv",
      .summary = "convolution in 1 to 3 dimensions that may be sharded over a mesh",
      .options = kOptions,
      .ports = kPorts};

  explicit Conv(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  struct Pass {
    WindowPass windows;
    std::vector<SiteRef> sites;  ///< one per group
  };

  void declare_parameters(InferContext& context);
  void declare_sites(InferContext& context);
  void declare_memory(InferContext& context);
  /// Rows of the windows of one group of some samples, and of their products.
  TensorView columns(RunContext& context, std::int64_t rows) const;
  TensorView products(RunContext& context, std::int64_t rows, const FilterGroup& group) const;
  /// Converts between planes of some samples and such rows, region by region.
  void rows_of_windows(RunContext& context, const std::vector<WindowRegion>& regions, TensorView planes,
                       const FilterGroup& group, TensorView rows);
  void rows_of_outputs(RunContext& context, const WindowPass& pass, TensorView planes,
                       const FilterGroup& group, TensorView rows);
  void outputs_of_rows(RunContext& context, const WindowPass& pass, TensorView rows, const FilterGroup& group,
                       TensorView planes);
  TensorView box(RunContext& context, std::int64_t samples, std::int64_t channels,
                 const std::int64_t* extents) const;
  TensorView outputs_box(RunContext& context, std::int64_t samples, std::int64_t features,
                         const WindowRegion& region) const;
  void compute(ForwardContext& context, const Pass& pass);
  void add_bias(ForwardContext& context);

  /// Destination of this rank's terms of the gradient of x.
  GradientSink own_terms(BackwardContext& context, const GradientSink& dx) const;
  void add_parameter_gradients(BackwardContext& context, const Pass& pass, std::size_t g, TensorView given,
                               std::int64_t begin, const GradientSink& dw, const GradientSink& dbias);
  void add_input_gradient(BackwardContext& context, const WindowSpec& window, SiteRef site,
                          const FilterGroup& group, TensorView rows, std::int64_t begin,
                          const GradientSink& to);
  void add_gathered_gradients(BackwardContext& context, TensorView gathered, const GradientSink& to);
  void settle(BackwardContext& context, const GradientSink& own, const GradientSink& dx);

  const Options& options_;  // outlives the layer
  SlidingWindows windows_;
  ChannelPlan plan_;
  WindowSpec point_;  ///< of one element: converts rows of a product to planes and back
  Shape x_, y_;       ///< this rank's shards
  std::int64_t places_ = 0, chunk_ = 1;
  std::int64_t n_ = 0, k_ = 0;  ///< of the largest group
  bool idle_ = false;           ///< no outputs on this rank
  bool covers_ = false;         ///< this rank's products reach every element of its shard of x
  bool scatters_ = false, has_bias_ = false;
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  StridedCopyOps* boxes_ = nullptr;  ///< null in host memory
  ParameterRef weight_, bias_;
  GradientSum weight_sum_, bias_sum_;
  std::vector<Pass> passes_;
  std::vector<SiteRef> gathered_sites_;        ///< one per group, over the rows of gathered gradients
  std::unique_ptr<GradientWindows> gather_;    ///< null where none are fetched
  std::unique_ptr<LinearMap> y_sum_, dx_sum_;  ///< null where there is nothing to sum
  SavedRef window_;
  WorkspaceRef columns_, products_, bias_scratch_, gradient_, terms_, gathered_, box_;
};

}  // namespace tenon::distdl
