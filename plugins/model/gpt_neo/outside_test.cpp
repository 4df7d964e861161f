// GPT-Neo for other programs: the graph that ends in logits against PyTorch's logits, and the settings for
// transformers.
#include "reference/recorded.hpp"

#include <tenon/sdk/outside_training.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing::outside_test {
namespace {

constexpr std::int64_t kVocabulary = 61, kContext = 12, kBatch = 3;

DataInfo text_data() {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {kContext}}, {"targets", DType::kI32, {kContext}}};
  data.attributes = {{"vocabulary", kVocabulary}};
  return data;
}

template <typename Interface>
Interface& offered(Made<Model>& model) {
  void* found = model->query(Interface::kId);
  if (found == nullptr) fail_run("gpt_neo does not offer " + std::string(Interface::kId));
  return *static_cast<Interface*>(found);
}

TEST(GptNeoOutside, LanguageGraphGivesPyTorchsLogits) {
  const Recorded recorded("gpt_neo");
  for (const auto& [precision, bound] : {std::pair{"fp64", 1e-13}, std::pair{"fp32", 1e-5}}) {
    Bench bench("cpu", "reference", 1);
    const auto policy = bench.make_component<Precision>(precision, "");
    auto model = bench.make_component<Model>("gpt_neo", "layers = 2\nwidth = 16\nheads = 4\nwindow = 5");
    const LanguageGraph language = offered<LanguageModel>(model).language_graph(text_data());
    HarnessSpec spec;
    spec.layers = bench.layers.get(), spec.device = &*bench.device, spec.host = &bench.host;
    spec.precision = &*policy, spec.training = false;
    const TestField tokens{"tokens", {kBatch, kContext}, DType::kI32, recorded.row("tokens", 0)};
    LayerHarness harness(spec, language.graph.nodes, {}, {tokens});
    for (const ParameterInfo& info : harness.executor().parameters())
      harness.set_parameter(info.spec.name, recorded.values("init." + info.spec.name));
    RunSpec run;
    run.training = false;
    harness.forward(run);
    EXPECT_EQ(harness.executor().value(language.logits).shape, (Shape{kBatch, kContext, kVocabulary}));
    EXPECT_LT(relative_error(harness.value(language.logits), recorded.values("f64.logits")), bound)
        << precision;
  }
}

TEST(GptNeoOutside, TellsTransformersItsSettings) {
  Bench bench("cpu", "auto", 1);
  auto model = bench.make_component<Model>(
      "gpt_neo",
      "layers = 3\nwidth = 16\nheads = 4\nwindow = 5\ncontext = 20\nvocabulary = 64\nmlp_ratio = 2.5\n"
      "activation = \"gelu_exact\"\ndropout = 0.25\nattention = [\"local\", \"global\"]");
  const NamePlan plan = offered<ModelNames>(model).name_plan(text_data());
  EXPECT_TRUE(plan.rules.empty());
  ASSERT_EQ(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].name, "config.json");
  EXPECT_EQ(plan.files[0].text, R"({
  "architectures": ["GPTNeoForCausalLM"],
  "model_type": "gpt_neo",
  "vocab_size": 64,
  "max_position_embeddings": 20,
  "hidden_size": 16,
  "num_layers": 3,
  "num_heads": 4,
  "attention_types": [[["local", "global", "local"], 1]],
  "window_size": 5,
  "intermediate_size": 40,
  "activation_function": "gelu",
  "embed_dropout": 0.25,
  "resid_dropout": 0.25,
  "attention_dropout": 0.0,
  "layer_norm_epsilon": 1e-05,
  "initializer_range": 0.02,
  "tie_word_embeddings": true,
  "bos_token_id": null,
  "eos_token_id": null
}
)");
}

TEST(GptNeoOutside, FoldsTheScaleOfLogitsIntoQueries) {
  Bench bench("cpu", "auto", 1);
  auto model =
      bench.make_component<Model>("gpt_neo", "layers = 2\nwidth = 16\nheads = 4\nscale_logits = true");
  const NamePlan plan = offered<ModelNames>(model).name_plan(text_data());
  ASSERT_EQ(plan.rules.size(), 2u);
  EXPECT_EQ(plan.rules[1].here, std::vector<std::string>{"transformer.h.1.attn.attention.q_proj.weight"});
  EXPECT_EQ(plan.rules[1].there, plan.rules[1].here);
  EXPECT_EQ(plan.rules[1].factor, 0.5);
}

}  // namespace
}  // namespace tenon::testing::outside_test
