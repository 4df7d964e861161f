// Layer `embedding`: gather in forward, scatter-add of the whole table's gradient in backward.
#include "embedding.hpp"

#include <vector>

namespace tenon::nn {

void Embedding::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape ids = expect_ids(context, 0);
  if (ids.rank() >= kMaxRank) refuse(context, "ids of shape " + ids.text() + " leave no room for the width");
  const std::int64_t rows = options_.integer("rows"), width = options_.integer("width");
  table_ = context.parameter(weight_parameter(context, options_, {rows, width}, options_.real("init_scale")));
  rows_ = &context.device().family<EmbeddingOps>();
  elementwise_ = &context.device().family<Elementwise>();
  scratch_ = context.workspace(rows_->scatter_scratch(ids.elements(), rows));
  context.keep_input(0);

  std::vector<std::int64_t> extents(ids.extents().begin(), ids.extents().end());
  extents.push_back(width);
  context.output({Shape(extents), context.activations()});
}

void Embedding::forward(ForwardContext& context) {
  rows_->gather(context.parameter(table_), flat(context.input(0)), matrix(context.output(0)), false);
}

void Embedding::backward(BackwardContext& context) {
  const GradientSink table = context.gradient(table_);
  if (table.view.empty()) return;
  if (!table.accumulate) elementwise_->fill(flat(table.view), 0.0);
  rows_->scatter_add(matrix(context.output_gradient(0)), flat(context.input(0)), table.view,
                     context.workspace(scratch_));
}

}  // namespace tenon::nn
