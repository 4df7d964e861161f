// A second graph over the weights that are being trained: the graph that ends in logits, bound by name to the
// live set, against the same graph over a fresh copy, in every slot and under every precision policy; and
// training, which the second graph must not disturb.
#include <tenon/executor.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace tenon::testing::live_weights_test {
namespace {

constexpr std::int64_t kVocabulary = 61, kContext = 12, kBatch = 3;
constexpr int kSlots = 4;
constexpr const char* kModel = "layers = 2\nwidth = 16\nheads = 2\nwindow = 5\ninit_scale = 0.2";

struct Policy {
  const char* name;
  const char* type;
  const char* toml;
};
void PrintTo(const Policy& policy, std::ostream* out) {
  *out << policy.name;
}

constexpr Policy kPolicies[] = {
    {"fp32", "fp32", ""},
    {"fp64", "fp64", ""},
    {"bf16", "bf16", ""},
    {"fp16", "fp16", ""},
    {"fp8_current", "fp8", "recipe = \"current\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"fp8_delayed", "fp8", "recipe = \"delayed\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"fp8_block", "fp8", "recipe = \"block\"\nkeep_first = 0\nkeep_last = 0\n"},
    {"mxfp8", "mxfp8", "keep_first = 0\nkeep_last = 0\n"},
    {"mxfp4", "mxfp4", "keep_first = 0\nkeep_last = 0\n"},
    {"nvfp4", "nvfp4", "keep_first = 0\nkeep_last = 0\n"},
    {"mor", "mor", "keep_first = 0\nkeep_last = 0\n"},
};

DataInfo text_data() {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {kContext}}, {"targets", DType::kI32, {kContext}}};
  data.attributes = {{"vocabulary", kVocabulary}};
  return data;
}

using Weights = std::vector<std::vector<double>>;

Weights values_of(Device& device, const ParameterSet& set) {
  Weights values;
  for (const ParameterInfo& info : set.parameters()) values.push_back(read(device, set.tensor(info.index)));
  return values;
}

class LiveWeights : public ::testing::TestWithParam<Policy> {
 protected:
  LiveWeights()
      : bench_("cpu", "auto", 1),
        policy_(bench_.make_component<Precision>(GetParam().type, GetParam().toml)),
        model_(bench_.make_component<Model>("gpt_neo", kModel)) {}

  ExecutorSpec spec(bool training, Precision& policy) {
    ExecutorSpec result;
    result.layers = bench_.layers.get(), result.device = &*bench_.device, result.host = &bench_.host;
    result.precision = &policy;
    result.batch = kBatch;
    result.training = training;
    return result;
  }

  LanguageGraph language() {
    return static_cast<LanguageModel*>(model_->query(LanguageModel::kId))->language_graph(text_data());
  }
  std::unique_ptr<Executor> language_executor(Precision& policy) {
    const LanguageGraph graph = language();
    ExecutorSpec outside = spec(false, policy);
    outside.keep = {graph.logits};
    return std::make_unique<Executor>(outside, graph.graph, text_data());
  }

  void fill(Executor& executor, int slot) {
    const std::string name = "slot" + std::to_string(slot);
    write(*bench_.device, executor.inputs()[0], integers(kBatch * kContext, kVocabulary, name));
    write(*bench_.device, executor.inputs()[1], integers(kBatch * kContext, kVocabulary, name + "t"));
  }

  std::vector<double> logits(Executor& executor, ParameterSet& weights, int slot) {
    fill(executor, slot);
    executor.forward(weights, {.slot = slot, .training = false});
    return read(*bench_.device, executor.value("lm_head"));
  }

  /// Logits of a graph of its own over a copy of `weights`, in the copy's own order.
  std::vector<double> logits_of_copy(const ParameterSet& weights, int slot) {
    const auto policy = bench_.make_component<Precision>(GetParam().type, GetParam().toml);
    const auto executor = language_executor(*policy);
    const auto copy =
        make_parameter_set("copy", executor->parameters(), *bench_.device, SetContents::kEverything);
    for (const ParameterInfo& to : copy->parameters()) {
      for (const ParameterInfo& from : weights.parameters()) {
        if (from.spec.name == to.spec.name)
          bench_.device->copy(weights.tensor(from.index), copy->tensor(to.index));
      }
    }
    copy->touch(-1);
    return logits(*executor, *copy, slot);
  }

  /// Trains by plain gradient descent; `between` sees the live weights after every slot. Returns the last
  /// ones.
  Weights train(const std::function<void(ParameterSet&, int)>& between) {
    const auto policy = bench_.make_component<Precision>(GetParam().type, GetParam().toml);
    Executor executor(spec(true, *policy), model_->build(text_data()), text_data());
    const auto weights =
        make_parameter_set("live", executor.parameters(), *bench_.device, SetContents::kEverything);
    const auto gradients =
        make_parameter_set("gradients", executor.parameters(), *bench_.device, SetContents::kGradients);
    initialise(*weights, 1, *bench_.device);
    for (int slot = 0; slot < kSlots; ++slot) {
      fill(executor, slot);
      executor.forward(*weights, {.slot = slot});
      executor.backward(*weights, *gradients, 1.0 / kBatch / kContext, true, {});
      for (const ParameterInfo& info : executor.parameters()) {
        std::vector<double> w = read(*bench_.device, weights->tensor(info.index));
        const std::vector<double> g = read(*bench_.device, gradients->tensor(info.index));
        for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.5 * g[i];
        write(*bench_.device, weights->tensor(info.index), w);
      }
      weights->touch(-1);
      between(*weights, slot);
    }
    return values_of(*bench_.device, *weights);
  }

  Bench bench_;
  Made<Precision> policy_;
  Made<Model> model_;
};

TEST_P(LiveWeights, ALanguageGraphOverThemGivesTheLogitsOfACopy) {
  const auto live = language_executor(*policy_);
  std::vector<std::vector<double>> seen;
  const Weights with = train([&](ParameterSet& weights, int slot) {
    if (slot == 0) live->bind(weights);
    const std::vector<double> found = logits(*live, weights, slot);
    EXPECT_EQ(found, logits_of_copy(weights, slot)) << "after slot " << slot;
    EXPECT_EQ(found, logits(*live, weights, slot)) << "once more";
    seen.push_back(found);
  });
  ASSERT_EQ(seen.size(), std::size_t{kSlots});
  EXPECT_NE(seen[0], seen[1]) << "nothing was learnt, so nothing was compared";
  EXPECT_EQ(with, train([](ParameterSet&, int) {})) << "the second graph disturbed the training";
}

TEST_P(LiveWeights, AGraphIsBoundToOneSetAndThenToAnother) {
  const auto graph = language_executor(*policy_);
  Executor training(spec(true, *policy_), model_->build(text_data()), text_data());
  std::vector<double> before;
  // Each set ends before the next begins, which then often has its memory.
  for (int seed = 1; seed <= 4; ++seed) {
    const auto set =
        make_parameter_set("set", training.parameters(), *bench_.device, SetContents::kEverything);
    initialise(*set, static_cast<std::uint64_t>(seed), *bench_.device);
    graph->bind(*set);
    const std::vector<double> found = logits(*graph, *set, 0);
    EXPECT_EQ(found, logits_of_copy(*set, 0)) << "set " << seed;
    EXPECT_NE(found, before) << "the set before this one was read";
    before = found;
  }
}

TEST_P(LiveWeights, OneBindingServesSetsOfTheSameOrder) {
  const auto graph = language_executor(*policy_);
  Executor training(spec(true, *policy_), model_->build(text_data()), text_data());
  std::vector<std::unique_ptr<ParameterSet>> sets;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    sets.push_back(
        make_parameter_set("set", training.parameters(), *bench_.device, SetContents::kEverything));
    initialise(*sets.back(), seed, *bench_.device);
  }
  graph->bind(*sets[0]);
  for (const std::size_t turn : {0, 1, 0, 1})
    EXPECT_EQ(logits(*graph, *sets[turn], 0), logits_of_copy(*sets[turn], 0)) << "set " << turn;
}

TEST_P(LiveWeights, AWrittenParameterIsReadAgain) {
  const auto graph = language_executor(*policy_);
  Executor training(spec(true, *policy_), model_->build(text_data()), text_data());
  const auto set = make_parameter_set("set", training.parameters(), *bench_.device, SetContents::kEverything);
  initialise(*set, 1, *bench_.device);
  graph->bind(*set);
  logits(*graph, *set, 0);
  for (const char* name : {"transformer.h.0.attn.attention.q_proj.weight", "transformer.h.1.mlp.c_fc.weight",
                           "transformer.wte.weight"}) {
    for (const ParameterInfo& info : set->parameters()) {
      if (info.spec.name != name) continue;
      std::vector<double> values = read(*bench_.device, set->tensor(info.index));
      for (double& value : values) value *= -1.5;
      write(*bench_.device, set->tensor(info.index), values);
      set->touch(info.index);
    }
    EXPECT_EQ(logits(*graph, *set, 0), logits_of_copy(*set, 0)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, LiveWeights, ::testing::ValuesIn(kPolicies),
                         [](const ::testing::TestParamInfo<Policy>& info) {
                           return std::string(info.param.name);
                         });

TEST(BoundSets, EveryPolicyOfTheTreeIsAmongThem) {
  Bench bench("cpu", "reference", 1);
  for (const std::string& id : bench.registry.ids(Precision::kKind)) {
    EXPECT_TRUE(std::any_of(std::begin(kPolicies), std::end(kPolicies), [&](const Policy& policy) {
      return id == policy.type;
    })) << id;
  }
}

/// The training graph or the language graph of a model with these options.
class Graphs {
 public:
  Executor make(const std::string& options, bool training, DType dtype = DType::kF32) {
    auto model = bench_.make_component<Model>("gpt_neo", options);
    policies_.push_back(bench_.make_component<Precision>(dtype == DType::kF64 ? "fp64" : "fp32", ""));
    ExecutorSpec spec;
    spec.layers = bench_.layers.get(), spec.device = &*bench_.device, spec.host = &bench_.host;
    spec.precision = &*policies_.back();
    spec.training = training;
    return Executor(spec,
                    training ? model->build(text_data())
                             : static_cast<LanguageModel*>(model->query(LanguageModel::kId))
                                   ->language_graph(text_data())
                                   .graph,
                    text_data());
  }
  std::unique_ptr<ParameterSet> set(Executor& executor, SetContents contents = SetContents::kEverything) {
    return make_parameter_set("live", executor.parameters(), *bench_.device, contents);
  }

 private:
  Bench bench_{"cpu", "reference", 1};
  std::vector<Made<Precision>> policies_;
};

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BoundSets, EveryDifferenceIsListed) {
  Graphs graphs;
  Executor small = graphs.make("layers = 1\nwidth = 8\nheads = 2", true);
  Executor large = graphs.make("layers = 2\nwidth = 16\nheads = 2", false);
  const auto set = graphs.set(small);
  const std::string error = error_of([&] { large.bind(*set); });
  EXPECT_THAT(error,
              ::testing::StartsWith("a graph cannot read the parameters of 'live'; 30 of 30 differ:\n"));
  EXPECT_THAT(error,
              ::testing::HasSubstr("\n  'transformer.wte.weight': expected parameter f32 [61, 16], found "
                                   "parameter f32 [61, 8]\n"));
  EXPECT_THAT(error,
              ::testing::HasSubstr("\n  'transformer.h.1.ln_1.bias' is missing, expected parameter f32 "
                                   "[16]\n"));
  EXPECT_THAT(error,
              ::testing::EndsWith("\nBind a set that was made for a graph of the same model and precision"));
}

TEST(BoundSets, AnotherDtypeAndASetWithoutMemoryAreRefused) {
  Graphs graphs;
  Executor narrow = graphs.make(kModel, true), wide = graphs.make(kModel, false, DType::kF64),
           same = graphs.make(kModel, false);
  const auto set = graphs.set(narrow);
  EXPECT_THAT(
      error_of([&] { wide.bind(*set); }),
      ::testing::HasSubstr("'transformer.wpe.weight': expected parameter f64 [12, 16], found parameter "
                           "f32 [12, 16]"));
  const auto buffers = graphs.set(narrow, SetContents::kBuffers);
  EXPECT_THAT(error_of([&] { same.bind(*buffers); }),
              ::testing::HasSubstr("'transformer.wpe.weight' has no memory in this set"));
  same.bind(*set);
  EXPECT_THAT(error_of([&] { narrow.bind(*set); }), ::testing::HasSubstr("built for training"));
}

TEST(BoundSets, ForwardRefusesASetOfAnotherSize) {
  Graphs graphs;
  Executor training = graphs.make(kModel, true),
           other = graphs.make("layers = 1\nwidth = 16\nheads = 2", true), graph = graphs.make(kModel, false);
  const auto set = graphs.set(training), wrong = graphs.set(other);
  graph.bind(*set);
  EXPECT_EQ(error_of([&] { graph.forward(*wrong, {.training = false}); }),
            "the graph is bound to sets of 30 parameters, and 'live' has 17; bind it first");
}

}  // namespace
}  // namespace tenon::testing::live_weights_test
