// Layer `head_cross_entropy`: logits = x w^T over a vocabulary and their cross-entropy, in one layer, so that
// at most `chunk_rows` rows of logits exist at a time. With one chunk the logits are kept for backward; with
// several, backward recomputes them (a third product more, for rows / chunk_rows times less memory). Rows may
// be sharded over a mesh: the weight is replicated, its gradient summed over the ranks.
#pragma once

#include "layer_common/options.hpp"
#include "losses.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/sdk/gradient_sum.hpp>

namespace tenon::nn {

class HeadCrossEntropy final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("vocabulary", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("classes; rows of the weight"),
      option::text("weight", nullptr)
          .doc_text("name of the weight, to tie it to an embedding's table; absent: NODE.weight, untied"),
      option::real("init_scale", "0.02")
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights"),
      option::integer("chunk_rows", "0")
          .between(0, 2147483647)
          .in_unit("rows")
          .doc_text("rows of logits held at a time; 0: as many as keep a chunk below 16 Mi elements"),
      kLabelSmoothing,
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, ..., width]").of("activations"),
      port::input("targets", "[...]").of("i32").doc_text("one per row; negative ones do not count"),
      port::output("loss", "[2]").of("f64").doc_text("sum over targets, and their number")};
  static constexpr ComponentInfo kInfo{
      .id = "head_cross_entropy",
      .summary = "output projection and cross-entropy over a vocabulary, in chunks",
      .options = kOptions,
      .ports = kPorts};

  explicit HeadCrossEntropy(const Options& options)
      : options_(options), metric_(options.text("metric")), smoothing_(options.real("label_smoothing")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  bool keeps_logits() const { return logits_.index >= 0; }
  /// Memory for `rows` rows of logits: what is kept, or the workspace.
  TensorView logits(RunContext& context, std::int64_t rows) const;

  const Options& options_;
  std::string metric_;
  double smoothing_;
  double seed_ = 1;
  std::int64_t vocabulary_ = 0, rows_ = 0, chunk_ = 0;
  DType logit_type_ = DType::kF32;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  GradientSum weight_sum_;
  LossSum sum_;
  ParameterRef weight_;
  SiteRef site_;
  SavedRef logits_, lse_;
  WorkspaceRef chunk_logits_, losses_, gradients_;
};

}  // namespace tenon::nn
