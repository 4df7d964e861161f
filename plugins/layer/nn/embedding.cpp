// Layer `embedding`: gather in forward, scatter-add of the whole table's gradient in backward.
#include "embedding.hpp"

#include <vector>

namespace tenon::nn {

void Embedding::infer(InferContext& context) {
  expect_inputs(context, 1);
  const std::int64_t ids_here = expect_ids(context, 0).elements();
  const Layout ids = expect_parts(context, 0);
  const int last = ids.shape.rank();
  if (last >= kMaxRank) refuse(context, "ids of shape " + ids.shape.text() + " leave no room for the width");
  const std::int64_t rows = options_.integer("rows"), width = options_.integer("width");
  const std::vector<int> axes = free_axes(context, options_, ids);
  std::vector<std::int64_t> extents(ids.shape.extents().begin(), ids.shape.extents().end());
  extents.push_back(width);
  const Layout y = with_even_parts({Shape(extents), ids.sharding}, last, width, axes, context.grid());
  ParameterSpec table = weight_parameter(context, options_, {rows, width}, options_.real("init_scale"));
  table.sharding = with_even_parts({table.shape}, 1, width, axes, context.grid()).sharding;
  table_ = context.parameter(table);
  table_sum_ = GradientSum(context, table, y);
  rows_ = &context.device().family<EmbeddingOps>();
  elementwise_ = &context.device().family<Elementwise>();
  scratch_ = context.workspace(rows_->scatter_scratch(ids_here, rows));
  context.keep_input(0);
  context.output(placed(context, y));
}

void Embedding::forward(ForwardContext& context) {
  if (context.output(0).empty()) return;
  rows_->gather(context.parameter(table_), flat(context.input(0)), matrix(context.output(0)), false);
}

void Embedding::backward(BackwardContext& context) {
  const GradientSink table = context.gradient(table_);
  if (table.view.empty()) return;
  table_sum_.clear(*elementwise_, table);
  const TensorView dy = context.output_gradient(0);
  if (!dy.empty())
    rows_->scatter_add(matrix(dy), flat(context.input(0)), table.view, context.workspace(scratch_));
  table_sum_.close(table);
}

}  // namespace tenon::nn
