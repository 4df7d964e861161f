// Layer `attention`: causal self-attention on q, k, v [batch, time, heads * d_head]; the projections around
// it are linear layers of their own. Computed block by block on the device, no [time, time] matrix is stored.
#pragma once

#include "common.hpp"

#include <tenon/ops/attention.hpp>

#include <memory>

namespace tenon::nn {

class SelfAttention final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("heads", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("heads; the width must be a multiple"),
      option::integer("window", "0")
          .between(0, 2147483647)
          .in_unit("tokens")
          .doc_text("position t sees t - window + 1 ... t; 0: all earlier ones"),
      option::boolean("scaled", "true").doc_text("divide logits by sqrt(d_head); GPT-Neo does not"),
  };
  // [ports]
  static constexpr PortSpec kPorts[] = {port::input("q", "[batch, time, width]").of("activations"),
                                        port::input("k", "[batch, time, width]").of("activations"),
                                        port::input("v", "[batch, time, width]").of("activations"),
                                        port::output("y", "[batch, time, width]").of("activations")};
  // [/ports]
  static constexpr ComponentInfo kInfo{.id = "attention",
                                       .summary = "causal self-attention on q, k, v, global or in a window",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit SelfAttention(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::unique_ptr<AttentionKernel> kernel_;
  SavedRef lse_;
  WorkspaceRef scratch_, gradients_;
};

}  // namespace tenon::nn
