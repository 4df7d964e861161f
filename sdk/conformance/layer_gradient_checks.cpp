// Checks of contract layer/1: backward, losses and metrics.
#include "layer_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::conformance {
namespace {

using testing::LayerHarness;

/// Elements of a tensor that are compared; the others are not checked.
constexpr std::size_t kMostElements = 160;

/// Five-point difference of the loss with respect to one element of a field or parameter.
class Slope {
 public:
  Slope(LayerHarness& harness, const std::string& name, bool is_field)
      : harness_(harness),
        name_(name),
        is_field_(is_field),
        start_(is_field ? harness.field(name) : harness.parameter(name)),
        moved_(start_) {}
  ~Slope() { set(start_); }
  std::size_t size() const { return start_.size(); }
  double at(std::size_t element, double h) {
    const auto loss = [&](double shift) {
      moved_[element] = start_[element] + shift;
      set(moved_);
      moved_[element] = start_[element];
      return harness_.forward();
    };
    return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
  }

 private:
  void set(const Numbers& values) {
    is_field_ ? harness_.set_field(name_, values) : harness_.set_parameter(name_, values);
  }
  LayerHarness& harness_;
  std::string name_;
  bool is_field_;
  Numbers start_, moved_;
};

double largest(const Numbers& values) {
  double found = 0;
  for (const double value : values) found = std::max(found, std::abs(value));
  return found;
}

// With h = 1e-3 the differences carry about 1e-12 of truncation and 1e-13 of rounding, relative to a loss of
// 1. A second, shorter h decides where the first one crossed a kink.
void gradients(Subject& subject) {
  constexpr double kBound = 1e-6;
  LayerWorld world(subject);
  for (int draw = 0; draw < 2; ++draw) {
    const auto harness = world.build({.draw = draw});
    const double loss = harness->forward();
    harness->backward(1.0, true);
    for (const auto& [name, analytic] : harness->all_gradients()) {
      const bool is_field = std::any_of(harness->fields().begin(), harness->fields().end(),
                                        [&, n = name](const auto& field) { return field.name == n; });
      Slope slope(*harness, name, is_field);
      if (analytic.size() != slope.size()) fail(fmt::format("no gradient of {} was written", name));
      const double allowed = kBound * largest(analytic) + 1e-9 * (1 + std::abs(loss));
      const std::size_t stride = std::max<std::size_t>(1, analytic.size() / kMostElements);
      for (std::size_t i = 0; i < analytic.size(); i += stride) {
        double numeric = 0;
        const bool right = [&] {
          for (const double h : {1e-3, 1e-5}) {
            numeric = slope.at(i, h);
            if (std::abs(numeric - analytic[i]) <= allowed + (h < 1e-4 ? 1e-8 * (1 + std::abs(loss)) : 0))
              return true;
          }
          return false;
        }();
        if (!right) {
          fail(fmt::format(
              "gradient of {}, element {}: backward says {:.9g}, differences of forward say {:.9g} "
              "(f64, bound {:.2g})",
              name, i, analytic[i], numeric, allowed));
        }
      }
    }
  }
}

void adds_micro_batches(Subject& subject) {
  LayerWorld world(subject);
  const auto harness = world.build({});
  const auto run = [&](int micro, bool first) {
    world.load(*harness, micro);
    harness->forward({.micro = micro, .micros = 2});
    harness->backward(0.5, first);
    return harness->all_gradients();
  };
  const NamedNumbers a = run(0, true), b = run(1, true);
  run(0, true);
  run(1, false);
  bool any = false;
  for (const ParameterInfo& info : harness->executor().parameters()) {
    if (info.spec.role == Role::kBuffer || !info.spec.trainable) continue;
    any = true;
    Numbers sum = a.at(info.spec.name);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b.at(info.spec.name)[i];
    if (testing::relative_error(harness->gradient(info.spec.name), sum) > 1e-12) {
      fail(
          fmt::format("the gradient of parameter {} after two micro-batches is not the sum of both: add to "
                      "it where the sink says accumulate",
                      info.spec.name));
    }
  }
  if (!any) not_applicable("it has no parameters");
}

void adds_to_shared_inputs(Subject& subject) {
  LayerWorld world(subject);
  if (!world.has_outputs()) not_applicable("it is a loss or a metric, and the last reader of its inputs");
  const auto alone = world.build({}), shared = world.build({.shared_inputs = true});
  const NamedNumbers expected = LayerWorld::gradients(*alone, {}), found = LayerWorld::gradients(*shared, {});
  bool any = false;
  for (const auto& [name, gradient] : expected) {
    if (!name.starts_with("in")) continue;
    any = true;
    Numbers sum = gradient;
    const Numbers other = shared->field("d_" + name);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    if (testing::relative_error(found.at(name), sum) > 1e-12) {
      fail(
          fmt::format("the gradient of {}, which another node reads as well, is not the sum of both: add to "
                      "it where the sink says accumulate",
                      name));
    }
  }
  if (!any) not_applicable("it has no real inputs");
}

void keeps_what_it_reads(Subject& subject) {
  LayerWorld world(subject);
  const auto kept = world.build({.surrounded = true}),
             reused = world.build({.keep_values = false, .surrounded = true});
  same_gradients(LayerWorld::gradients(*reused, {}), LayerWorld::gradients(*kept, {}),
                 "gradients change when memory is reused between forward and backward: declare with "
                 "keep_input, keep_output or saved() what backward reads");
}

double norm(const Numbers& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const Numbers& a, const Numbers& b) {
  Numbers difference = a;
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return norm(difference);
}

// Bounds on the error relative to the tensor's norm: about a thousand roundings of 2^-24 in float32, and
// thirty of 2^-9 in bfloat16, where errors of that size are not alike.
void agrees_in_other_formats(Subject& subject) {
  const struct {
    const char *precision, *kernels;
    double bound;
  } formats[] = {{"fp32", "reference", 1e-4}, {"fp32", "auto", 1e-4}, {"bf16", "auto", 0.06}};
  LayerWorld world(subject);
  for (const auto& format : formats) {
    const auto exact = world.build({});
    const auto rough = world.build({.precision = format.precision, .kernels = format.kernels});
    // Both use the same numbers, which the rough graph represents exactly.
    for (std::size_t i = 0; i < exact->fields().size(); ++i) {
      const std::string name = exact->fields()[i].name;
      if (dtype_is_real(exact->fields()[i].dtype))
        exact->set_field(name, testing::read(subject.device(format.kernels), rough->executor().inputs()[i]));
    }
    for (const ParameterInfo& info : exact->executor().parameters())
      exact->set_parameter(info.spec.name, rough->parameter(info.spec.name));
    const NamedNumbers expected = LayerWorld::gradients(*exact, {}),
                       found = LayerWorld::gradients(*rough, {});
    for (const auto& [name, values] : expected) {
      const double error = distance(found.at(name), values);
      if (!(error <= format.bound * norm(values) + 1e-12)) {
        fail(
            fmt::format("gradient of {} with precision {} and {} kernels is off by {:.2g} of its norm from "
                        "the one in f64; the bound is {:.2g}",
                        name, format.precision, format.kernels, error / norm(values), format.bound));
      }
    }
    const Numbers outputs = world.look(*rough, {}), wanted = world.look(*exact, {});
    const double error = distance(outputs, wanted);
    if (!(error <= format.bound * norm(wanted) + 1e-12)) {
      fail(fmt::format(
          "outputs with precision {} and {} kernels are off by {:.2g} of their norm from those in "
          "f64; the bound is {:.2g}",
          format.precision, format.kernels, error / norm(wanted), format.bound));
    }
  }
}

void follows_its_seed(Subject& subject) {
  LayerWorld world(subject);
  if (!world.is_loss()) not_applicable("it is no trained loss");
  const auto harness = world.build({});
  const NamedNumbers once = LayerWorld::gradients(*harness, {});
  harness->forward();
  harness->backward(4.0, true);
  for (const auto& [name, values] : harness->all_gradients()) {
    Numbers expected = once.at(name);
    for (double& value : expected) value *= 4;
    if (testing::relative_error(values, expected) > 1e-12)
      fail(
          fmt::format("gradient of {}: backward with a seed of 4 is not 4 times that with a seed of 1; "
                      "multiply by set_seed()'s value, which carries the loss scale and the samples",
                      name));
  }
}

/// The input that holds targets: the last one, if it is whole-numbered.
std::size_t targets_of(const LayerWorld& world) {
  if (!world.is_loss() || world.inputs().back().real)
    not_applicable("it is no trained loss with whole-numbered targets");
  return world.inputs().size() - 1;
}

void counts_no_padding(Subject& subject) {
  LayerWorld world(subject);
  const std::size_t targets = targets_of(world);
  const auto harness = world.build({});
  const std::size_t batch = world.inputs()[0].shape[0];
  Numbers labels = harness->field(world.field(targets));
  const std::size_t per_sample = labels.size() / batch;
  const auto loss = [&] {
    harness->forward();
    return harness->executor().losses()[0];
  };
  const LossValue full = loss();
  std::fill_n(labels.begin(), per_sample, -1.0);
  harness->set_field(world.field(targets), labels);
  const LossValue padded = loss();
  if (full.count - padded.count != static_cast<double>(per_sample)) {
    fail(fmt::format(
        "with the {} targets of a sample set to -1 the count went from {} to {}; negative targets "
        "are padding and do not count",
        per_sample, full.count, padded.count));
  }
  world.gradients(*harness, {});
  for (std::size_t i = 0; i < targets; ++i) {
    if (!world.inputs()[i].real) continue;
    const Numbers gradient = harness->input_gradient(world.field(i));
    const std::size_t size = gradient.size() / batch;
    if (std::any_of(gradient.begin(), gradient.begin() + static_cast<std::ptrdiff_t>(size),
                    [](double g) { return g != 0; }))
      fail(fmt::format("a sample whose targets are all -1 has a gradient in input {}", i));
    Numbers moved = harness->field(world.field(i));
    for (std::size_t j = 0; j < size; ++j) moved[j] = -2 * moved[j] + 1;
    harness->set_field(world.field(i), moved);
    if (loss().sum != padded.sum)
      fail(fmt::format("input {} of a sample whose targets are all -1 changes the loss", i));
  }
  harness->set_field(world.field(targets), Numbers(labels.size(), -1.0));
  const LossValue none = loss();
  if (none.sum != 0 || none.count != 0)
    fail(fmt::format("with no target that counts the loss is {} of {} targets, expected 0 of 0", none.sum,
                     none.count));
}

void forgets_between_evaluations(Subject& subject) {
  LayerWorld world(subject);
  if (!world.is_metric()) not_applicable("it is no MetricLayer");
  const auto harness = world.build({.training = false});
  const Numbers first = world.look(*harness, {.training = false});
  world.load(*harness, 1);
  world.look(*harness, {.training = false});
  world.load(*harness, 0);
  if (world.look(*harness, {.training = false}) != first)
    fail("the same evaluation gives other values after another one: begin() forgets what was collected");
}

constexpr const char* kLayerGradientKind = Layer::kKind;
constexpr Check kLayerGradientChecks[] = {
    {"layer.gradients", kLayerGradientKind, "backward agrees with differences of forward, in f64", gradients,
     40},
    {"layer.adds_micro_batches", kLayerGradientKind, "parameter gradients of two micro-batches add up",
     adds_micro_batches},
    {"layer.adds_to_shared_inputs", kLayerGradientKind, "input gradients add to those of other readers",
     adds_to_shared_inputs},
    {"layer.keeps_what_it_reads", kLayerGradientKind, "backward reads only what was declared as kept",
     keeps_what_it_reads},
    {"layer.agrees_in_other_formats", kLayerGradientKind,
     "float32 and bfloat16 agree with f64 within their roundings", agrees_in_other_formats},
    {"layer.follows_its_seed", kLayerGradientKind, "gradients of a loss are proportional to its seed",
     follows_its_seed},
    {"layer.counts_no_padding", kLayerGradientKind, "targets below 0 have no part in a loss",
     counts_no_padding},
    {"layer.forgets_between_evaluations", kLayerGradientKind, "a metric begins anew with each evaluation",
     forgets_between_evaluations},
};

}  // namespace

std::span<const Check> layer_gradient_checks() {
  return kLayerGradientChecks;
}

}  // namespace tenon::conformance
