// Layer `distillation`: the divergence of a student's distribution over a vocabulary from a teacher's (Hinton
// et al. 2015), and the cross-entropy of the targets from the same logits. Neither's [rows, vocabulary]
// exists whole: one chunk of each does. Rows may be sharded over a mesh. The teacher's inputs are constants.
#pragma once

#include "chunked_head.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"
#include "losses.hpp"

#include <tenon/sdk/ops/divergence.hpp>

#include <memory>

namespace tenon::nn {

class Distillation final : public layer_common::Loss {
 public:
  static constexpr auto kForms = option::choice<Divergence>(
      {{"forward", Divergence::kForward}, {"reverse", Divergence::kReverse}, {"top_k", Divergence::kTopK}});
  static constexpr OptionSpec kOptions[] = {
      kVocabulary,
      kHeadWeight,
      kHeadInitScale,
      kChunkRows,
      option::real("temperature", "1")
          .between(1e-3, 1e3)
          .doc_text("T: both distributions are those of logits / T"),
      option::boolean("scale_by_square", "false")
          .doc_text("multiply the divergence by T^2, which keeps the size of its gradients"),
      option::text("form", "\"forward\"")
          .one_of(kForms)
          .doc_text(
              "forward: KL(teacher || student); reverse: KL(student || teacher); top_k: forward over the "
              "teacher's likeliest classes and one class of all others"),
      option::integer("top_k", nullptr).between(1, 16777216).doc_text("classes of the form top_k"),
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x_student", "[batch, ..., width]").of("activations"),
      port::input("targets", "[...]").of("i32").doc_text("one per row; negative ones do not count"),
      port::input("x_teacher", "[batch, ..., width]").of("activations"),
      port::input("head_teacher", "[vocabulary, width]").of("activations"),
      port::output("loss", "[2]").of("f64").doc_text("sum of divergences over targets, and their number"),
      port::output("tokens", "[2]")
          .of("f64")
          .doc_text("the same of cross-entropies, for a layer that adds losses")};
  static constexpr ComponentInfo kInfo{
      .id = "distillation",
      .summary = "divergence from a teacher's distribution and cross-entropy, in chunks",
      .options = kOptions,
      .ports = kPorts};

  explicit Distillation(const Options& options);
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  void infer_teacher(InferContext& context);
  TensorView teacher_memory(RunContext& context, std::int64_t rows) const;
  /// The teacher's logits of rows [begin, end).
  void compute_teacher(RunContext& context, std::int64_t begin, std::int64_t end, const TensorView& logits);
  TensorView row_window(RunContext& context, WorkspaceRef memory) const;

  const Options& options_;
  DivergenceSpec spec_;
  double factor_;  ///< of the divergence: T^2 or 1
  ChunkedHead head_;
  LossSum divergence_sum_, token_sum_;
  Device* device_ = nullptr;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  DivergenceOps* divergence_ = nullptr;
  std::int64_t vocabulary_ = 0;
  std::unique_ptr<Gemm> product_, last_product_;  ///< of whole chunks, and of a shorter last one
  SavedRef statistics_, teacher_logits_;
  WorkspaceRef losses_, token_losses_, chunk_logits_, scratch_;
};

}  // namespace tenon::nn
