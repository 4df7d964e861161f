// Layers with tables of rows.
#include "embedding.hpp"

#include <fmt/format.h>
#include <tenon/ops/reduce.hpp>

#include <vector>

namespace tenon::nn {

// Layer `embedding`: gather in forward, scatter-add of the whole table's gradient in backward.

void Embedding::infer(InferContext& context) {
  const std::int64_t ids_here = context.input(0).shape.elements();
  const Layout ids = expect_parts(context, 0);
  const int last = ids.shape.rank();
  if (last >= kMaxRank) refuse(context, "ids of shape " + ids.shape.text() + " leave no room for the width");
  const std::int64_t rows = options_.integer("rows"), width = options_.integer("width");
  const std::vector<int> axes = free_axes(context, options_, ids);
  std::vector<std::int64_t> extents(ids.shape.extents().begin(), ids.shape.extents().end());
  extents.push_back(width);
  const Layout y = with_even_parts({Shape(extents), ids.sharding}, last, width, axes, context.mesh());
  ParameterSpec table = weight_parameter(context, options_, {rows, width}, options_.real("init_scale"));
  table.sharding = with_even_parts({table.shape}, 1, width, axes, context.mesh()).sharding;
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

namespace {

// Layer `positions`: the used rows act as one long bias per sample, so their gradient is a sum over samples.
// Rows of positions that are given are gathered as an embedding's.

/// [batch, time, width] as [batch, time * width]: the used rows then act like a bias.
TensorView samples(TensorView view) {
  return view.reshaped({view.shape[0], view.elements() / view.shape[0]});
}

}  // namespace

void Positions::infer(InferContext& context) {
  const Shape here = context.input(0).shape;
  const Layout x = expect_parts(context, 0);
  const std::int64_t context_rows = options_.integer("context");
  given_ = context.inputs() > 1;
  if (!given_ && x.shape[1] > context_rows) {
    refuse(context, fmt::format("expected a time at most {} (option 'context'), found {}", context_rows,
                                x.shape.text()));
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  rows_ = &device_->family<EmbeddingOps>();
  ParameterSpec table =
      weight_parameter(context, options_, {context_rows, x.shape[2]}, options_.real("init_scale"));
  if (const DimSharding* width = sharding_of(x, 2))
    table.sharding.push_back({1, width->axes, width->offsets});
  table_ = context.parameter(table);
  table_sum_ = GradientSum(context, table, x);
  if (given_) {
    const Layout positions = expect_parts(context, 1);
    Layout expected{{x.shape[0], x.shape[1]}, x.sharding};
    std::erase_if(expected.sharding, [](const DimSharding& sharding) { return sharding.dim == 2; });
    if (!(positions == expected)) {
      refuse(context, fmt::format("expected one position per row of x, {}, found positions {}",
                                  layout_text(expected), layout_text(positions)));
    }
    name_ = context.name();
    scratch_ = context.workspace(rows_->scatter_scratch(here[0] * here[1], context_rows));
    context.keep_input(1);
  } else {
    first_ = part_of(x, context.mesh().place()).offset[1];
    reduce_ = &device_->family<ReduceOps>();
    scratch_ =
        context.workspace(reduce_->sum_rows_scratch(here[0], here[1] * here[2], context.activations()));
  }
  context.output(placed(context, x));
}

void Positions::check_positions(const TensorView& positions) {
  const TensorView here = stage_.read(*device_, positions);
  const std::int64_t rows = options_.integer("context"), time = here.shape[1];
  const auto* const numbers = here.as<std::int32_t>();
  for (std::int64_t i = 0; i < here.elements(); ++i) {
    if (numbers[i] >= 0 && numbers[i] < rows) continue;
    fail_run(
        fmt::format("layer '{}': position {} of sample {} at place {} has no row: the table has {} (option "
                    "'context'); expected 0 to {}",
                    name_, numbers[i], i / time, i % time, rows, rows - 1));
  }
}

void Positions::forward(ForwardContext& context) {
  const TensorView x = context.input(0);
  if (x.empty()) return;
  if (given_) {
    check_positions(context.input(1));
    device_->copy(flat(x), flat(context.output(0)));
    rows_->gather(context.parameter(table_), flat(context.input(1)), matrix(context.output(0)), true);
    return;
  }
  const TensorView used = flat(context.parameter(table_).rows(first_, first_ + x.shape[1]));
  elementwise_->add_bias(samples(x), used, samples(context.output(0)));
}

std::int64_t Positions::infer_step(InferContext& context, std::int64_t positions) {
  if (!given_ && positions > options_.integer("context")) {
    refuse(context, fmt::format("expected sequences of at most {} positions (option 'context'), found {}",
                                options_.integer("context"), positions));
  }
  return 0;
}

void Positions::step(ForwardContext& context, const Steps& steps) {
  if (given_) return forward(context);
  const TensorView x = context.input(0), y = context.output(0);
  if (x.empty()) return;
  device_->copy(x, y);
  rows_->gather(context.parameter(table_), flat(steps.positions), matrix(y), true);
}

void Positions::backward(BackwardContext& context) {
  const TensorView dy = context.output_gradient(0);
  const GradientSink table = context.gradient(table_);
  if (given_ || dy.empty()) {
    if (!table.view.empty()) table_sum_.clear(*elementwise_, table);
    if (!table.view.empty() && !dy.empty())
      rows_->scatter_add(matrix(dy), flat(context.input(1)), table.view, context.workspace(scratch_));
  } else if (!table.view.empty()) {
    const std::int64_t last = first_ + dy.shape[1];
    reduce_->sum_rows(samples(dy), flat(table.view.rows(first_, last)), table_sum_.adds(table),
                      context.workspace(scratch_));
    for (const TensorView& others : {table.view.rows(0, first_), table.view.rows(last, table.view.shape[0])})
      table_sum_.clear(*elementwise_, {others, table.accumulate});
  }
  if (!table.view.empty()) table_sum_.close(table);
  pass_on(*device_, *elementwise_, dy, context.input_gradient(0));
}

}  // namespace tenon::nn
