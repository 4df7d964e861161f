// Layer `mamba2` (Dao, Gu 2024): a projection to gates z, values x, B, C and steps, a causal convolution of
// (x, B, C) with SiLU, a state space model with one decay per head, a gated norm by groups, and a projection
// back. Rows of the projection and channels of the convolution stand group after group. Both products are
// linear sites; everything between them computes in f32 (f64). On kept state a position costs the same
// wherever it is.
#pragma once

#include "head_share.hpp"
#include "shared_norm.hpp"

#include <tenon/device.hpp>
#include <tenon/layer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/gradient_sum.hpp>
#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/stepwise.hpp>

#include <memory>
#include <optional>
#include <string>

namespace tenon::ssm {

class Mamba2 final : public Layer, public StepwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("heads", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("heads; heads x head_width values pass through the state, whatever the width of x is"),
      option::integer("head_width", "64").between(1, 65536).doc_text("values of a head"),
      option::integer("state", "128").between(1, 65536).doc_text("rows of the state of a head"),
      option::integer("groups", "1")
          .between(1, 2147483647)
          .doc_text("groups of neighbouring heads, each with one B and C, and normed together; must divide "
                    "heads"),
      option::integer("conv", "4").between(1, 64).in_unit("tokens").doc_text("width of the convolution"),
      option::integer("chunk", "256")
          .between(1, 1048576)
          .in_unit("tokens")
          .doc_text("positions that are computed together; changes time and memory, not values"),
      option::real("dt_min", "1e-3").doc_text("least initial step"),
      option::real("dt_max", "0.1").doc_text("greatest initial step"),
      option::real("dt_floor", "1e-4").at_least(0).doc_text("initial steps are at least this, too"),
      option::reals("dt_limits", "[0, 0]")
          .length(2)
          .at_least(0)
          .doc_text("bounds of every step, below and above; 0: none"),
      option::real("norm_eps", "1e-5").at_least(1e-30).doc_text("added to the mean square of a group"),
      option::real("init_scale", "0.02")
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights of in_proj"),
      option::real("out_init_scale", nullptr).at_least(0).doc_text("that of out_proj; absent: init_scale"),
      option::integers("axes", "[]")
          .between(0, 63)
          .doc_text("axes of the mesh that shard the heads, together and evenly, with their groups; none: "
                    "every rank computes all of them"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, time, width]").of("activations"),
                                        port::input("documents", "[batch, time]").of("i32").optional(),
                                        port::output("y", "[batch, time, width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "mamba2",
                                       .summary = "Mamba-2: a state space model over time with gates",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Mamba2(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  std::int64_t infer_step(InferContext& context, std::int64_t positions) override;
  void step(ForwardContext& context, const Steps& steps) override;
  void* query(std::string_view interface_id) override {
    return interface_id == StepwiseLayer::kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }

 private:
  /// A parameter of this node and the sum of its gradient over ranks.
  struct Held {
    ParameterRef ref;
    GradientSum sum;
  };

  void check_options(InferContext& context) const;
  /// The layout of x; refuses what this layer cannot share.
  Layout expect_samples(InferContext& context);
  void declare_parameters(InferContext& context, const Layout& heads);
  Held declare(InferContext& context, std::string_view member, ParameterSpec spec, const Layout& heads);
  void prepare(InferContext& context);
  void declare_memory(InferContext& context);
  void declare_sums(InferContext& context, const Layout& x, const Layout& heads);

  /// Refuses to train on fewer positions than the convolution reads.
  void check_context(RunContext& context) const;
  TensorView documents(RunContext& context) const;
  /// A tensor [rows of this rank, columns] in the workspace.
  TensorView room(RunContext& context, std::size_t offset, std::int64_t columns) const;
  TensorView projected(RunContext& context) const;
  TensorView scanned(RunContext& context) const;
  TensorView scratch(RunContext& context) const;
  /// Weight and bias of the convolution of this rank's channels.
  struct Filters {
    TensorView weight, bias;
  };
  Filters filters(RunContext& context) const;
  SsdInputs inputs(RunContext& context, TensorView xbc) const;
  /// The norm and the projection of what the scan left.
  void finish(ForwardContext& context);
  void convolution_backward(BackwardContext& context, TensorView dxbc, TensorView dprojected);
  void parameters_of_heads_backward(BackwardContext& context, TensorView xbc, TensorView dy, TensorView dxbc,
                                    TensorView dprojected);
  TensorView out_backward(BackwardContext& context, TensorView dprojected);
  void in_backward(BackwardContext& context, TensorView dprojected);

  const Options& options_;
  std::string name_;
  HeadSizes sizes_;
  HeadShare share_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  HostStage stage_;
  bool packed_ = false;  ///< there is an input of documents
  bool training_ = false;
  std::int64_t batch_ = 0, time_ = 0, width_ = 0;  ///< of this rank
  std::int64_t conv_ = 0, chunk_ = 0;
  DType dtype_ = DType::kF32, parameter_ = DType::kF32;
  Layout out_;

  Held in_, conv_weight_, conv_bias_, steps_, decays_, skips_, gains_, out_weight_;
  SiteRef in_site_, out_site_;
  GradientSum x_sum_;
  std::unique_ptr<LinearMap> out_sum_;  ///< of the heads' terms; null where one rank has all heads
  std::unique_ptr<CausalConvKernel> convolution_;
  std::unique_ptr<SsdKernel> scan_;
  std::unique_ptr<GatedNormKernel> norm_;
  std::optional<SharedNorm> shared_norm_;  ///< where ranks share groups

  SavedRef saved_projected_, saved_scanned_, states_;
  WorkspaceRef workspace_;
  std::size_t projected_at_ = 0, scanned_at_ = 0;  ///< without backward
  std::size_t xbc_at_ = 0, dxbc_at_ = 0, dprojected_at_ = 0, dy_at_ = 0;
  std::size_t filters_at_ = 0, spare_at_ = 0, scratch_at_ = 0, scratch_bytes_ = 0;
};

}  // namespace tenon::ssm
