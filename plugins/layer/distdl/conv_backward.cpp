// Layer `conv`, backward. Weights and bias get the terms of this rank's outputs. The gradient of x is found
// element by element from all outputs that read it, which cut space brings from other ranks; or, in scatter
// form, gradients of windows are added to the elements that they read, on whatever rank.
#include "conv.hpp"

#include <algorithm>

namespace tenon::distdl {

void Conv::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const GradientSink dbias = has_bias_ ? context.gradient(bias_) : GradientSink{};
  const TensorView dy = context.output_gradient(0);
  const bool needs_dx = dx.view.shape.rank() > 0;
  const GradientSink own = needs_dx ? own_terms(context, dx) : GradientSink{};
  const bool gathers = needs_dx && gather_ != nullptr;
  // Others' gradients travel while the weight's are computed.
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
