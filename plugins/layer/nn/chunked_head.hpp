// Logits over a vocabulary, x w^T, of which at most `chunk_rows` rows exist at a time, and what is computed
// from each row and its target: shared by `head_cross_entropy`, `head_log_probs`, `distillation`. With one
// chunk the logits are kept for backward; with several, backward recomputes them (a third product more, for
// rows / chunk_rows times less memory). Rows may be sharded over a mesh: the weight is replicated, its
// gradient summed over the ranks.
#pragma once

#include "common.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/sdk/gradient_sum.hpp>
#include <tenon/sdk/ops/multiply.hpp>

#include <algorithm>

namespace tenon::nn {

// Options of these layers.
inline constexpr OptionSpec kVocabulary = option::integer("vocabulary", nullptr)
                                              .mandatory()
                                              .between(1, 2147483647)
                                              .doc_text("classes; rows of the weight");
inline constexpr OptionSpec kHeadWeight =
    option::text("weight", nullptr)
        .doc_text("name of the weight, to tie it to an embedding's table; absent: NODE.weight, untied");
inline constexpr OptionSpec kHeadInitScale =
    option::real("init_scale", "0.02")
        .at_least(0)
        .doc_text("standard deviation of the normal initial weights");
inline constexpr OptionSpec kChunkRows =
    option::integer("chunk_rows", "0")
        .between(0, 2147483647)
        .in_unit("rows")
        .doc_text("rows of logits held at a time; 0: as many as keep a chunk below 16 Mi elements");

class ChunkedHead {
 public:
  /// Input 0 of the layer is x [..., width], input 1 a class number for each row, in layout `counted`; both
  /// are kept as backward needs them. `factors`: whether backward is given a factor per row.
  void infer(InferContext& context, const Options& options, const Layout& counted, bool factors);
  std::int64_t rows() const { return rows_; }
  DType type() const { return logit_type_; }     ///< of logits and losses
  std::int64_t chunk() const { return chunk_; }  ///< rows that exist at a time
  bool keeps_logits() const { return logits_.index >= 0; }
  SavedRef lse() const { return lse_; }  ///< [rows], for layers that compute cross-entropies of the logits

  /// Calls visit(begin, end, logits) for the rows of every chunk, in order.
  template <typename Visit>
  void each_chunk(ForwardContext& context, Visit visit);
  /// Calls visit(begin, end, logits, gradient) in the same order and adds what `gradient` then holds, that of
  /// the logits, to x and the weight. It is the logits' own memory, or bf16.
  template <typename Visit>
  void each_gradient(BackwardContext& context, Visit visit);

  /// losses: [rows], the cross-entropy of each row, 0 where its number is negative.
  void forward(ForwardContext& context, double smoothing, TensorView losses);
  /// Adds the gradients of sum over rows of factor * loss to x and the weight; the factor is `scale`, and
  /// factors[r] times that where `factors` [rows], in type(), is not empty.
  void backward(BackwardContext& context, double smoothing, double scale, TensorView factors);

 private:
  /// Memory for `rows` rows of logits: what is kept, or the workspace.
  TensorView logits(RunContext& context, std::int64_t rows) const;

  std::int64_t vocabulary_ = 0, rows_ = 0, chunk_ = 0;
  DType logit_type_ = DType::kF32;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  MultiplyOps* multiply_ = nullptr;
  GradientSum weight_sum_;
  ParameterRef weight_;
  SiteRef site_;
  SavedRef logits_, lse_;
  WorkspaceRef chunk_logits_, gradients_;
};

template <typename Visit>
void ChunkedHead::each_chunk(ForwardContext& context, Visit visit) {
  const TensorView x = matrix(context.input(0));
  for (std::int64_t begin = 0; begin < rows_; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, rows_);
    const TensorView chunk = logits(context, end - begin);
    context.fprop(site_, x.rows(begin, end), {}, chunk, begin);
    visit(begin, end, chunk);
  }
}

template <typename Visit>
void ChunkedHead::each_gradient(BackwardContext& context, Visit visit) {
  const TensorView x = matrix(context.input(0));
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  bool accumulate = weight_sum_.adds(dw);
  if (rows_ == 0) weight_sum_.clear(*elementwise_, dw);
  for (std::int64_t begin = 0; begin < rows_; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, rows_);
    const TensorView chunk = logits(context, end - begin);
    if (!keeps_logits()) context.fprop(site_, x.rows(begin, end), {}, chunk, begin);
    // In place where the dtypes agree; bf16 activations need bf16 gradients from f32 logits.
    const TensorView gradient =
        gradients_.index < 0 ? chunk
                             : window(context.workspace(gradients_), 0, x.dtype, {end - begin, vocabulary_});
    visit(begin, end, chunk, gradient);
    if (!dw.view.empty()) context.wgrad(site_, {}, gradient, accumulate, begin);
    if (!dx.view.empty())
      context.dgrad(site_, gradient, matrix(dx.view).rows(begin, end), dx.accumulate, begin);
    accumulate = true;
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
}

}  // namespace tenon::nn
