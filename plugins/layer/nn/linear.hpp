// Layer `linear`: y = x w^T + b over the last dimension. The product is a linear site, so its number format
// is the precision policy's choice. Over a mesh (Hewett, Grady 2020) w may be sharded in rows, by the
// option `axes`, and in columns, as x is; samples and positions may be sharded too. Axes that shard both the
// rows and x are refused.
#pragma once

#include "common.hpp"
#include "layer_common/options.hpp"

#include <tenon/ops/reduce.hpp>

#include <memory>

namespace tenon::nn {

class Linear final : public Layer, public PositionwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::features("columns of the result"),
      option::boolean("bias", "true").doc_text("add a learned bias"),
      option::real("bias_init_scale", "0")
          .at_least(0)
          .doc_text("standard deviation of the normal initial bias; 0: zero"),
      layer_common::init_scale("standard deviation of the normal initial weights; absent: uniform within 1 / "
                               "sqrt(columns of x) "
                               "of zero"),
      layer_common::module_kind("\"linear\""),
      layer_common::weight_name(),
      option::integers("axes", "[]")
          .between(0, 63)
          .doc_text("axes of the mesh that shard the columns of the result, together and evenly; none: every "
                    "rank computes all of them"),
      option::boolean("scatter", "false")
          .doc_text("where axes of the mesh shard the columns of x, the sums over them are sharded over "
                    "these axes in dimension 0, instead of being copied to all ranks along them"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, ..., columns]").of("activations"),
                                        port::output("y", "[batch, ..., features]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "linear",
                                       .summary = "y = x w^T + b over the last dimension",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Linear(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return positionwise(this, interface_id, positionwise_);
  }

 private:
  /// `y`: layout of the products, replicated over the axes that shard the columns of `x`.
  void declare_parameters(InferContext& context, const Layout& x, const Layout& y,
                          const std::vector<int>& axes);
  void declare_sums(InferContext& context, const Layout& x, const Layout& y);
  /// This rank's terms of y, or all of dy, where these are not the output and its gradient themselves.
  TensorView before_scatter(RunContext& context, TensorView output) const;

  const Options& options_;  // outlives the layer
  ReduceOps* reduce_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ParameterRef weight_, bias_;
  SiteRef site_;
  WorkspaceRef scratch_, terms_;
  bool has_bias_ = false;
  bool positionwise_ = false;  ///< rows of x are positions
  Shape part_;                 ///< of the weight, on this rank
  Layout out_;                 ///< of y
  Shape product_;              ///< of the product on this rank
  bool scatters_ = false;      ///< out_ is sharded further than the products
  /// Over the axes that shard the columns of x: sum of the products, and gather of dy where it is scattered.
  /// Null where no axes do.
  std::unique_ptr<LinearMap> sum_, gather_;
  GradientSum weight_sum_, bias_sum_, x_sum_;
};

}  // namespace tenon::nn
