// The decoder against PyTorch (tests/reference/decoder.safetensors): logits, loss and every gradient of
// Llama, Phi-3, a form without positions, layers that differ, and packed documents; mistakes that must not
// match. Its graph, its names, and what it refuses.
#include "graph_lines.hpp"

#include "reference/recorded.hpp"

#include <tenon/sdk/outside_training.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tenon::testing::decoder_test {
namespace {

using decoder::build;
using decoder::line_of;
using decoder::lines_of;
using decoder::text_data;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kVocabulary = 61, kContext = 12, kBatch = 3;

struct RecordedModel {
  const char *name, *options;
  bool packed = false;
};
std::ostream& operator<<(std::ostream& out, const RecordedModel& model) {
  return out << model.name;
}
constexpr const char* kLlama =
    "pattern = '*-'\nrepeat = 2\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\nrope_base = 100.0\n";
constexpr RecordedModel kModels[] = {
    {"llama", kLlama},
    {"llama_tied",
     "pattern = '*-*-'\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\nrope_base = 100.0\ntied = true\n"},
    {"phi3", "pattern = '*-'\nrepeat = 2\nwidth = 16\nheads = 4\nhidden = 20\nwindow = 5\n"},
    {"nope",
     "pattern = '*--*-'\nwidth = 16\nheads = 4\nkv_heads = 1\nhead_width = 6\nhidden = 24\nposition = "
     "'none'\n"
     "ffn = 'squared_relu'\n"},
    {"mixed", R"(
pattern = '*-*-*-'
width = 12
heads = 3
hidden = 16
norm = 'layer'
position = 'learned'
ffn = 'gelu'
bias = ['qkv', 'out', 'ffn']
qk_norm = true
tied = true
[[block]]
at = '*:attention'
bias = ['qkv']
[[block]]
at = '0'
bias = ['qkv', 'out', 'ffn']
[[block]]
at = '2:attention'
heads = 4
kv_heads = 2
head_width = 6
window = 3
position = 'rope'
rope_base = 50.0
bias = []
norm = 'rms'
[[block]]
at = '3'
ffn = 'geglu'
hidden = 10
bias = []
[[block]]
at = '4'
skip = true
)"},
    {"packed",
     "pattern = '*-*-'\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\nrope_base = 100.0\nwindow = 4\n",
     true},
};

/// A model on the recorded batch and weights.
class Twin {
 public:
  Twin(const Recorded& recorded, const RecordedModel& model, const std::string& precision,
       const std::string& kernels, const std::string& options = "")
      : recorded_(recorded),
        model_(model),
        bench_("cpu", kernels, 1),
        precision_(bench_.make_component<Precision>(precision, "")),
        made_(bench_.make_component<Model>("decoder", options + model.options)),
        harness_({.layers = &*bench_.layers,
                  .device = &*bench_.device,
                  .host = &bench_.host,
                  .precision = &*precision_},
                 made_->build(data()).nodes, {}, fields()) {
    load(harness_);
  }

  LayerHarness& harness() { return harness_; }
  std::vector<std::string> parameters() {
    std::vector<std::string> names;
    for (const ParameterInfo& info : harness_.executor().parameters()) names.push_back(info.spec.name);
    return names;
  }
  /// Mean loss, with gradients of it.
  double differentiate() {
    const double sum = harness_.forward(), count = harness_.executor().losses()[0].count;
    harness_.backward(1.0 / count, true);
    return sum / count;
  }
  /// Logits of the graph for language, which has neither documents nor positions.
  std::vector<double> logits() {
    auto& language = *static_cast<LanguageModel*>(made_->query(LanguageModel::kId));
    const LanguageGraph graph = language.language_graph(data());
    HarnessSpec spec;
    spec.layers = &*bench_.layers, spec.device = &*bench_.device, spec.host = &bench_.host;
    spec.precision = &*precision_, spec.training = false;
    LayerHarness harness(spec, graph.graph.nodes, {}, fields());
    load(harness);
    RunSpec run;
    run.training = false;
    harness.forward(run);
    EXPECT_EQ(harness.executor().value(graph.logits).shape, (Shape{kBatch, kContext, kVocabulary}));
    return harness.value(graph.logits);
  }

 private:
  DataInfo data() const { return text_data(kContext, kVocabulary, model_.packed); }
  std::vector<TestField> fields() const {
    std::vector<TestField> fields;
    for (const DataField& field : data().fields)
      fields.push_back({field.name, {kBatch, kContext}, DType::kI32, recorded_.values(field.name)});
    return fields;
  }
  void load(LayerHarness& harness) {
    for (const ParameterInfo& info : harness.executor().parameters())
      harness.set_parameter(info.spec.name,
                            recorded_.values(fmt::format("{}.init.{}", model_.name, info.spec.name)));
  }

  const Recorded& recorded_;
  const RecordedModel& model_;
  Bench bench_;
  Made<Precision> precision_;
  Made<Model> made_;
  LayerHarness harness_;
};

class DecoderAgainstPyTorch : public ::testing::TestWithParam<RecordedModel> {
 protected:
  std::string name(const std::string& tensor) const { return std::string(GetParam().name) + "." + tensor; }
  Recorded recorded_{"decoder"};
};

TEST_P(DecoderAgainstPyTorch, HasItsParametersUnderTheseNames) {
  Twin twin(recorded_, GetParam(), "fp64", "reference");
  std::set<std::string> expected;
  for (const std::string& tensor : recorded_.names()) {
    if (tensor.starts_with(name("init."))) expected.insert(tensor.substr(name("init.").size()));
  }
  const auto names = twin.parameters();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

TEST_P(DecoderAgainstPyTorch, GivesItsLossAndEveryGradient) {
  const struct {
    const char *precision, *kernels, *options;
    double loss, gradients;
  } settings[] = {{"fp64", "reference", "", 1e-13, 1e-12},
                  {"fp64", "reference", "chunk_rows = 5\n", 1e-13, 1e-12},
                  {"fp32", "reference", "", 2e-6, 2e-5},
                  {"fp32", "auto", "", 2e-6, 2e-5}};
  for (const auto& setting : settings) {
    Twin twin(recorded_, GetParam(), setting.precision, setting.kernels, setting.options);
    const double loss = recorded_.values(name("loss"))[0];
    EXPECT_NEAR(twin.differentiate(), loss, setting.loss * loss) << setting.precision;
    for (const std::string& parameter : twin.parameters()) {
      EXPECT_LT(
          relative_error(twin.harness().gradient(parameter), recorded_.values(name("grad." + parameter))),
          setting.gradients)
          << setting.precision << " " << setting.kernels << " " << parameter;
    }
  }
}

TEST_P(DecoderAgainstPyTorch, LanguageGraphGivesItsLogits) {
  Twin twin(recorded_, GetParam(), "fp64", "reference");
  const double error = relative_error(twin.logits(), recorded_.values(name("logits")));
  // Of packed rows a prompt is one document, whose positions follow each other.
  if (GetParam().packed) {
    EXPECT_GT(error, 1e-2);
  } else {
    EXPECT_LT(error, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderAgainstPyTorch, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

// The record would notice a wrong scale, rotation or group: each has another loss.
TEST(Decoder, DiffersFromMistakes) {
  const Recorded recorded("decoder");
  Twin twin(recorded, kModels[0], "fp64", "reference");
  const double loss = twin.differentiate();
  for (const char* wrong : {"unscaled", "neighbours", "keys_not_rotated", "modulo"})
    EXPECT_GT(std::abs(loss - recorded.values(std::string("llama.") + wrong + ".loss")[0]), 1e-3) << wrong;
}

// The graph.

TEST(DecoderGraph, OfLlamaHasTheseNodes) {
  EXPECT_THAT(
      lines_of(build("pattern = '*-'\nwidth = 8\nheads = 4\nkv_heads = 2\nhidden = 12\nrope_base = 500.0\n",
                     text_data(4, 5))),
      ElementsAre(
          "model.embed_tokens embedding(tokens) rows=5 width=8 init_scale=0.02",
          "model.layers.0.norm rms_norm(model.embed_tokens) eps=1e-05",
          "model.layers.0.self_attn.q_proj linear(model.layers.0.norm) features=8 bias=false init_scale=0.02",
          "model.layers.0.self_attn.q_rotary rotary(model.layers.0.self_attn.q_proj) heads=4 base=500",
          "model.layers.0.self_attn.k_proj linear(model.layers.0.norm) features=4 bias=false init_scale=0.02",
          "model.layers.0.self_attn.k_rotary rotary(model.layers.0.self_attn.k_proj) heads=2 base=500",
          "model.layers.0.self_attn.v_proj linear(model.layers.0.norm) features=4 bias=false init_scale=0.02",
          "model.layers.0.self_attn attention(model.layers.0.self_attn.q_rotary, "
          "model.layers.0.self_attn.k_rotary, model.layers.0.self_attn.v_proj) heads=4 kv_heads=2 window=0",
          "model.layers.0.self_attn.o_proj linear(model.layers.0.self_attn) features=8 bias=false "
          "init_scale=0.02",
          "model.layers.0.residual residual(model.embed_tokens, model.layers.0.self_attn.o_proj)",
          "model.layers.1.norm rms_norm(model.layers.0.residual) eps=1e-05",
          "model.layers.1.mlp.gate_proj linear(model.layers.1.norm) features=12 bias=false init_scale=0.02",
          "model.layers.1.mlp.up_proj linear(model.layers.1.norm) features=12 bias=false init_scale=0.02",
          "model.layers.1.mlp.act gate(model.layers.1.mlp.up_proj, model.layers.1.mlp.gate_proj) map=silu",
          "model.layers.1.mlp.down_proj linear(model.layers.1.mlp.act) features=8 bias=false init_scale=0.02",
          "model.layers.1.residual residual(model.layers.0.residual, model.layers.1.mlp.down_proj)",
          "model.norm rms_norm(model.layers.1.residual) eps=1e-05",
          "lm_head head_cross_entropy(model.norm, targets) vocabulary=5 init_scale=0.02 chunk_rows=0"));
}

TEST(DecoderGraph, ReadsDocumentsAndPositionsWhereTheDataHasThem) {
  const GraphSpec graph = build("pattern = '*'\nwidth = 8\nheads = 2\n", text_data(4, 5, true));
  EXPECT_EQ(line_of(graph, "model.layers.0.self_attn.k_rotary"),
            "rotary(model.layers.0.self_attn.k_proj, positions) heads=2 base=10000");
  EXPECT_THAT(line_of(graph, "model.layers.0.self_attn"), HasSubstr("v_proj, documents)"));
  const GraphSpec learned =
      build("pattern = '*'\nwidth = 8\nheads = 2\nposition = 'learned'\n", text_data(4, 5, true));
  EXPECT_THAT(line_of(learned, "model.embed_positions"),
              HasSubstr("positions(model.embed_tokens, positions)"));
}

TEST(DecoderGraph, RoundsTheVocabularyUpAndTiesTheHead) {
  const GraphSpec graph = build(
      "pattern = '-'\nwidth = 8\nhidden = 8\nvocabulary_multiple = 64\ntied = true\nposition = 'learned'\n"
      "context = 9\n",
      text_data(4, 65));
  EXPECT_THAT(line_of(graph, "model.embed_tokens"), HasSubstr("rows=128"));
  EXPECT_THAT(line_of(graph, "model.embed_positions"), HasSubstr("context=9"));
  EXPECT_EQ(line_of(graph, "lm_head"),
            "head_cross_entropy(model.norm, targets) vocabulary=128 init_scale=0.02 chunk_rows=0 "
            "weight=model.embed_tokens.weight");
}

TEST(DecoderGraph, ScalesTheLastMapsOfLayersByDepth) {
  const GraphSpec graph = build(
      "pattern = '*--'\nrepeat = 2\nwidth = 8\nheads = 2\nhidden = 8\ninit_scale = 0.4\ndepth_scaled_init = "
      "true\n"
      "[[block]]\nat = '2'\nskip = true\n[[block]]\nat = '5'\nskip = true\n",
      text_data(4, 5));  // four layers stay: 0.4 / 2
  std::set<std::string> scaled, plain;
  for (const std::string& line : lines_of(graph)) {
    if (line.find("linear(") == std::string::npos && line.find("embedding(") == std::string::npos) continue;
    (line.ends_with("init_scale=0.2") ? scaled : plain).insert(line.substr(0, line.find(' ')));
    EXPECT_THAT(
        line, ::testing::AnyOf(::testing::EndsWith("init_scale=0.2"), ::testing::EndsWith("init_scale=0.4")));
  }
  EXPECT_THAT(scaled, ElementsAre("model.layers.0.self_attn.o_proj", "model.layers.1.mlp.down_proj",
                                  "model.layers.3.self_attn.o_proj", "model.layers.4.mlp.down_proj"));
  EXPECT_EQ(plain.size(), 1U + 2 * 3 + 2 * 2);
}

TEST(DecoderGraph, BlocksChangeTheLayersThatTheyMatchAndNoOther) {
  const GraphSpec graph = build(
      "pattern = '*-'\nrepeat = 6\nwidth = 8\nheads = 4\nhidden = 8\n"
      "[[block]]\nat = '1?:attention'\nwindow = 3\n"
      "[[block]]\nat = '*:ffn'\nhidden = 9\neps = 0.5\n"
      "[[block]]\nat = '3'\nhidden = 10\nffn = 'gelu'\n"
      "[[block]]\nat = '4'\nheads = 2\nkv_heads = 1\nposition = 'none'\n",
      text_data(4, 5));
  std::vector<std::int64_t> windows, hidden;
  for (const NodeSpec& node : graph.nodes) {
    for (const NamedOption& option : node.options) {
      if (node.type == "attention" && option.name == "window")
        windows.push_back(std::get<std::int64_t>(option.value));
      if (node.name.ends_with("up_proj") && option.name == "features")
        hidden.push_back(std::get<std::int64_t>(option.value));
    }
  }
  EXPECT_THAT(windows, ElementsAre(0, 0, 0, 0, 0, 3));
  EXPECT_THAT(hidden, ElementsAre(9, 10, 9, 9, 9, 9));
  EXPECT_THAT(line_of(graph, "model.layers.3.mlp.act"), HasSubstr("gelu("));
  EXPECT_THAT(line_of(graph, "model.layers.5.mlp.act"), HasSubstr("gate("));
  EXPECT_THAT(line_of(graph, "model.layers.3.norm"), HasSubstr("eps=0.5"));
  EXPECT_THAT(line_of(graph, "model.layers.2.norm"), HasSubstr("eps=1e-05"));
  EXPECT_THAT(line_of(graph, "model.layers.4.self_attn"), HasSubstr("heads=2 kv_heads=1"));
  EXPECT_THAT(line_of(graph, "model.layers.4.self_attn"), HasSubstr("(model.layers.4.self_attn.q_proj,"));
  EXPECT_THAT(line_of(graph, "model.layers.6.self_attn"), HasSubstr("heads=4 kv_heads=4"));
}

TEST(DecoderGraph, SkippedLayersLeaveTheNumbersOfOthers) {
  const GraphSpec graph =
      build("pattern = '*-*-'\nwidth = 8\nheads = 2\nhidden = 8\n[[block]]\nat = '1'\nskip = true\n",
            text_data(4, 5));
  EXPECT_EQ(line_of(graph, "model.layers.1.norm"), "");
  EXPECT_THAT(line_of(graph, "model.layers.2.norm"), HasSubstr("(model.layers.0.residual)"));
  EXPECT_NE(line_of(graph, "model.layers.3.mlp.act"), "");
}

TEST(Decoder, RefusesWhatCannotWork) {
  DataInfo images, real_tokens = text_data(4, 5), long_documents = text_data(4, 5, true);
  images.fields = {{"inputs", DType::kF32, {28, 28}}};
  real_tokens.fields[0].dtype = DType::kF32;
  long_documents.fields[2].shape = {5};
  const DataInfo text = text_data(4, 5);
  const std::string full = "pattern = '*-'\nwidth = 8\nheads = 4\nhidden = 8\n";
  const struct {
    std::string options;
    DataInfo data;
    const char* says;
  } cases[] = {
      {"pattern = ''\nwidth = 8\n", text,
       "'pattern' has no layer; expected letters such as \"*-\": * attention, - FFN or M Mamba-2"},
      {"pattern = '*x'\nwidth = 8\n", text,
       "'pattern' has 'x' at 1; expected * attention, - FFN or M Mamba-2"},
      {"pattern = \"*\\n\"\nwidth = 8\n", text, "'pattern' has byte 10 at 1"},
      {"pattern = '-m'\nwidth = 8\n", text,
       "'pattern' has 'm' at 1; expected * attention, - FFN or M Mamba-2"},
      {"pattern = '*-*-*'\nrepeat = 4096\nwidth = 8\n", text,
       "'pattern' of 5 letters, repeated 4096 times, has more than 4096 layers"},
      {"pattern = '-*'\nwidth = 8\nhidden = 8\n", text, "layer 1 (attention): 'heads' is missing"},
      {"pattern = '*-'\nwidth = 8\nheads = 4\n", text, "layer 1 (ffn): 'hidden' is missing"},
      {full + "kv_heads = 3\n", text,
       "layer 0 (attention): 'kv_heads' 3 does not divide 'heads' 4; expected a divisor"},
      {"pattern = '*'\nwidth = 9\nheads = 4\n", text,
       "layer 0 (attention): 'heads' 4 does not divide 'width' 9; expected a divisor, or a 'head_width'"},
      {full + "head_width = 5\n", text,
       "layer 0 (attention): rotary positions turn pairs of elements, so 'head_width' must give an even head "
       "width; found 5"},
      {"pattern = '*'\nwidth = 12\nheads = 4\n", text, "so 'heads' must give an even head width; found 3"},
      {full + "[[block]]\nat = '0'\nkv_heads = 3\n", text,
       "'block' 0 (at \"0\"), layer 0 (attention): 'kv_heads' 3 does not divide 'heads' 4"},
      {full + "[[block]]\nat = '2'\nwindow = 3\n", text,
       "'block' 0 (at \"2\") matches no layer; expected a number from 0 to 1, or a pattern of numbers such "
       "as "
       "* or 1?, and then, for layers of one kind, :attention, :ffn or :mamba"},
      {full + "[[block]]\nat = '1'\nskip = true\n[[block]]\nat = '1:attention'\nskip = true\n", text,
       "'block' 1 (at \"1:attention\") matches no layer"},
      {full + "[[block]]\nat = '*:moe'\nskip = true\n", text,
       "'block' 0 (at \"*:moe\") names the kind 'moe'; expected attention, ffn, mamba"},
      {full + "[[block]]\nat = '*:mamba'\nskip = true\n", text,
       "'block' 0 (at \"*:mamba\") matches no layer"},
      {full + "[[block]]\nat = '*'\nmamba_state = 3\n", text,
       "sets 'mamba_state', which only layers of kind mamba have, and matches none of them"},
      {full + "[[block]]\nat = '*:attention'\nhidden = 3\n", text,
       "'block' 0 (at \"*:attention\") sets 'hidden', which only layers of kind ffn have, and matches none"},
      {full + "[[block]]\nat = '1'\nkv_heads = 1\n", text,
       "sets 'kv_heads', which only layers of kind attention have"},
      {full + "[[block]]\nat = '*'\nskip = true\n", text, "'block' skips every layer"},
      {full + "[[block]]\nat = '*'\nposition = 'learned'\n", text, "position"},
      {full + "ffn = 'relu'\n", text, "ffn"},
      {full + "bias = ['head']\n", text, "bias"},
      {full, images, "needs a data field 'tokens', the data offers: inputs"},
      {full, real_tokens, "'tokens' must be i32 [time], found f32 [4]"},
      {full, long_documents, "data field 'documents' must be i32 [4], as 'tokens' is, found i32 [5]"},
      {full + "context = 3\n", text, "samples have 4 tokens, but 'context' allows 3"},
      {full + "vocabulary = 4\n", text, "'vocabulary' must cover the data's 5 tokens, found 4"},
      {full, text_data(4, 0), "'vocabulary' must cover the data's 0 tokens, found 0"},
      {full + "vocabulary = 2147483647\nvocabulary_multiple = 1000\n", text,
       "'vocabulary' 2147483647 rounded up to a multiple of 1000 has 2147484000 rows"},
  };
  for (const auto& c : cases) {
    try {
      build(c.options, c.data);
      ADD_FAILURE() << "accepted: " << c.options << "; expected an error that says: " << c.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(c.says));
    }
  }
}

}  // namespace
}  // namespace tenon::testing::decoder_test
