// Checks of the contract of models: a blueprint is a pure function of options and data, its graph is
// consistent, and the gradient of the whole is the slope of its loss.
#include "subject.hpp"

#include <tenon/testing/layer_harness.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tenon::conformance {
namespace {

using testing::LayerHarness;
using testing::TestField;

/// The data of a run around the model, and one batch of it.
struct ModelWorld {
  explicit ModelWorld(Subject& subject) : subject(subject), config(subject.run_config({})) {
    subject.registry().add_builtin(world_plugin());
    const Value& table = *config.find("data");
    data = testing::make_from<Dataset>(subject.registry(), subject.host(), table.find("type")->text(), table);
    data->open(subject.seed());
    for (const DataField& field : data->info().fields) {
      std::vector<std::int64_t> extents{data->batch()};
      for (const std::int64_t extent : field.shape.extents()) extents.push_back(extent);
      const Shape shape{std::span<const std::int64_t>(extents)};
      memory.emplace_back(static_cast<std::size_t>(dtype_bytes(field.dtype, shape.elements())));
      views.push_back({memory.back().data(), shape, field.dtype, MemorySpace::kHost});
    }
    data->read({Split::kTrain, 0, data->batch()}, views);
  }

  GraphSpec build() { return subject.make<Model>()->build(data->info()); }

  /// The model's graph in f64 on plain loops, with the batch in its fields.
  std::unique_ptr<LayerHarness> harness() {
    precision = subject.shipped<Precision>("fp64", "");
    std::vector<TestField> fields;
    for (std::size_t i = 0; i < views.size(); ++i) {
      const DataField& field = data->info().fields[i];
      fields.push_back(
          {field.name, views[i].shape, field.dtype, testing::to_doubles(field.dtype, memory[i])});
    }
    return std::make_unique<LayerHarness>(testing::HarnessSpec{.layers = &subject.layers(),
                                                               .device = &subject.device("reference"),
                                                               .host = &subject.host(),
                                                               .precision = &*precision},
                                          build().nodes, std::vector<std::string>{}, std::move(fields));
  }

  Subject& subject;
  Config config;
  testing::Made<Dataset> data;
  testing::Made<Precision> precision;
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorView> views;
};

bool equal(const NodeSpec& a, const NodeSpec& b) {
  const auto same_option = [](const NamedOption& left, const NamedOption& right) {
    return left.name == right.name && left.value == right.value;
  };
  return a.name == b.name && a.type == b.type && a.inputs == b.inputs &&
         std::equal(a.options.begin(), a.options.end(), b.options.begin(), b.options.end(), same_option);
}

void builds_the_same_again(Subject& subject) {
  ModelWorld world(subject);
  const testing::Made<Model> model = subject.make<Model>();
  const GraphSpec first = model->build(world.data->info());
  for (const GraphSpec& again : {model->build(world.data->info()), world.build()}) {
    if (again.nodes.size() != first.nodes.size()) {
      fail(fmt::format("build() gave {} nodes, and {} when asked again with the same data",
                       first.nodes.size(), again.nodes.size()));
    }
    for (std::size_t i = 0; i < first.nodes.size(); ++i) {
      if (equal(first.nodes[i], again.nodes[i])) continue;
      fail(fmt::format("build() gave another node {} ('{}' of type {}) when asked again with the same data",
                       i, again.nodes[i].name, again.nodes[i].type));
    }
  }
}

void uses_all_its_nodes(Subject& subject) {
  ModelWorld world(subject);
  const GraphSpec graph = world.build();
  std::set<std::string> read;
  for (const NodeSpec& node : graph.nodes) {
    for (const std::string& input : node.inputs) read.insert(input.substr(0, input.find(':')));
  }
  for (const NodeSpec& node : graph.nodes) {
    const auto owner = subject.layers().create(node);
    Layer& layer = owner->layer();
    const bool ends = layer.query(LossLayer::kId) != nullptr || layer.query(MetricLayer::kId) != nullptr;
    if (!ends && read.count(node.name) == 0) {
      fail(
          fmt::format("nobody reads node '{}' ({}), and it is no loss or metric: connect it, or leave it out",
                      node.name, node.type));
    }
  }
}

void trains_every_parameter(Subject& subject) {
  ModelWorld world(subject);
  const auto harness = world.harness();
  harness->forward();
  harness->backward(1.0, true);
  std::string untouched;
  for (const ParameterInfo& info : harness->executor().parameters()) {
    if (!info.spec.trainable || info.spec.role == Role::kBuffer) continue;
    const std::vector<double> gradient = harness->gradient(info.spec.name);
    if (std::all_of(gradient.begin(), gradient.end(), [](double g) { return g == 0; }))
      untouched += " " + info.spec.name;
  }
  if (!untouched.empty())
    fail("trainable parameters whose gradient is zero on a batch of random data:" + untouched);
}

// Along its own gradient a loss must rise as the gradient's length says: one pair of forwards tests all
// parameters at once.
void slope_is_its_gradient(Subject& subject) {
  ModelWorld world(subject);
  const auto harness = world.harness();
  harness->forward();
  harness->backward(1.0, true);
  struct Part {
    std::string name;
    std::vector<double> start, gradient;
  };
  std::vector<Part> parts;
  double square = 0, weight = 0;
  for (const ParameterInfo& info : harness->executor().parameters()) {
    if (!info.spec.trainable || info.spec.role == Role::kBuffer) continue;
    Part& part = parts.emplace_back(
        Part{info.spec.name, harness->parameter(info.spec.name), harness->gradient(info.spec.name)});
    for (const double g : part.gradient) square += g * g;
    for (const double w : part.start) weight += w * w;
  }
  if (!(square > 0) || !std::isfinite(square))
    fail(fmt::format("the squared norm of the gradient is {}", square));
  const double step = 1e-8 * std::sqrt((1 + weight) / square);
  const auto loss_at = [&](double shift) {
    for (const Part& part : parts) {
      std::vector<double> moved = part.start;
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += shift * part.gradient[i];
      harness->set_parameter(part.name, moved);
    }
    return harness->forward();
  };
  // The step is short, so that corners (relu, pooling) are rarely between the points; f64 leaves seven digits
  // of the difference.
  const double slope =
      (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
  const double error = std::abs(slope - square) / square;
  if (!(error < 1e-3)) {
    fail(
        fmt::format("along the gradient the loss rises by {:.8g} per unit, the gradient says {:.8g}: "
                    "relative error {:.2g}, "
                    "expected below 1e-3",
                    slope, square, error));
  }
}

void refuses_strange_data(Subject& subject) {
  DataInfo nothing;
  nothing.train_samples = 8;
  nothing.val_samples = 8;
  DataInfo strange = nothing;
  strange.fields = {{"conformance_a", DType::kU8, {3}}, {"conformance_b", DType::kC64, {2, 2}}};
  for (const DataInfo& data : {nothing, strange}) {
    const std::string what =
        data.fields.empty() ? "data without fields" : "data with fields that no model knows";
    try {
      subject.make<Model>()->build(data);  // a model that needs no fields may build
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kConfig) continue;
      fail(fmt::format("{}: expected fail_config with what is missing, found: {}", what, error.what()));
    } catch (const std::exception& error) {
      fail(fmt::format("{}: expected fail_config with what is missing, found an exception: {}", what,
                       error.what()));
    }
  }
}

constexpr Check kModelChecks[] = {
    {"model.builds_the_same_again", "model/1", "the graph follows from options and data alone",
     builds_the_same_again},
    {"model.uses_all_its_nodes", "model/1", "every node is read, or is a loss or a metric",
     uses_all_its_nodes},
    {"model.trains_every_parameter", "model/1", "every trainable parameter has a gradient",
     trains_every_parameter, 60},
    {"model.slope_is_its_gradient", "model/1", "the loss rises along the gradient as the gradient says",
     slope_is_its_gradient, 60},
    {"model.refuses_strange_data", "model/1", "data that does not fit is a configuration error",
     refuses_strange_data},
};

}  // namespace

std::span<const Check> model_checks() {
  return kModelChecks;
}

}  // namespace tenon::conformance
