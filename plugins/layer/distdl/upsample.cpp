// Layer `upsample`: the exchange, then one dimension after another from the last, where lines are short, to
// the first; backward runs the same steps in reverse. bf16 is widened in between.
#include "upsample.hpp"

#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/linear_map.hpp>

namespace tenon::distdl {
namespace {

// The table of an interpolation along one dimension. An output is one input, or is between two neighbours:
// both are chosen and weighted by the output's global index alone, so that the bits of an output do not
// depend on which shard a rank makes. Places between inputs are fractions of integers.

/// Rows are the outputs `made` out of all, columns the inputs `read` out of all.
SparseAxisSpec interpolation_table(Interpolation kind, DType dtype, std::int64_t all_inputs,
                                   std::int64_t all_outputs, ElementRange made, ElementRange read) {
  SparseAxisSpec table;
  table.dtype = dtype;
  table.columns = read.size();
  const auto map = interpolation_map(kind, all_inputs, all_outputs);
  for (std::int64_t j = made.begin; j < made.end; ++j) {
    const ElementRange reads = map->inputs({j, j + 1});
    // The place among the inputs is part / whole, exact in integers; before the first input it is negative.
    const bool aligned = kind == Interpolation::kLinearAligned;
    const std::int64_t whole = aligned ? all_outputs - 1 : 2 * all_outputs;
    const std::int64_t part = aligned ? j * (all_inputs - 1) : (2 * j + 1) * all_inputs - all_outputs;
    const std::int64_t beyond = part - reads.begin * whole, low = reads.begin - read.begin;
    if (reads.size() == 1 || beyond <= 0) {
      table.add_row({{low, 1}});
    } else {
      const double share = table.rounded(static_cast<double>(beyond) / static_cast<double>(whole));
      table.add_row({{low, 1 - share}, {low + 1, share}});
    }
  }
  return table;
}

TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}

}  // namespace

void Upsample::infer(InferContext& context) {
  const ValueSpec x = expect_summed(context);
  expect_planes(context, x.layout);
  const Shape& inputs = x.layout.shape;
  const Interpolation kind = options_.choice("mode", kModes);
  std::vector<Halo::Reach> reaches;
  for (int dim = 2; dim < inputs.rank(); ++dim) {
    const std::int64_t scale = number_for(context, options_, "scale", dim - 2, inputs.rank() - 2),
                       outputs = inputs[dim] * scale;
    reaches.push_back({scale == 1 ? nullptr : interpolation_map(kind, inputs[dim], outputs), outputs});
  }
  halo_.infer(context, x, reaches);
  dtype_ = x.dtype, arithmetic_ = dtype_ == DType::kF64 ? DType::kF64 : DType::kF32;
  elementwise_ = &context.device().family<Elementwise>();
  SparseAxisOps& sums = context.device().family<SparseAxisOps>();
  const Shape window = halo_.window_shape();
  for (int dim = 2; dim < inputs.rank(); ++dim) {
    Step& step = steps_.emplace_back();
    for (int before = 0; before < dim; ++before) step.outer *= window[before];
    for (int behind = dim + 1; behind < inputs.rank(); ++behind) step.inner *= halo_.made(behind).size();
    step.sum = sums.prepare(interpolation_table(kind, arithmetic_, inputs[dim],
                                                reaches[static_cast<std::size_t>(dim) - 2].outputs,
                                                halo_.made(dim), halo_.read(dim - 2).need));
  }
  const auto bytes = [](DType dtype, const Shape& shape) {
    return static_cast<std::size_t>(dtype_bytes(dtype, shape.elements()));
  };
  window_ = context.workspace(bytes(dtype_, window));
  for (int d = 0; d <= spatial(); ++d) {
    const bool needed = dtype_ != arithmetic_ || (d > 0 && d < spatial());
    stages_.push_back(needed ? context.workspace(bytes(arithmetic_, stage_shape(d))) : WorkspaceRef{});
  }
  context.output(halo_.output(context, inputs[1]));
}

Shape Upsample::stage_shape(int d) const {
  Shape shape = halo_.window_shape();
  for (int dim = d + 2; dim < shape.rank(); ++dim) shape[dim] = halo_.made(dim).size();
  return shape;
}

TensorView Upsample::stage(RunContext& context, int d, TensorView tensor) const {
  if (stages_[d].index < 0) return tensor;
  return distdl::tensor(context.workspace(stages_[d]), arithmetic_, stage_shape(d));
}

TensorView Upsample::window(RunContext& context) const {
  return tensor(context.workspace(window_), dtype_, halo_.window_shape());
}

void Upsample::forward(ForwardContext& context) {
  const TensorView read = window(context), y = context.output(0);
  halo_.fetch(context.input(0), read);
  if (halo_.empty()) return;
  TensorView from = stage(context, spatial(), read);
  if (dtype_ != arithmetic_) elementwise_->convert(flat(read), flat(from));
  for (int d = spatial() - 1; d >= 0; --d) {
    const TensorView to = stage(context, d, y);
    step(d).sum->forward(from, to, step(d).outer, step(d).inner);
    from = to;
  }
  if (dtype_ != arithmetic_) elementwise_->convert(flat(from), flat(y));
}

void Upsample::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.shape.rank() == 0) return;
  const TensorView given = window(context), dy = context.output_gradient(0);
  if (!halo_.empty()) {
    TensorView from = stage(context, 0, dy);
    if (dtype_ != arithmetic_) elementwise_->convert(flat(dy), flat(from));
    for (int d = 0; d < spatial(); ++d) {
      const TensorView to = stage(context, d + 1, given);
      step(d).sum->adjoint(from, to, step(d).outer, step(d).inner);
      from = to;
    }
    if (dtype_ != arithmetic_) elementwise_->convert(flat(from), flat(given));
  }
  halo_.give_back(given, dx);
}

}  // namespace tenon::distdl
