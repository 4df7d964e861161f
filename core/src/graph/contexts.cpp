// Run-time side of the layer contract: handles become views, sites get their memory and weights.
#include "graph/contexts.hpp"

#include "base/at.hpp"

#include <tenon/error.hpp>
#include <tenon/layer.hpp>

#include <fmt/format.h>

namespace tenon::graph {
namespace {

/// Operations of each of the three products of a site: one multiplication and one addition per element of y
/// and step of k.
double product_flops(const Site& site, const TensorView& y) {
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(site.declared.k);
}

}  // namespace

template <typename Base>
RandomKey NodeContext<Base>::random(std::string_view purpose) {
  for (const auto& [name, key] : node().keys) {
    if (name == purpose) return key;
  }
  const RandomKey key = random_key(pass_.seed, fmt::format("{}:{}", purpose, node().spec.name));
  node().keys.emplace_back(purpose, key);
  return key;
}

template <typename Base>
SiteCall NodeContext<Base>::call(const Site& site, std::int64_t first_row, const TensorView& scratch) const {
  SiteCall call;
  call.step = pass_.run.slot;
  call.micro = pass_.run.micro;
  call.training = pass_.run.training;
  call.first_row = first_row;
  const std::int64_t rows_of_sample = site.declared.m / pass_.build->batch;
  call.origin_row = pass_.run.first_sample * rows_of_sample + first_row;
  call.numerics = pass_.numerics;
  call.weight_version = pass_.weights->version(site.parameter);
  call.kept = site.kept_memory;
  call.persistent = site.persistent;
  call.scratch = scratch;
  return call;
}

template class NodeContext<ForwardContext>;
template class NodeContext<BackwardContext>;

void NodeForward::fprop(SiteRef ref, TensorView x, TensorView bias, TensorView y, std::int64_t first_row) {
  Site& s = site(ref);
  pass_.flops += product_flops(s, y);
  s.product->fprop(call(s, first_row, s.forward_scratch), x, weight(s), bias, y);
}

void NodeBackward::fprop(SiteRef ref, TensorView x, TensorView bias, TensorView y, std::int64_t first_row) {
  Site& s = site(ref);
  pass_.flops += product_flops(s, y);
  s.product->fprop(call(s, first_row, s.backward_scratch), x, weight(s), bias, y);
}

TensorView NodeBackward::output_gradient(int index) {
  return value(base::at(node().outputs, index)).gradient;
}

GradientSink NodeBackward::input_gradient(int index) {
  const NodeInput& in = base::at(node().inputs, index);
  if (!in.gradient) return {};
  return {value(in.value).gradient, in.accumulate};
}

GradientSink NodeBackward::gradient(ParameterRef ref) {
  const int parameter = number(ref);
  const TensorView view = pass_.gradients->tensor(parameter);
  if (view.empty()) return {};
  unsigned char& written = base::at(*pass_.written, parameter);
  const bool accumulate = written != 0;
  written = 1;
  return {view, accumulate};
}

void NodeBackward::row_gradient(ParameterRef ref, std::span<const std::int64_t> ids, TensorView values) {
  pass_.rows->add(number(ref), ids, values);
}

void NodeBackward::dgrad(SiteRef ref, TensorView dy, TensorView dx, bool accumulate, std::int64_t first_row) {
  Site& s = site(ref);
  pass_.flops += product_flops(s, dy);
  s.product->dgrad(call(s, first_row, s.backward_scratch), dy, weight(s), dx, accumulate);
}

void NodeBackward::wgrad(SiteRef ref, TensorView x, TensorView dy, bool accumulate, std::int64_t first_row) {
  Site& s = site(ref);
  TensorView dw = pass_.gradients->tensor(s.parameter);
  if (dw.empty()) return;
  pass_.flops += product_flops(s, dy);
  dw = rows_of_site(s, dw);
  if (!s.product->reads_input()) {
    x = {};
  } else if (x.empty() && s.declared.input >= 0) {
    const TensorView whole = input(s.declared.input);
    x = whole.reshaped(Shape{whole.elements() / s.declared.k, s.declared.k});
    if (x.shape[0] != dy.shape[0]) x = x.rows(first_row, first_row + dy.shape[0]);
  }
  s.product->wgrad(call(s, first_row, s.backward_scratch), x, dy, dw, accumulate);
}

}  // namespace tenon::graph

TENON_ABI_BEGIN

bool takes_images(RunContext& context, SiteRef site) {
  const auto* facts = dynamic_cast<graph::SiteFacts*>(&context);
  return facts != nullptr && facts->takes_images(site);
}

TENON_ABI_END
