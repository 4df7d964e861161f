// Layer `head_log_probs`: the log-probability of each id under the softmax of logits = x w^T over a
// vocabulary, in chunks of rows, so that the matrix [rows, vocabulary] never exists whole: for losses of
// preferences, policies and teachers. Rows may be sharded over a mesh.
#pragma once

#include "chunked_head.hpp"
#include "losses.hpp"

namespace tenon::nn {

class HeadLogProbs final : public Layer, public PositionwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {kVocabulary, kHeadWeight, kHeadInitScale, kChunkRows};
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, ..., width]").of("activations"),
      port::input("ids", "[...]").of("i32").doc_text("one per row; negative ones give 0 and no gradient"),
      port::output("log_probs", "[...]").of("f32 f64").doc_text("f64 with f64 activations")};
  static constexpr ComponentInfo kInfo{
      .id = "head_log_probs",
      .summary = "output projection and log-probabilities of given classes, in chunks",
      .options = kOptions,
      .ports = kPorts};

  explicit HeadLogProbs(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return positionwise(this, interface_id, positionwise_);
  }

 private:
  const Options& options_;
  ChunkedHead head_;
  bool positionwise_ = false;  ///< rows of x are positions
  Elementwise* elementwise_ = nullptr;
  WorkspaceRef losses_;
};

}  // namespace tenon::nn
