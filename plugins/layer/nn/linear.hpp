// Layer `linear`: y = x w^T + b over the last dimension. The product is a linear site, so its number format
// is the precision policy's choice.
#pragma once

#include "common.hpp"

namespace tenon::nn {

class Linear final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("features", nullptr).mandatory().at_least(1).doc_text("columns of the result"),
      option::boolean("bias", "true").doc_text("add a learned bias"),
      option::real("bias_init_scale", "0")
          .at_least(0)
          .doc_text("standard deviation of the normal initial bias; 0: zero"),
      option::real("init_scale", nullptr)
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights; absent: uniform within 1 / "
                    "sqrt(columns of x) "
                    "of zero"),
      option::text("module", "\"linear\"").doc_text("module kind that the precision policy sees"),
      option::text("weight", nullptr)
          .doc_text("name of the weight, to tie it to another layer's; absent: NODE.weight"),
  };
  static constexpr ComponentInfo kInfo{.id = "linear",
                                       .summary = "y = x w^T + b over the last dimension",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit Linear(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the layer
  ReduceOps* reduce_ = nullptr;
  ParameterRef weight_, bias_;
  SiteRef site_;
  WorkspaceRef scratch_;
  bool has_bias_ = false;
};

}  // namespace tenon::nn
