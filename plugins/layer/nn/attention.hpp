// Layer `attention`: causal self-attention on q [batch, time, heads * d_head] and k, v [batch, time, kv_heads
// * d_head]; the projections around it are linear layers of their own. Computed block by block on the device,
// no [time, time] matrix is stored, and k and v are never repeated. Over a mesh samples may be sharded, and
// heads, those of k and v with those of q.
#pragma once

#include "common.hpp"

#include <tenon/ops/attention.hpp>

#include <memory>
#include <string>

namespace tenon::nn {

class SelfAttention final : public Layer, public StepwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("heads", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("heads; the width must be a multiple"),
      option::integer("kv_heads", "0")
          .between(0, 2147483647)
          .doc_text("heads of k and v, each read by heads / kv_heads neighbouring heads of q; must divide "
                    "heads; 0: as many as heads"),
      option::integer("window", "0")
          .between(0, 2147483647)
          .in_unit("tokens")
          .doc_text("position t sees t - window + 1 ... t; 0: all earlier ones"),
      option::boolean("scaled", "true").doc_text("divide logits by sqrt(d_head); GPT-Neo does not"),
  };
  // [ports]
  static constexpr PortSpec kPorts[] = {port::input("q", "[batch, time, width]").of("activations"),
                                        port::input("k", "[batch, time, kv_width]").of("activations"),
                                        port::input("v", "[batch, time, kv_width]").of("activations"),
                                        port::input("documents", "[batch, time]").of("i32").optional(),
                                        port::output("y", "[batch, time, width]").of("activations")};
  // [/ports]
  static constexpr ComponentInfo kInfo{.id = "attention",
                                       .summary =
                                           "causal self-attention on q, k, v, global, in a window "
                                           "or within documents",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit SelfAttention(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  std::int64_t infer_step(InferContext& context, std::int64_t positions) override;
  void step(ForwardContext& context, const Steps& steps) override;
  void* query(std::string_view interface_id) override {
    return interface_id == StepwiseLayer::kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }

 private:
  /// The layout of q; refuses shapes, and shards that are not whole heads with all that they read.
  static Layout expect_heads(InferContext& context, std::int64_t heads, std::int64_t kv_heads);
  static void expect_shards_of_heads(InferContext& context, const Layout& q, int input, std::int64_t heads,
                                     std::int64_t kv_heads);
  void expect_documents(InferContext& context, const Layout& q);
  AttentionMasks masks(RunContext& context) const;

  const Options& options_;
  std::string name_;
  bool packed_ = false;  ///< there is an input of documents
  HostStage stage_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  AttentionSpec spec_;
  std::unique_ptr<AttentionKernel> kernel_;
  std::unique_ptr<CachedAttentionKernel> cached_;  ///< of a stepwise graph
  SavedRef lse_;
  WorkspaceRef scratch_, gradients_, step_scratch_;
};

}  // namespace tenon::nn
