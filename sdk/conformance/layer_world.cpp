#include "layer_world.hpp"

#include "absorb.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tenon::conformance {
namespace {

using testing::LayerHarness;
using testing::TestField;

/// y = x, keeping nothing, so that the memory around it can be reused.
class Copy final : public Layer {
 public:
  void infer(InferContext& context) override {
    device_ = &context.device();
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override { device_->copy(context.input(0), context.output(0)); }
  void backward(BackwardContext& context) override {
    const GradientSink sink = context.input_gradient(0);
    if (sink.view.empty()) return;
    Numbers sum = testing::read(*device_, context.output_gradient(0));
    if (sum.empty()) sum.resize(sink.view.elements());
    if (sink.accumulate) {
      const Numbers before = testing::read(*device_, sink.view);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
    }
    testing::write(*device_, sink.view, sum);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  Device* device_ = nullptr;
};

struct CopyOwner final : LayerOwner {
  Layer& layer() override { return copy; }
  Copy copy;
};

struct PartOwner final : LayerOwner {
  explicit PartOwner(std::string_view node) : part(node) {}
  Layer& layer() override { return part; }
  Absorb part;
};

struct SubjectOwner final : LayerOwner {
  SubjectOwner(testing::Made<Layer> layer, const tenon_port_v1* const* declared)
      : made(std::move(layer)), declared_ports(declared) {}
  Layer& layer() override { return *made; }
  const tenon_port_v1* const* ports() const override { return declared_ports; }
  testing::Made<Layer> made;
  const tenon_port_v1* const* declared_ports;
};

class Collected final : public MetricReport {
 public:
  void value(std::string_view, double value) override { values.push_back(value); }
  void undefined(std::string_view, std::string_view) override { values.push_back(-12345); }
  Numbers values;
};

constexpr int kCopies = 5;

}  // namespace

class LayerWorld::Factory final : public LayerFactory {
 public:
  explicit Factory(Subject& subject) : subject_(subject) {}
  std::unique_ptr<LayerOwner> create(const NodeSpec& node) override {
    if (node.type == "copy") return std::make_unique<CopyOwner>();
    if (node.type == "part") return std::make_unique<PartOwner>(node.name);
    if (node.name == "subject") {
      auto owner = std::make_unique<SubjectOwner>(
          subject_.make<Layer>(),
          subject_.registry().find(subject_.kind(), subject_.type()).component->ports);
      newest_ = &owner->layer();
      return owner;
    }
    return subject_.layers().create(node);
  }
  Layer& newest() const { return *newest_; }

 private:
  Subject& subject_;
  Layer* newest_ = nullptr;
};

bool LayerWorld::offers(std::string_view interface_id) const {
  return static_cast<const Factory&>(*factory_).newest().query(interface_id) != nullptr;
}

LayerWorld::LayerWorld(Subject& subject) : subject_(subject), factory_(std::make_unique<Factory>(subject)) {
  {
    const testing::Made<Layer> layer = subject.make<Layer>();
    const auto* loss = static_cast<LossLayer*>(layer->query(LossLayer::kId));
    metric_ = layer->query(MetricLayer::kId) != nullptr;
    if (loss != nullptr) ending_ = loss->metric() == "loss" ? Ending::kLoss : Ending::kBeside;
    if (metric_) ending_ = Ending::kBeside;
  }
  std::string refusals, last;
  for (const std::vector<Input>& inputs : subject.inputs_to_try()) {
    try {
      build({}, inputs, outputs_);
      inputs_ = inputs;
      find_outputs();
      return;
    } catch (const Error& error) {
      last = error.kind() == ErrorKind::kConfig ? error.what() : "";
      refusals += std::string("\n  ") + error.what();
    }
    // What it takes in f32 it refuses for the format.
    if (!last.empty() && takes_in_f32(inputs))
      not_applicable("it refuses f64, in which layers are tested: " + last);
  }
  fail(fmt::format(
      "{} took none of the inputs that it was offered in f64; write a [[case]] with its inputs in "
      "conformance.toml. Tried:{}",
      subject.component(), refusals));
}

bool LayerWorld::takes_in_f32(const std::vector<Input>& inputs) {
  try {
    build({.precision = "fp32"}, inputs, outputs_);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void LayerWorld::find_outputs() {
  while (ending_ == Ending::kPulled) {
    std::vector<std::string> more = outputs_;
    more.push_back(fmt::format("subject:{}", more.size()));
    try {
      build({}, inputs_, more);
    } catch (const Error&) {
      return;
    }
    outputs_ = more;
  }
}

std::unique_ptr<LayerHarness> LayerWorld::build(const LayerBuild& how) {
  return build(how, inputs_, outputs_);
}

void LayerWorld::try_inputs(const std::vector<Input>& inputs) {
  build({}, inputs, outputs_);
}

std::unique_ptr<LayerHarness> LayerWorld::build(const LayerBuild& how, const std::vector<Input>& inputs,
                                                const std::vector<std::string>& outputs) {
  std::vector<NodeSpec> nodes;
  std::vector<TestField> fields;
  std::vector<std::string> pulled, real_fields;
  NodeSpec node{"subject", "subject", {}, {}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Input input = inputs[i];
    if (how.batch > 0) input.shape[0] = how.batch;
    if (how.time > 0) input.shape[1] = how.time;
    fields.push_back({field(i), Shape(std::span<const std::int64_t>(input.shape)),
                      input.real ? DType::kF64 : DType::kI32, draw(input, i, how.draw)});
    node.inputs.push_back(field(i));
    if (!input.real) continue;
    real_fields.push_back(field(i));
    if (how.surrounded) {
      nodes.push_back({"before_" + field(i), "copy", {field(i)}, {}});
      node.inputs.back() = nodes.back().name;
    }
    if (input.loss) {
      nodes.push_back({"loss_of_" + field(i), "part", {node.inputs.back()}, {}});
      node.inputs.back() = nodes.back().name;
    }
  }
  nodes.push_back(node);
  if (ending_ == Ending::kPulled && how.positions == 0) pulled = outputs;
  for (std::size_t i = 0; i < pulled.size() && how.surrounded; ++i) {
    for (int copy = 0; copy < kCopies; ++copy) {
      nodes.push_back({fmt::format("behind{}_{}", i, copy), "copy", {pulled[i]}, {}});
      pulled[i] = nodes.back().name;
    }
  }
  if (ending_ == Ending::kBeside && real_fields.empty()) {
    const std::int64_t batch = fields.empty() ? 2 : fields[0].shape[0];
    fields.push_back({"beside", {batch, 2}, DType::kF64, {}});
    fields.back().values.assign(fields.back().shape.elements(), 1.0);
    real_fields.push_back("beside");
  }
  if (ending_ == Ending::kBeside || (how.shared_inputs && ending_ == Ending::kPulled))
    pulled.insert(pulled.end(), real_fields.begin(), real_fields.end());
  if (fields.empty()) fields.push_back({"nobody_reads", {2, 2}, DType::kF64, {1, 2, 3, 4}});

  precisions_.push_back(subject_.shipped<Precision>(how.precision, ""));
  return std::make_unique<LayerHarness>(
      testing::HarnessSpec{.layers = factory_.get(),
                           .device = how.device == nullptr ? &subject_.device(how.kernels) : how.device,
                           .host = &subject_.host(),
                           .precision = &*precisions_.back(),
                           .training = how.training,
                           .keep_values = how.keep_values,
                           .positions = how.positions},
      nodes, pulled, fields);
}

// Real numbers are apart from each other and from zero, in random order, so that neither a difference nor a
// rounding changes which is greater.
Numbers LayerWorld::draw(const Input& input, std::size_t number, int draw) const {
  std::int64_t count = 1;
  for (const std::int64_t extent : input.shape) count *= extent;
  const RandomKey key = random_key(subject_.seed(), fmt::format("input {} draw {}", number, draw));
  Numbers values(static_cast<std::size_t>(count));
  if (!input.real) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(random_below(key, 0, i, static_cast<std::uint64_t>(input.below)));
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        (static_cast<double>(i) + 0.5 - static_cast<double>(count) / 2) * 4 / static_cast<double>(count);
  if (count == 1) values[0] = 0.7;
  for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[random_below(key, 0, i, i + 1)]);
  return values;
}

void LayerWorld::load(LayerHarness& harness, int draw) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    harness.set_field(field(i), this->draw(inputs_[i], i, draw));
}

Numbers LayerWorld::look(LayerHarness& harness, const RunSpec& run) {
  Numbers all;
  const auto add = [&](const Numbers& values) { all.insert(all.end(), values.begin(), values.end()); };
  if (metric_) harness.executor().begin_metrics();
  harness.forward(run);
  if (metric_) {
    RunSpec evaluation = run;
    evaluation.training = false;
    harness.forward(evaluation);
    Collected collected;
    harness.executor().finish_metrics(nullptr, collected);
    add(collected.values);
  }
  if (ending_ == Ending::kPulled) {
    for (const std::string& output : outputs_) add(harness.value(output));
  }
  for (const LossValue& loss : harness.executor().losses()) add({loss.sum, loss.count});
  return all;
}

NamedNumbers LayerWorld::gradients(LayerHarness& harness, const RunSpec& run) {
  harness.forward(run);
  harness.backward(1.0, true);
  return harness.all_gradients();
}

void same_gradients(const NamedNumbers& found, const NamedNumbers& expected, const std::string& what) {
  for (const auto& [name, values] : expected) {
    const auto other = found.find(name);
    if (other == found.end() || other->second != values) fail(fmt::format("{} (gradient of {})", what, name));
  }
}

}  // namespace tenon::conformance
