// Totals of a model by hand: parts by name, keys that positions see, the table and the JSON.
#include "report/model_shapes.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace tenon::report::model_shapes_test {
namespace {

using ::testing::HasSubstr;

TEST(ModelShapes, PartsAreNamesWithoutNumbers) {
  const struct {
    const char *node, *part, *layer;
  } cases[] = {
      {"model.layers.3.self_attn.q_proj", "model.layers.*.self_attn", "model.layers.3"},
      {"model.layers.12.norm", "model.layers.*.norm", "model.layers.12"},
      {"transformer.h.0.attn.attention.q_proj", "transformer.h.*.attn", "transformer.h.0"},
      {"lm_head", "lm_head", ""},
      {"model.norm", "model.norm", ""},
      {"blocks.7", "blocks.*", "blocks.7"},
      {"conv2.a", "conv2.a", ""},
      {"0.a.1.b", "*.a", "0"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(part_of_node(c.node), c.part);
    EXPECT_EQ(layer_of_node(c.node), c.layer);
  }
}

TEST(ModelShapes, KeysAreCountedOverPositions) {
  for (const std::int64_t context : {1, 2, 7, 64}) {
    for (const std::int64_t window : {0, 1, 2, 6, 7, 8, 100}) {
      double seen = 0;
      for (std::int64_t t = 0; t < context; ++t)
        seen += static_cast<double>(window == 0 ? t + 1 : std::min(t + 1, window));
      EXPECT_DOUBLE_EQ(mean_keys(context, window), seen / static_cast<double>(context))
          << context << " " << window;
    }
  }
}

ModelShapes sample() {
  ModelShapes shapes{"decoder", 100, "bf16", {}, 1'500};
  shapes.parts = {
      {"embed", 1, 1'000, 0, 0, 0}, {"h.*.attn", 2, 400, 64, 3'200, 1.5e3}, {"head", 1, 200, 0, 0, 500}};
  return shapes;
}

TEST(ModelShapes, TextHasTotalsAndParts) {
  const std::string text = shapes_text(sample());
  for (const char* part :
       {"model decoder: 1,600 parameters, 1,500 of them trained",
        "key-value cache in bf16: 64 bytes per token, 3.125 KiB for a context of 100 tokens",
        "FLOPs per token of such a context: 2000 forward, 6000 training",
        "h.*.attn  2       400         64                 1500",
        "total             1,600       64                 2000"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(text.find("state"), std::string::npos);
  ModelShapes with_state = sample();
  with_state.parts[0].state_bytes = 1024, with_state.parts[2].state_bytes = 512;
  EXPECT_THAT(shapes_text(with_state), HasSubstr("100 tokens\nstate: 1.5 KiB, whatever the context\nFLOPs"));
  EXPECT_EQ(nlohmann::json::parse(shapes_json(with_state))["state_bytes"], 1536);
}

TEST(ModelShapes, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(shapes_json(sample()));
  EXPECT_EQ(json["model"], "decoder");
  EXPECT_EQ(json["parameters"], 1600);
  EXPECT_EQ(json["trained_parameters"], 1500);
  EXPECT_EQ(json["context"], 100);
  EXPECT_EQ(json["activations"], "bf16");
  EXPECT_EQ(json["cache_bytes_per_token"], 64);
  EXPECT_EQ(json["cache_bytes_of_context"], 3200);
  EXPECT_EQ(json["forward_flops_per_token"], 2000.0);
  EXPECT_EQ(json["training_flops_per_token"], 6000.0);
  ASSERT_EQ(json["parts"].size(), 3U);
  EXPECT_EQ(json["parts"][1]["name"], "h.*.attn");
  EXPECT_EQ(json["parts"][1]["layers"], 2);
  EXPECT_EQ(json["parts"][1]["parameters"], 400);
  EXPECT_EQ(json["parts"][1]["cache_bytes_of_context"], 3200);
}

}  // namespace
}  // namespace tenon::report::model_shapes_test
