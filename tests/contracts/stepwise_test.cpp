// Rehearses generation from kept state: layers that compute one more position give, step by step, the values
// of the whole sequence, to the bit; sequences that are generated in turns do not meet.
#include "support.hpp"

#include <tenon/executor.hpp>
#include <tenon/stepwise.hpp>
#include <tenon/testing/components.hpp>

#include <cstring>
#include <map>

namespace rehearsal::stepwise_test {
namespace {

using namespace tenon;

constexpr std::int64_t kTokens = 11, kWide = 5, kBatch = 2, kPositions = 7;

/// ids [batch, positions] -> rows of the parameter "NAME.weight" [tokens, width].
class Table final : public Layer, public StepwiseLayer {
 public:
  static constexpr ComponentInfo kInfo{.id = "table", .summary = "a row for each id"};
  explicit Table(const Options&) {}
  void infer(InferContext& context) override {
    ParameterSpec spec =
        vector_parameter(std::string(context.name()) + ".weight", 0, Initializer::kNormal, 1);
    spec.shape = Shape{kTokens, kWide};
    weight_ = context.parameter(spec);
    const Shape ids = context.input(0).shape;
    context.output({Shape{ids[0], ids[1], kWide}, DType::kF32});
  }
  void forward(ForwardContext& context) override {
    look_up(context.input(0), context.parameter(weight_), context.output(0));
  }
  void backward(BackwardContext&) override {}
  void* query(std::string_view id) override {
    return id == kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }

  std::size_t state_bytes(std::int64_t, std::int64_t) const override { return 0; }
  void begin(std::int64_t, std::int64_t, std::span<std::byte>) override {}
  void step(StepContext& context) override {
    look_up(context.input(0), context.parameter(weight_), context.output(0));
  }

 private:
  static void look_up(const TensorView& ids, const TensorView& weight, const TensorView& out) {
    for (std::int64_t i = 0; i < ids.elements(); ++i)
      std::copy_n(weight.as<float>() + ids.as<std::int32_t>()[i] * kWide, kWide, out.as<float>() + i * kWide);
  }
  ParameterRef weight_;
};

/// [batch, positions, width] -> at each position scale * the sum of the input up to it.
class RunningSum final : public Layer, public StepwiseLayer {
 public:
  static constexpr ComponentInfo kInfo{.id = "running_sum", .summary = "sums up to a position"};
  explicit RunningSum(const Options&) {}
  void infer(InferContext& context) override {
    scale_ = context.parameter(
        vector_parameter(std::string(context.name()) + ".scale", kWide, Initializer::kUniform, 2));
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), scale = context.parameter(scale_);
    std::vector<float> sum(kWide);
    for (std::int64_t b = 0; b < x.shape[0]; ++b) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (std::int64_t t = 0; t < x.shape[1]; ++t) {
        const std::int64_t at = (b * x.shape[1] + t) * kWide;
        advance(x.as<float>() + at, scale.as<float>(), sum.data(), context.output(0).as<float>() + at);
      }
    }
  }
  void backward(BackwardContext&) override {}
  void* query(std::string_view id) override {
    return id == kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }

  std::size_t state_bytes(std::int64_t batch, std::int64_t) const override {
    return static_cast<std::size_t>(batch * kWide) * sizeof(float);
  }
  void begin(std::int64_t, std::int64_t, std::span<std::byte> state) override {
    std::memset(state.data(), 0, state.size());
  }
  void step(StepContext& context) override {
    const TensorView x = context.input(0), scale = context.parameter(scale_);
    auto* const sums = reinterpret_cast<float*>(context.state().data());
    for (std::int64_t b = 0; b < x.shape[0]; ++b)
      advance(x.as<float>() + b * kWide, scale.as<float>(), sums + b * kWide,
              context.output(0).as<float>() + b * kWide);
  }

 private:
  static void advance(const float* x, const float* scale, float* sum, float* y) {
    for (std::int64_t j = 0; j < kWide; ++j) {
      sum[j] += x[j];
      y[j] = scale[j] * sum[j];
    }
  }
  ParameterRef scale_;
};

/// A layer without the ability.
class Whole final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "whole", .summary = "knows whole sequences alone"};
  explicit Whole(const Options&) {}
  void infer(InferContext& context) override { context.output(context.input(0)); }
  void forward(ForwardContext& context) override {
    std::copy_n(context.input(0).as<float>(), context.input(0).elements(), context.output(0).as<float>());
  }
  void backward(BackwardContext&) override {}
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.stepwise", .version = "1.0.0", .summary = "generation"},
                    Table, RunningSum, Whole)

/// Remembers the layer of each node.
class Remembering final : public LayerFactory {
 public:
  explicit Remembering(LayerFactory& inner) : inner_(inner) {}
  std::unique_ptr<LayerOwner> create(const NodeSpec& node) override {
    auto owner = inner_.create(node);
    layers[node.name] = &owner->layer();
    return owner;
  }
  std::map<std::string, Layer*> layers;

 private:
  LayerFactory& inner_;
};

/// Parameters are those of the set whose names begin with the node's.
class Step final : public StepContext {
 public:
  Step(ParameterSet& weights, std::string node) : weights_(weights), node_(std::move(node)) {}
  std::int64_t position() const override { return position_; }
  TensorView input(int) override { return in; }
  TensorView output(int) override { return out; }
  TensorView parameter(ParameterRef) override {
    for (const ParameterInfo& info : weights_.parameters())
      if (info.spec.name.starts_with(node_ + ".")) return weights_.tensor(info.index);
    return {};
  }
  std::span<std::byte> state() override { return kept; }
  void next() { ++position_; }

  TensorView in, out;
  std::vector<std::byte> kept;

 private:
  ParameterSet& weights_;
  std::string node_;
  std::int64_t position_ = 0;
};

/// The two layers of a graph, one position at a time.
class Generator {
 public:
  Generator(Remembering& made, ParameterSet& weights) : rows_(kBatch * kWide), sums_(kBatch * kWide) {
    for (const char* node : {"rows", "sums"}) {
      auto* const ability = static_cast<StepwiseLayer*>(made.layers.at(node)->query(StepwiseLayer::kId));
      stages_.push_back({ability, std::make_unique<Step>(weights, node)});
      Step& step = *stages_.back().step;
      step.kept.resize(ability->state_bytes(kBatch, kPositions), std::byte{0x7f});
      ability->begin(kBatch, kPositions, step.kept);
    }
  }
  std::vector<float> step(std::vector<std::int32_t> ids) {
    const TensorView rows{rows_.data(), Shape{kBatch, kWide}}, sums{sums_.data(), Shape{kBatch, kWide}};
    stages_[0].step->in = {ids.data(), Shape{kBatch}, DType::kI32};
    stages_[0].step->out = stages_[1].step->in = rows;
    stages_[1].step->out = sums;
    for (Stage& stage : stages_) {
      stage.layer->step(*stage.step);
      stage.step->next();
    }
    return sums_;
  }

 private:
  struct Stage {
    StepwiseLayer* layer;
    std::unique_ptr<Step> step;
  };
  std::vector<Stage> stages_;
  std::vector<float> rows_, sums_;
};

std::int32_t id(int sequence, std::int64_t b, std::int64_t t) {
  return static_cast<std::int32_t>((sequence * 5 + b * 3 + t * t) % kTokens);
}

TEST(Stepwise, StepsGiveTheValuesOfTheWholeSequence) {
  tenon::testing::Bench bench("cpu", "reference", 1);
  bench.registry.add_builtin(plugin);
  Remembering layers(*bench.layers);
  PlainPrecision precision;
  ExecutorSpec spec;
  spec.layers = &layers;
  spec.device = bench.device.component.get();
  spec.host = &bench.host;
  spec.precision = &precision;
  spec.batch = kBatch;
  spec.training = false;
  spec.keep_values = true;
  DataInfo data;
  data.fields = {{"ids", DType::kI32, Shape{kPositions}}};
  Executor executor(spec,
                    {{{"rows", "table", {"ids"}, {}},
                      {"sums", "running_sum", {"rows"}, {}},
                      {"copy", "whole", {"sums"}, {}}}},
                    data);
  const auto weights =
      make_parameter_set("weights", executor.parameters(), *bench.device, SetContents::kEverything);
  initialise(*weights, 5, *bench.device);
  EXPECT_EQ(layers.layers.at("copy")->query(StepwiseLayer::kId), nullptr);

  // Two generations in turns, and afterwards each whole sequence.
  Generator first(layers, *weights), second(layers, *weights);
  std::vector<std::vector<float>> stepped[2];
  for (std::int64_t t = 0; t < kPositions; ++t) {
    stepped[0].push_back(first.step({id(0, 0, t), id(0, 1, t)}));
    stepped[1].push_back(second.step({id(1, 0, t), id(1, 1, t)}));
  }
  EXPECT_NE(stepped[0], stepped[1]);
  for (int sequence = 0; sequence < 2; ++sequence) {
    for (std::int64_t b = 0; b < kBatch; ++b)
      for (std::int64_t t = 0; t < kPositions; ++t)
        executor.inputs()[0].as<std::int32_t>()[b * kPositions + t] = id(sequence, b, t);
    executor.forward(*weights, {.training = false});
    const float* const whole = executor.value("sums").as<float>();
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t t = 0; t < kPositions; ++t)
        EXPECT_EQ(std::memcmp(whole + (b * kPositions + t) * kWide, stepped[sequence][t].data() + b * kWide,
                              kWide * sizeof(float)),
                  0)
            << sequence << ", " << b << ", " << t;
    }
  }
}

}  // namespace
}  // namespace rehearsal::stepwise_test
