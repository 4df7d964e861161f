// Layer `head_cross_entropy`: logits = x w^T over a vocabulary and their cross-entropy, in one layer and in
// chunks of rows. Rows may be sharded over a mesh.
#pragma once

#include "chunked_head.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"
#include "losses.hpp"

namespace tenon::nn {

class HeadCrossEntropy final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      kVocabulary, kHeadWeight, kHeadInitScale, kChunkRows, kLabelSmoothing, layer_common::metric_name(),
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
      : Loss(options), options_(options), smoothing_(options.real("label_smoothing")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  const Options& options_;
  double smoothing_;
  ChunkedHead head_;
  LossSum sum_;
  WorkspaceRef losses_;
};

}  // namespace tenon::nn
