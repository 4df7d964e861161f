// Layer `conv`. Forward: the exchange, then per group and chunk of samples unfold, product, and its rows back
// to planes. Backward: weights and bias get the terms of this rank's outputs. The gradient of x is gathered:
// each element is computed from all outputs that read it, which sharded space brings from other ranks; or, in
// scatter form, gradients of windows are added to the elements that they read, on whatever rank.
#include "conv.hpp"

#include "filters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tenon::distdl {
void Conv::infer(InferContext& context) {
  const ValueSpec x = expect_summed(context);
  windows_.infer(context, options_, x);
  plan_ = plan_channels(context, options_, x.layout, windows_.output_layout(options_.integer("features")));
  Mesh& mesh = context.mesh();
  x_ = x.shape, y_ = part_of(plan_.y, mesh.place()).extents;
  dtype_ = x.dtype;
  scatters_ = options_.text("backward") == "scatter";
  ops_ = &context.device().family<WindowOps>();
  reduce_ = &context.device().family<ReduceOps>();
  elementwise_ = &context.device().family<Elementwise>();
  boxes_ = boxes_of(context.device());
  const std::string what = fmt::format("layer '{}'", context.name());
  const auto sum_over = [&](const std::vector<int>& axes, const Layout& whole) {
    if (axes.empty()) return std::unique_ptr<LinearMap>();
    return redistribution(mesh,
                          {.from = {whole.shape, whole.sharding, axes},
                           .to = whole,
                           .dtype = dtype_,
                           .device = &context.device()},
                          what);
  };
  y_sum_ = sum_over(plan_.summed, plan_.y);
  if (context.training()) {
    dx_sum_ = sum_over(plan_.dx_summed, x.layout);
    if (!scatters_ && windows_.sharded_in_space())
      gather_ = std::make_unique<GradientWindows>(context, windows_, x.layout, plan_.y, dtype_);
  }
  const bool overlaps = options_.boolean("overlap");
  if (overlaps && scatters_) refuse(context, "overlap = true needs backward = \"gather\"");
  for (WindowPass& pass : window_passes(windows_, overlaps && windows_.sharded_in_space()))
    passes_.push_back({std::move(pass), {}});
  places_ = windows_.local().places();
  point_.spatial = 1, point_.extent[0] = places_;
  idle_ = y_.elements() == 0;
  declare_parameters(context);
  declare_sites(context);
  declare_memory(context);
  context.output({y_, dtype_, plan_.y});
}

void Conv::declare_parameters(InferContext& context) {
  const std::int64_t features = plan_.y.shape[1], groups = options_.integer("groups");
  std::vector<std::int64_t> extents{features, context.input(0).layout.shape[1] / groups};
  for (int d = 0; d < windows_.spatial(); ++d) extents.push_back(windows_.local().kernel[d]);
  const Shape shape = Shape(std::span<const std::int64_t>(extents));
  ParameterSpec weight = filter_weight(context, options_, shape, shape.elements() / features);
  weight.sharding = plan_.weight;
  weight_ = context.parameter(weight);
  weight_sum_ = GradientSum(context, weight, plan_.y);
  has_bias_ = options_.boolean("bias");
  if (!has_bias_) return;
  ParameterSpec bias = filter_bias(context, features);
  bias.sharding = plan_.bias;
  bias_ = context.parameter(bias);
  bias_sum_ = GradientSum(context, bias, plan_.y);
}

void Conv::declare_sites(InferContext& context) {
  k_ = plan_.channels * windows_.local().offsets();
  const std::int64_t gathered = gather_ == nullptr ? 0 : gather_->places();
  const std::int64_t samples = std::max<std::int64_t>(1, windows_.samples());
  const std::int64_t most = std::max({std::int64_t{1}, places_, gathered});
  chunk_ = samples_at_a_time(options_, samples, most * std::max<std::int64_t>(1, k_));
  std::int64_t covered = 0;
  for (const FilterGroup& group : plan_.groups) {
    n_ = std::max(n_, group.features);
    covered += group.features > 0 ? plan_.channels : 0;
    // A rank without outputs declares its products all the same, since precision policies count them.
    const auto site = [&](std::int64_t places, bool forward) {
      const std::int64_t rows = std::max<std::int64_t>(1, places);
      // Partial sums are not elements of y: no bias is added to them, and no map after the layer is fused.
      return context.linear_site({.module = options_.text("module"),
                                  .weight = weight_,
                                  .first_weight_row = group.first_feature,
                                  .m = samples * rows,
                                  .n = group.features,
                                  .k = k_,
                                  .bias = forward && has_bias_ && y_sum_ == nullptr,
                                  .chunk = chunk_ * rows,
                                  .output = forward && y_sum_ == nullptr ? 0 : -1});
    };
    for (Pass& pass : passes_) pass.sites.push_back(site(pass.windows.places, true));
    // Policies prepare for a number of rows, and more outputs read a shard than a rank makes.
    if (gather_ != nullptr) gathered_sites_.push_back(site(gathered, false));
  }
  covers_ = covered == x_[1] && (gather_ != nullptr ? gathered > 0 : !idle_);
}

void Conv::declare_memory(InferContext& context) {
  const std::int64_t gathered = gather_ == nullptr ? 0 : gather_->places();
  const std::int64_t rows = chunk_ * std::max({std::int64_t{1}, places_, gathered});
  const auto room = [&](std::int64_t elements) { return context.workspace(dtype_bytes(dtype_, elements)); };
  columns_ = room(rows * k_);
  products_ = room(rows * n_);
  bias_scratch_ = context.workspace(reduce_->sum_rows_scratch(rows, n_, dtype_));
  window_ = context.saved({windows_.window_shape(), dtype_});
  if (scatters_) gradient_ = room(windows_.window_shape().elements());
  if (dx_sum_ != nullptr) terms_ = room(x_.elements());
  if (gather_ != nullptr) gathered_ = room(gather_->shape().elements());
  std::int64_t most = 0;
  for (const Pass& pass : passes_) {
    for (const WindowRegion& region : pass.windows.regions) {
      if (region.whole) continue;
      most = std::max({most, plan_.channels * region.window.elements(), n_ * region.window.places()});
    }
  }
  box_ = room(chunk_ * most);
}

TensorView Conv::columns(RunContext& context, std::int64_t rows) const {
  return tensor(context.workspace(columns_), dtype_, {rows, k_});
}

TensorView Conv::products(RunContext& context, std::int64_t rows, const FilterGroup& group) const {
  return tensor(context.workspace(products_), dtype_, {rows, group.features});
}

void Conv::forward(ForwardContext& context) {
  const TensorView y = context.output(0);
  const Flight flight = windows_.start_fetch(context.input(0), context.saved(window_));
  for (const Pass& pass : passes_) {
    if (pass.windows.waits()) windows_.finish_fetch(flight);
    if (!idle_ && k_ > 0) compute(context, pass);
  }
  if (y_sum_ == nullptr) return;
  if (k_ == 0) elementwise_->fill(y, 0);
  y_sum_->forward(y, y);
  if (has_bias_ && !idle_) add_bias(context);
}

void Conv::compute(ForwardContext& context, const Pass& pass) {
  const bool waits = pass.windows.waits();
  const TensorView from = waits ? context.saved(window_) : context.input(0), y = context.output(0);
  const TensorView bias = has_bias_ && y_sum_ == nullptr ? context.parameter(bias_) : TensorView{};
  for (std::int64_t begin = 0; begin < windows_.samples(); begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, windows_.samples()),
                       rows = (end - begin) * pass.windows.places;
    for (std::size_t g = 0; g < pass.sites.size(); ++g) {
      const FilterGroup& group = plan_.groups[g];
      const TensorView read = columns(context, rows), made = products(context, rows, group);
      rows_of_windows(context, waits ? pass.windows.regions : pass.windows.own, from.rows(begin, end), group,
                      read);
      context.fprop(
          pass.sites[g], read,
          bias.empty() ? bias : bias.rows(group.first_feature, group.first_feature + group.features), made,
          begin * pass.windows.places);
      outputs_of_rows(context, pass.windows, made, group, y.rows(begin, end));
    }
  }
}

void Conv::add_bias(ForwardContext& context) {
  // Only one group has terms to sum, and this rank has all its features.
  const FilterGroup& group = plan_.groups.front();
  const TensorView y = context.output(0), bias = context.parameter(bias_);
  for (std::int64_t begin = 0; begin < windows_.samples(); begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, windows_.samples());
    const TensorView rows = products(context, (end - begin) * places_, group);
    ops_->unfold(point_, y.rows(begin, end), 0, rows);
    elementwise_->add_bias(rows, bias, rows);
    ops_->fold(point_, rows, 0, y.rows(begin, end), false);
  }
}

namespace {

/// A window of one element, which converts planes of `elements` to rows and back.
WindowSpec one_of(std::int64_t elements) {
  WindowSpec point;
  point.spatial = 1, point.extent[0] = elements;
  return point;
}

/// Calls fn(region, its rows) for all regions, whose rows are consecutive.
template <typename Fn>
void for_regions(const std::vector<WindowRegion>& regions, std::int64_t samples, TensorView rows, Fn&& fn) {
  std::int64_t begin = 0;
  for (const WindowRegion& region : regions) {
    const std::int64_t end = begin + samples * region.window.places();
    fn(region, rows.rows(begin, end));
    begin = end;
  }
}

}  // namespace

TensorView Conv::box(RunContext& context, std::int64_t samples, std::int64_t channels,
                     const std::int64_t* extents) const {
  std::vector<std::int64_t> shape{samples, channels};
  shape.insert(shape.end(), extents, extents + windows_.spatial());
  return tensor(context.workspace(box_), dtype_, Shape(std::span<const std::int64_t>(shape)));
}

TensorView Conv::outputs_box(RunContext& context, std::int64_t samples, std::int64_t features,
                             const WindowRegion& region) const {
  std::int64_t places[3] = {1, 1, 1};
  for (int d = 0; d < windows_.spatial(); ++d) places[d] = region.window.places(d);
  return box(context, samples, features, places);
}

void Conv::rows_of_windows(RunContext& context, const std::vector<WindowRegion>& regions, TensorView planes,
                           const FilterGroup& group, TensorView rows) {
  const std::int64_t samples = planes.shape[0];
  for_regions(regions, samples, rows, [&](const WindowRegion& region, TensorView part) {
    if (region.whole) {
      ops_->unfold(region.window, planes, group.first_channel, part);
      return;
    }
    const TensorView read = box(context, samples, plan_.channels, region.window.extent);
    take_box(boxes_, planes, group.first_channel, region.read_from, read);
    ops_->unfold(region.window, read, 0, part);
  });
}

void Conv::rows_of_outputs(RunContext& context, const WindowPass& pass, TensorView planes,
                           const FilterGroup& group, TensorView rows) {
  const std::int64_t samples = planes.shape[0];
  for_regions(pass.regions, samples, rows, [&](const WindowRegion& region, TensorView part) {
    const WindowSpec point = one_of(region.window.places());
    if (region.whole) {
      ops_->unfold(point, planes, group.first_feature, part);
      return;
    }
    const TensorView made = outputs_box(context, samples, group.features, region);
    take_box(boxes_, planes, group.first_feature, region.made_from, made);
    ops_->unfold(point, made, 0, part);
  });
}

void Conv::outputs_of_rows(RunContext& context, const WindowPass& pass, TensorView rows,
                           const FilterGroup& group, TensorView planes) {
  const std::int64_t samples = planes.shape[0];
  for_regions(pass.regions, samples, rows, [&](const WindowRegion& region, TensorView part) {
    const WindowSpec point = one_of(region.window.places());
    if (region.whole) {
      ops_->fold(point, part, group.first_feature, planes, false);
      return;
    }
    const TensorView made = outputs_box(context, samples, group.features, region);
    ops_->fold(point, part, 0, made, false);
    put_box(boxes_, made, planes, group.first_feature, region.made_from);
  });
}

void Conv::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const GradientSink dbias = has_bias_ ? context.gradient(bias_) : GradientSink{};
  const TensorView dy = context.output_gradient(0);
  const bool needs_dx = dx.view.shape.rank() > 0;
  const GradientSink own = needs_dx ? own_terms(context, dx) : GradientSink{};
  const bool gathers = needs_dx && gather_ != nullptr;
  // Gradients of other ranks travel while the weight's are computed.
  const TensorView gathered =
      gathers ? tensor(context.workspace(gathered_), dtype_, gather_->shape()) : TensorView{};
  const Flight flight = gathers ? gather_->start(dy, gathered) : Flight{};
  weight_sum_.clear(*elementwise_, dw);
  bias_sum_.clear(*elementwise_, dbias);
  for (const Pass& pass : passes_) {
    for (std::int64_t begin = 0; begin < windows_.samples() && !idle_; begin += chunk_) {
      const std::int64_t end = std::min(begin + chunk_, windows_.samples());
      for (std::size_t g = 0; g < pass.sites.size(); ++g) {
        const FilterGroup& group = plan_.groups[g];
        const TensorView given = products(context, (end - begin) * pass.windows.places, group);
        rows_of_outputs(context, pass.windows, dy.rows(begin, end), group, given);
        add_parameter_gradients(context, pass, g, given, begin, dw, dbias);
        if (needs_dx && !gathers)
          add_input_gradient(context, scatters_ ? windows_.local() : windows_.global(), pass.sites[g], group,
                             given, begin, own);
      }
    }
  }
  if (gathers) {
    gather_->finish(flight);
    add_gathered_gradients(context, gathered, own);
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
  if (!dbias.view.empty()) bias_sum_.close(dbias);
  if (needs_dx) settle(context, own, dx);
}

void Conv::add_parameter_gradients(BackwardContext& context, const Pass& pass, std::size_t g,
                                   TensorView given, std::int64_t begin, const GradientSink& dw,
                                   const GradientSink& dbias) {
  const FilterGroup& group = plan_.groups[g];
  const std::int64_t places = pass.windows.places, end = begin + given.shape[0] / places;
  if (!dbias.view.empty()) {
    reduce_->sum_rows(given, dbias.view.rows(group.first_feature, group.first_feature + group.features), true,
                      context.workspace(bias_scratch_));
  }
  if (dw.view.empty()) return;
  const TensorView read = columns(context, given.shape[0]);
  rows_of_windows(context, pass.windows.regions, context.saved(window_).rows(begin, end), group, read);
  context.wgrad(pass.sites[g], read, given, true, begin * places);
}

GradientSink Conv::own_terms(BackwardContext& context, const GradientSink& dx) const {
  GradientSink own = dx;
  if (scatters_) {
    own = {tensor(context.workspace(gradient_), dtype_, windows_.window_shape()), false};
  } else if (dx_sum_ != nullptr) {
    own = {tensor(context.workspace(terms_), dtype_, x_), false};
  }
  if (!covers_ && !own.accumulate) elementwise_->fill(own.view, 0);
  return own;
}

void Conv::add_input_gradient(BackwardContext& context, const WindowSpec& window, SiteRef site,
                              const FilterGroup& group, TensorView rows, std::int64_t begin,
                              const GradientSink& to) {
  if (k_ == 0) return;
  const TensorView terms = columns(context, rows.shape[0]);
  const std::int64_t places = window.places(), end = begin + rows.shape[0] / places;
  context.dgrad(site, rows, terms, false, begin * places);
  ops_->fold(window, terms, group.first_channel, to.view.rows(begin, end), to.accumulate);
}

void Conv::add_gathered_gradients(BackwardContext& context, TensorView gathered, const GradientSink& to) {
  const std::int64_t places = gather_->places();
  for (std::int64_t begin = 0; begin < windows_.samples() && places > 0; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, windows_.samples());
    for (std::size_t g = 0; g < gathered_sites_.size(); ++g) {
      const FilterGroup& group = plan_.groups[g];
      if (group.features == 0) continue;
      const TensorView given = products(context, (end - begin) * places, group);
      ops_->unfold(gather_->rows(), gathered.rows(begin, end), group.first_feature, given);
      add_input_gradient(context, gather_->fold(), gathered_sites_[g], group, given, begin, to);
    }
  }
}

void Conv::settle(BackwardContext& context, const GradientSink& own, const GradientSink& dx) {
  GradientSink terms = own;
  if (scatters_) {
    terms = dx_sum_ == nullptr ? dx : GradientSink{tensor(context.workspace(terms_), dtype_, x_), false};
    windows_.give_back(own.view, terms);
  }
  if (dx_sum_ != nullptr) dx_sum_->forward(terms.view, dx.view, dx.accumulate);
}

}  // namespace tenon::distdl
