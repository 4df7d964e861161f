// Declarations: two of one parameter name are one tied parameter, so they must agree. Run time: handles
// become views, sites get their memory and weights.
#include "graph/contexts.hpp"

#include "base/at.hpp"

#include <tenon/error.hpp>
#include <tenon/layer.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::graph {

const GraphValue& LayerInference::read(int index) const {
  const Node& self = node();
  if (index < 0 || index >= static_cast<int>(self.inputs.size())) {
    fail_config(fmt::format("model node '{}' ({}) needs an input number {}, but only {} are connected",
                            self.spec.name, self.spec.type, index, self.inputs.size()));
  }
  return base::at(build_.values, base::at(self.inputs, index).value);
}

ValueSpec LayerInference::input(int index) const {
  return read(index).spec;
}

std::string_view LayerInference::input_name(int index) const {
  return read(index).name;
}

void LayerInference::output(const ValueSpec& spec) {
  Node& self = node();
  GraphValue value;
  value.name =
      self.outputs.empty() ? self.spec.name : fmt::format("{}:{}", self.spec.name, self.outputs.size());
  for (const GraphValue& other : build_.values) {
    if (other.name == value.name) {
      fail_config(
          fmt::format("the model has two nodes or fields named '{}'; names must be unique", value.name));
    }
  }
  value.spec = spec;
  value.producer = index_;
  self.outputs.push_back(static_cast<int>(build_.values.size()));
  build_.values.push_back(std::move(value));
}

ParameterRef LayerInference::parameter(const ParameterSpec& spec) {
  Node& self = node();
  int found = -1;
  for (std::size_t i = 0; i < build_.declared.size(); ++i) {
    const ParameterSpec& other = build_.declared[i].spec;
    if (other.name != spec.name) continue;
    const Layout first{other.shape, other.sharding}, here{spec.shape, spec.sharding};
    if (!(first == here) || other.dtype != spec.dtype || other.role != spec.role) {
      fail_config(fmt::format(
          "parameter '{}' is declared as {} {} and by node '{}' as {} {}; tied parameters must agree",
          spec.name, dtype_name(other.dtype), layout_text(first), self.spec.name, dtype_name(spec.dtype),
          layout_text(here)));
    }
    found = static_cast<int>(i);
  }
  if (found < 0) {
    found = static_cast<int>(build_.declared.size());
    build_.declared.push_back({spec, 0, 0});
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, spec.name); };
    if (std::ranges::any_of(spec_.frozen, matches)) build_.declared.back().spec.trainable = false;
  }
  self.parameters.push_back(found);
  return {static_cast<int>(self.parameters.size()) - 1};
}

SavedRef LayerInference::saved(const ValueSpec& spec) {
  node().saved.push_back({spec, {}});
  return {static_cast<int>(node().saved.size()) - 1};
}

WorkspaceRef LayerInference::workspace(std::size_t bytes) {
  node().workspaces.push_back({bytes, {}, {}});
  return {static_cast<int>(node().workspaces.size()) - 1};
}

SiteRef LayerInference::linear_site(const SiteSpec& spec) {
  Node& self = node();
  const int number = static_cast<int>(self.sites.size());
  auto site = std::make_unique<Site>(spec_, build_.counter, self.spec.name, number);
  site->declared = spec;
  site->module = std::string(spec.module);
  site->declared.module = site->module;
  site->parameter = self.parameters.at(spec.weight.index);
  const ParameterSpec& weight = base::at(build_.declared, site->parameter).spec;
  const Shape local = local_part(weight, place_of(spec_)).extents;
  const std::int64_t needed = (spec.first_weight_row + spec.n) * spec.k;
  if (spec.k == 0 ? local.elements() != 0 : local.elements() % spec.k != 0 || local.elements() < needed) {
    fail_config(fmt::format(
        "node '{}': a product with n = {}, k = {} needs a weight of {} elements, '{}' has {} here",
        self.spec.name, spec.n, spec.k, needed, weight.name, local.text()));
  }
  if (spec.channels_first && spec.input >= 0)
    fail_plugin(fmt::format("node '{}': a site with channels first cannot name its input", self.spec.name));
  self.sites.push_back(std::move(site));
  return {number};
}

SiteRef LayerInference::convolution_site(const SiteSpec& spec, const ConvolutionSpec& images) {
  const WindowSpec& window = images.window;
  const bool by_points = window.offsets() == 1 && window.places() == window.elements();
  if ((spec.channels_first && !by_points) || spec.input >= 0 || spec.first_weight_row != 0 ||
      spec.n != images.features || spec.m != images.batch * window.places() ||
      spec.k != images.channels * window.offsets()) {
    fail_plugin(
        fmt::format("node '{}': a site with m = {}, n = {}, k = {} is none of images of {} samples, {} "
                    "channels, {} features, {} places and {} offsets, all of the weight, x as rows, or as "
                    "points with channels first",
                    node().spec.name, spec.m, spec.n, spec.k, images.batch, images.channels, images.features,
                    window.places(), window.offsets()));
  }
  const SiteRef site = linear_site(spec);
  node().sites.back()->images = std::make_unique<ConvolutionSpec>(images);
  return site;
}

void LayerInference::keep_output(int index) {
  Node& self = node();
  self.keeps_output.resize(self.outputs.size(), false);
  self.keeps_output.at(index) = true;
}

void LayerInference::passes_gradient(int index) {
  Node& self = node();
  self.passes_gradient.resize(self.inputs.size(), false);
  self.passes_gradient.at(index) = true;
}

bool LayerInference::lend_output(int index, const TensorView& memory) {
  GraphValue& value = base::at(build_.values, node().outputs.at(index));
  const bool fits = memory.shape == value.spec.shape && memory.dtype == value.spec.dtype;
  if (!fits || memory.data == nullptr || memory.space != spec_.device->space()) return false;
  value.lent = memory;
  return true;
}

void LayerInference::offer_epilogue(Epilogue map) {
  node().offered = map;
}

void LayerInference::held(std::string_view what, std::size_t bytes) {
  build_.held.push_back({fmt::format("{}: {}", name(), what), bytes});
}

}  // namespace tenon::graph

TENON_ABI_BEGIN

SiteRef convolution_site(InferContext& context, const SiteSpec& site, const ConvolutionSpec& images) {
  auto* own = dynamic_cast<graph::LayerInference*>(&context);
  return own == nullptr ? context.linear_site(site) : own->convolution_site(site, images);
}

void passes_gradient(InferContext& context, int index) {
  if (auto* own = dynamic_cast<graph::LayerInference*>(&context)) own->passes_gradient(index);
}

bool lend_output(InferContext& context, int index, const TensorView& memory) {
  auto* own = dynamic_cast<graph::LayerInference*>(&context);
  return own != nullptr && own->lend_output(index, memory);
}

TENON_ABI_END

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
  call.weight_version = pass_.weights->version(weight_index(site.parameter));
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
  if (base::at(pass_.build->parameters, number(ref)).spec.trainable)
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
