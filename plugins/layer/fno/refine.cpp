// Layer `refine`: one dimension after the other, in float32 or float64.
#include "refine.hpp"

#include <fmt/format.h>

#include <utility>

namespace tenon::fno {

Refine::Refine(const Options& options)
    : factor_(options.integer("factor")), behind_(options.choice("behind", kBehind)) {}

void Refine::infer(InferContext& context) {
  Layout layout = expect_field(context, 0);
  for (const DimSharding& sharding : layout.sharding) {
    if (sharding.dim >= 2)
      refuse(context, fmt::format("the points of input 0 are sharded ({}), and points between two shards "
                                  "have neighbours in both; put a repartition before it that joins them",
                                  layout_text(layout)));
  }
  const Shape x = context.input(0).shape;
  coarse_ = fine_ = x.elements();
  dtype_ = statistics(context.activations());
  elementwise_ = &context.device().family<Elementwise>();
  SparseAxisOps& sums = context.device().family<SparseAxisOps>();
  stages_.clear();
  for (int dim = x.rank() - 1; dim >= 2; --dim) {
    Stage& stage = stages_.emplace_back();
    for (int d = 0; d < dim; ++d) stage.outer *= x[d];
    for (int d = dim + 1; d < x.rank(); ++d) stage.inner *= x[d] * factor_;
    stage.sum = sums.prepare(table(x[dim]));
    layout.shape[dim] *= factor_;
    fine_ *= factor_;
  }
  values_ = context.workspace(tensor_bytes(dtype_, fine_));
  other_ = context.workspace(tensor_bytes(dtype_, fine_));
  narrow_ = context.workspace(tensor_bytes(context.activations(), coarse_));
  context.output(placed(context, layout));
}

SparseAxisSpec Refine::table(std::int64_t n) const {
  SparseAxisSpec table;
  table.dtype = dtype_;
  table.columns = n;
  for (std::int64_t point = 0; point < n; ++point)
    for (std::int64_t k = 0; k < factor_; ++k) {
      const double share = table.rounded(static_cast<double>(k) / static_cast<double>(factor_));
      const bool last = point == n - 1;
      if (share == 0 || (last && behind_ == Behind::kLast)) {
        table.add_row({{point, 1}});
      } else if (last && behind_ == Behind::kZero) {
        table.add_row({{point, 1 - share}});
      } else {
        table.add_row({{point, 1 - share}, {last ? 0 : point + 1, share}});
      }
    }
  return table;
}

std::array<TensorView, 2> Refine::rooms(RunContext& context) const {
  return {in_workspace(context.workspace(values_), dtype_, {fine_}),
          in_workspace(context.workspace(other_), dtype_, {fine_})};
}

void Refine::forward(ForwardContext& context) {
  if (fine_ == 0) return;
  auto [from, to] = rooms(context);
  elementwise_->convert(flat(context.input(0)), from.rows(0, coarse_));
  std::int64_t elements = coarse_;
  for (const Stage& stage : stages_) {
    stage.sum->forward(from.rows(0, elements), to.rows(0, elements * factor_), stage.outer, stage.inner);
    elements *= factor_;
    std::swap(from, to);
  }
  elementwise_->convert(from, flat(context.output(0)));
}

void Refine::backward(BackwardContext& context) {
  const GradientSink sink = context.input_gradient(0);
  if (sink.view.empty()) return;
  auto [from, to] = rooms(context);
  elementwise_->convert(flat(context.output_gradient(0)), from);
  std::int64_t elements = fine_;
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    elements /= factor_;
    stage->sum->adjoint(from.rows(0, elements * factor_), to.rows(0, elements), stage->outer, stage->inner);
    std::swap(from, to);
  }
  const TensorView gradient = from.rows(0, coarse_), into = flat(sink.view);
  if (!sink.accumulate) {
    elementwise_->convert(gradient, into);
    return;
  }
  const TensorView narrow = in_workspace(context.workspace(narrow_), sink.view.dtype, {coarse_});
  elementwise_->convert(gradient, narrow);
  elementwise_->axpy(1, narrow, into);
}

}  // namespace tenon::fno
