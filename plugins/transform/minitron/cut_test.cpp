// Cuts against NumPy and PyTorch (tests/reference/minitron.safetensors), tensor by tensor and by their
// logits; the properties N11 and N12; described models against the decoder that is built from them; what
// cannot be cut.
#include "testing_decoders.hpp"

#include <tenon/config.hpp>

#include <fmt/ranges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tenon::minitron::cut_test {
namespace {

using namespace testing_decoders;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_of(const OptionValue& value) {
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

/// Nodes with names, types, inputs and options, a line each.
std::string text_of(const GraphSpec& graph) {
  std::string text;
  for (const NodeSpec& node : graph.nodes) {
    text += node.name + " " + node.type;
    for (const std::string& input : node.inputs) text += " <" + input;
    for (const NamedOption& option : node.options) text += " " + option.name + "=" + text_of(option.value);
    text += "\n";
  }
  return text;
}

class Cuts : public ::testing::Test {
 protected:
  /// [model] without its type, as TOML.
  static std::string table_of(const StoredModel& model) {
    Value table = model.description().model;
    table.erase("type");
    return to_toml(table, false);
  }
  /// The decoder that the description builds has the graph that the cut was measured with, and its
  /// parameters.
  void expect_described(PrunedModel& cut) {
    EXPECT_EQ(text_of(decoders_.graph(table_of(cut))), text_of(cut.graph(token_info()))) << table_of(cut);
  }
  std::unique_ptr<MemoryModel> recorded(const char* name) { return decoders_.recorded_model(twin(name)); }
  std::vector<double> logits(StoredModel& model) { return logits_of(calibration_, model); }
  Importance scores(StoredModel& model) { return scores_of(calibration_, model); }
  std::string refusal(const char* name, const Targets& targets) {
    const auto model = recorded(name);
    return testing::error_of([&] { require_possible(targets, read_shape(*model), model->folder()); });
  }

  Decoders decoders_;
  TokenData data_;
  Calibration calibration_{decoders_.bench.host, data_, nullptr, nullptr, kSamples, 1};
};

TEST_F(Cuts, TensorsAndLogitsAreTheRecordedOnes) {
  for (const Twin& twin : twins()) {
    const auto model = decoders_.recorded_model(twin);
    const auto cut = cut_model(*model, twin.targets, scores(*model));
    const std::string prefix = fmt::format("{}.cut.", twin.name);
    std::size_t tensors = 0;
    for (const StoredTensor& tensor : cut->parameters()) {
      ASSERT_TRUE(decoders_.recorded.has(prefix + tensor.name)) << tensor.name;
      EXPECT_EQ(decoders_.recorded.shape(prefix + tensor.name), tensor.shape) << tensor.name;
      EXPECT_EQ(values_of(*cut, tensor), decoders_.recorded.values(prefix + tensor.name)) << tensor.name;
    }
    for (const std::string& name : decoders_.recorded.names()) tensors += name.starts_with(prefix) ? 1 : 0;
    EXPECT_EQ(cut->parameters().size(), tensors) << twin.name;
    EXPECT_LT(error_of(logits(*cut), decoders_.recorded.values(fmt::format("{}.cut_logits", twin.name))),
              1e-11)
        << twin.name;
    expect_described(*cut);
  }
}

TEST_F(Cuts, EachAxisAloneIsAModelOfItsOwn) {
  const struct {
    const char* model;
    Targets targets;
  } cases[] = {
      {"hybrid", {.width = 7}},    {"hybrid", {.hidden = 3}},      {"hybrid", {.heads = 2}},
      {"hybrid", {.kv_heads = 1}}, {"hybrid", {.mamba_heads = 2}}, {"hybrid", {.mamba_head_width = 1}},
      {"llama", {.width = 11}},    {"llama", {.hidden = 1}},       {"llama", {.heads = 3}},
      {"llama", {.kv_heads = 1}},  {"plain", {.width = 3}},        {"plain", {.hidden = 8}},
      {"plain", {.heads = 1}},     {"plain", {.kv_heads = 2}},
  };
  for (const auto& one : cases) {
    const auto model = recorded(one.model);
    const auto cut = cut_model(*model, one.targets, scores(*model));
    expect_described(*cut);
    for (const double value : logits(*cut)) ASSERT_TRUE(std::isfinite(value)) << one.model;
  }
}

TEST_F(Cuts, N11_EverythingIsTheIdentity) {
  for (const Twin& twin : twins()) {
    const auto model = decoders_.recorded_model(twin);
    const DecoderShape shape = read_shape(*model);
    Targets all{.width = shape.width};
    for (const LayerShape& layer : shape.layers) {
      if (layer.kind == LayerKind::kAttention) all.heads = layer.heads, all.kv_heads = layer.kv_heads;
      if (layer.kind == LayerKind::kFfn) all.hidden = layer.hidden;
      if (layer.kind == LayerKind::kMamba)
        all.mamba_heads = layer.mamba_heads, all.mamba_head_width = layer.mamba_head_width;
    }
    all.layers.emplace(shape.layers.size());
    std::iota(all.layers->begin(), all.layers->end(), 0);
    const auto cut = cut_model(*model, all, {});
    ASSERT_EQ(cut->parameters().size(), model->parameters().size());
    for (const StoredTensor& tensor : model->parameters())
      EXPECT_EQ(values_of(*cut, tensor), values_of(*model, tensor)) << tensor.name;
    EXPECT_EQ(text_of(decoders_.graph(table_of(*cut))), text_of(model->graph(token_info())));
  }
}

/// Moves index i of a dimension to order[i].
void permute(std::pair<Shape, std::vector<double>>& tensor, int dim, const Indices& order) {
  std::int64_t inner = 1;
  for (int d = dim + 1; d < tensor.first.rank(); ++d) inner *= tensor.first[d];
  const std::vector<double> before = tensor.second;
  const std::int64_t extent = tensor.first[dim];
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(before.size()) / inner; ++i) {
    const std::int64_t outer = i / extent, at = i % extent;
    for (std::int64_t k = 0; k < inner; ++k)
      tensor.second[static_cast<std::size_t>((outer * extent + order[static_cast<std::size_t>(at)]) * inner +
                                             k)] = before[static_cast<std::size_t>(i * inner + k)];
  }
}

/// Order of elements of heads that move to `heads`.
Indices spread(const Indices& heads, std::int64_t width) {
  Indices order;
  for (const std::int64_t head : heads)
    for (std::int64_t i = 0; i < width; ++i) order.push_back(head * width + i);
  return order;
}

TEST_F(Cuts, N11_APermutedModelIsCutToThePermutedOne) {
  const Twin& hybrid = twin("hybrid");
  Weights weights = decoders_.recorded_weights(hybrid);
  const auto move = [&](const std::string& name, int dim, const Indices& order) {
    permute(weights.at(name), dim, order);
  };
  const Indices width{3, 7, 0, 11, 5, 1, 10, 2, 9, 4, 8, 6}, neurons{9, 4, 0, 7, 1, 8, 2, 6, 3, 5};
  // Groups change places, and the heads within each.
  const Indices heads{3, 2, 0, 1}, groups{1, 0};
  const Indices elements{2, 0, 3, 1}, mamba_heads{1, 0};
  for (auto& [name, tensor] : weights) {
    const bool embeds = name == "lm_head.weight" || name == "model.embed_tokens.weight";
    if (name.ends_with("norm.weight") && name.find("mamba") == std::string::npos) permute(tensor, 0, width);
    const bool writes = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
                        name.ends_with("out_proj.weight");
    const bool reads = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight") ||
                       name.ends_with("v_proj.weight") || name.ends_with("up_proj.weight") ||
                       name.ends_with("in_proj.weight");
    if (writes) permute(tensor, 0, width);
    if (reads || embeds) permute(tensor, 1, width);
  }
  for (const char* layer : {"model.layers.3.mlp.", "model.layers.6.mlp."}) {
    move(std::string(layer) + "up_proj.weight", 0, neurons);
    move(std::string(layer) + "down_proj.weight", 1, neurons);
  }
  for (const char* layer : {"model.layers.2.self_attn.", "model.layers.5.self_attn."}) {
    move(std::string(layer) + "q_proj.weight", 0, spread(heads, 4));
    move(std::string(layer) + "k_proj.weight", 0, spread(groups, 4));
    move(std::string(layer) + "v_proj.weight", 0, spread(groups, 4));
    move(std::string(layer) + "o_proj.weight", 1, spread(heads, 4));
  }
  // Heads of both groups of a Mamba layer change places within it, and all heads their elements.
  Indices channels, in_rows, conv_rows;
  for (std::int64_t g = 0; g < 2; ++g)
    for (const std::int64_t head : mamba_heads)
      for (const std::int64_t i : elements) channels.push_back((2 * g + head) * 4 + i);
  const auto part = [](Indices& rows, std::int64_t& at, const Indices& order) {
    for (const std::int64_t i : order) rows.push_back(at + i);
    at += static_cast<std::int64_t>(order.size());
  };
  std::int64_t in_at = 0, conv_at = 0;
  const Indices one_group(channels.begin(), channels.begin() + 8), state{0, 1, 2};
  for (int g = 0; g < 2; ++g) {
    for (int z_or_x = 0; z_or_x < 2; ++z_or_x) part(in_rows, in_at, one_group);
    for (int b_or_c = 0; b_or_c < 2; ++b_or_c) part(in_rows, in_at, state);
    part(in_rows, in_at, mamba_heads);
    part(conv_rows, conv_at, one_group);
    for (int b_or_c = 0; b_or_c < 2; ++b_or_c) part(conv_rows, conv_at, state);
  }
  for (const char* layer : {"model.layers.0.mamba.", "model.layers.4.mamba."}) {
    const std::string name = layer;
    move(name + "in_proj.weight", 0, in_rows);
    move(name + "conv1d.weight", 0, conv_rows);
    move(name + "conv1d.bias", 0, conv_rows);
    for (const char* vector : {"dt_bias", "A_log", "D"}) move(name + vector, 0, {1, 0, 3, 2});
    move(name + "norm.weight", 0, channels);
    move(name + "out_proj.weight", 1, channels);
  }
  const auto model = decoders_.recorded_model(hybrid);
  const auto permuted = decoders_.model(hybrid.table, weights);
  EXPECT_LT(error_of(logits(*permuted), logits(*model)), 1e-11) << "the test permutes a model to another one";
  const auto cut = cut_model(*model, hybrid.targets, scores(*model));
  const auto permuted_cut = cut_model(*permuted, hybrid.targets, scores(*permuted));
  EXPECT_LT(error_of(logits(*permuted_cut), logits(*cut)), 1e-11);
}

TEST_F(Cuts, N11_DeadPartsGoFirstAndExactly) {
  const Twin& hybrid = twin("hybrid");
  Weights weights = decoders_.recorded_weights(hybrid);
  const auto kill_rows = [&](const std::string& name, const Indices& rows) {
    auto& [shape, values] = weights.at(name);
    for (const std::int64_t row : rows) std::fill_n(values.begin() + row * shape[1], shape[1], 0.0);
  };
  for (const char* layer : {"1", "3", "6"})
    kill_rows(fmt::format("model.layers.{}.mlp.up_proj.weight", layer), {0, 4, 9});
  for (const char* layer : {"2", "5"})
    kill_rows(fmt::format("model.layers.{}.self_attn.v_proj.weight", layer), {0, 1, 2, 3});
  const auto model = decoders_.model(hybrid.table, weights);
  const Importance importance = scores(*model);
  EXPECT_THAT(highest(importance.hidden.at(3), 7), ElementsAre(1, 2, 3, 5, 6, 7, 8));
  const auto cut = cut_model(*model, {.hidden = 7, .kv_heads = 1}, importance);
  EXPECT_LT(error_of(logits(*cut), logits(*model)), 1e-12);
  // One neuron more is not dead.
  const auto too_far = cut_model(*model, {.hidden = 6, .kv_heads = 1}, importance);
  EXPECT_GT(error_of(logits(*too_far), logits(*model)), 1e-6);
}

TEST_F(Cuts, N12_EveryGroupKeepsAsManyMambaHeads) {
  const auto model = recorded("hybrid");
  const DecoderShape shape = read_shape(*model);
  const Targets targets{.mamba_heads = 2};
  const Plan plan = make_plan(shape, targets, nullptr);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Importance importance;
    for (const std::int64_t layer : {0, 4})
      for (std::uint64_t i = 0; i < 16; ++i)
        importance.mamba[layer].push_back(
            random_uniform(random_key(seed, "n12"), static_cast<std::uint64_t>(layer), i));
    // All heads of the first group matter more.
    for (std::size_t i = 0; i < 8; ++i) importance.mamba[0][i] += 10;
    const Kept kept = choose(shape, plan, importance);
    for (const std::size_t layer : {0, 4}) {
      std::int64_t of_group[2] = {0, 0};
      for (const std::int64_t head : kept.layers[layer].mamba_heads) ++of_group[head / 2];
      EXPECT_EQ(of_group[0], 1) << seed;
      EXPECT_EQ(of_group[1], 1) << seed;
    }
  }
}

TEST_F(Cuts, ScoresAreSumsOverGroupsAndElementsThatStay) {
  EXPECT_THAT(group_scores(std::vector<double>{1, 5, 4, 3, 9, 0}, 3), ElementsAre(6, 7, 9));
  // Two heads of 2 elements.
  const std::vector<double> channels{3, 0, 4, 1};
  EXPECT_THAT(width_scores(channels, 2), ElementsAre(5, 1));
  EXPECT_THAT(head_scores(channels, 2, {0}), ElementsAre(3, 4));
  EXPECT_THAT(highest(std::vector<double>{2, 3, 2, 1, 3}, 3), ElementsAre(0, 1, 4))
      << "of equal ones the first";
  // The group of the greatest head is not that of the greatest sum.
  const auto model = recorded("hybrid");
  const DecoderShape shape = read_shape(*model);
  Importance importance;
  for (const std::int64_t layer : {2, 5}) importance.heads[layer] = {4, 4, 1, 6};
  // The first Mamba head is greater than the second by elements that go.
  for (const std::int64_t layer : {0, 4})
    importance.mamba[layer] = {5, 9, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0};
  const Targets targets{.heads = 1, .kv_heads = 1, .mamba_heads = 2, .mamba_head_width = 1};
  const Kept kept = choose(shape, make_plan(shape, targets, nullptr), importance);
  EXPECT_THAT(kept.layers[2].kv_heads, ElementsAre(0));
  EXPECT_THAT(kept.layers[2].heads, ElementsAre(0));
  EXPECT_THAT(kept.layers[0].mamba_head_width, ElementsAre(0));
  EXPECT_THAT(kept.layers[0].mamba_heads, ElementsAre(1, 2));
}

TEST_F(Cuts, QueryHeadsTakeTheResidualOfThoseThatGo) {
  const Twin& plain = twin("plain");
  const auto model = decoders_.recorded_model(plain);
  const auto cut = cut_model(*model, {.heads = 3}, scores(*model), true);
  for (const char* layer : {"0", "2"}) {
    const std::string name = fmt::format("model.layers.{}.self_attn.q_proj.weight", layer);
    const StoredTensor& tensor = *std::ranges::find(cut->parameters(), name, &StoredTensor::name);
    EXPECT_LT(
        error_of(values_of(*cut, tensor), decoders_.recorded.values(fmt::format("plain.merged.{}", layer))),
        1e-14)
        << layer;
  }
}

TEST_F(Cuts, LayersThatGoLeaveAnOrdinaryModel) {
  const Twin& hybrid = twin("hybrid");
  const auto model =
      decoders_.model(std::string(hybrid.table) +
                          "[[block]]\nat = '*:ffn'\neps = 1e-4\n[[block]]\nat = '6'\nffn = 'gelu'\n"
                          "[[block]]\nat = '?:mamba'\neps = 1e-3\n[[block]]\nat = '3'\neps = 1e-2\n",
                      decoders_.recorded_weights(hybrid));
  const Targets targets{.hidden = 8, .layers = std::vector<std::int64_t>{0, 2, 4, 6}};
  const auto cut = cut_model(*model, targets, scores(*model));
  EXPECT_EQ(cut->description().model.find("pattern")->text(), "M*M-");
  EXPECT_EQ(cut->description().model.find("repeat"), nullptr);
  std::vector<std::string> places;
  for (const Value& block : cut->description().model.find("block")->array())
    places.push_back(block.find("at")->text());
  EXPECT_THAT(places, ElementsAre("*:ffn", "3", "0", "2"));
  expect_described(*cut);
  // Silent layers in the source give the same values.
  const auto whole = decoders_.model(std::string(hybrid.table), decoders_.recorded_weights(hybrid));
  const auto shorter = cut_model(*whole, {.layers = std::vector<std::int64_t>{0, 2, 4, 6}}, {});
  const DecoderShape shape = read_shape(*whole);
  Pass pass(calibration_, calibration_graph(*whole, data_.info(), shape, ""), *whole, {});
  for (const std::size_t layer : {1, 3, 5}) pass.silence(shape.layers[layer], true);
  Pass cut_pass(calibration_, shorter->graph(data_.info()), *shorter, {});
  EXPECT_DOUBLE_EQ(cut_pass.loss(), pass.loss());
}

TEST_F(Cuts, TargetsThatCannotBeAreRefusedAtOnce) {
  EXPECT_THAT(refusal("hybrid", {.width = 13, .hidden = 11, .mamba_heads = 3, .mamba_head_width = 5}),
              ::testing::StartsWith(
                  "transform minitron: runs/model cannot be cut to these targets:\n"
                  "  width 13 is more than the 12 of the model; a cut only leaves out\n"
                  "  layer 0: mamba_head_width 5 is more than the 4 of the model; a cut only leaves out\n"
                  "  layer 0: mamba_heads 3 are no multiple of the 2 groups, which share B and C and must "
                  "keep equally "
                  "many heads; expected a multiple\n"
                  "  layer 1: hidden 11 is more than the 10 of the model; a cut only leaves out\n"));
  EXPECT_THAT(refusal("llama", {.heads = 4}), HasSubstr("layer 0: kv_heads 3 does not divide heads 4"));
  EXPECT_THAT(refusal("llama", {.heads = 6, .kv_heads = 2}),
              HasSubstr("heads 6 over kv_heads 2 are 3 query heads to a group, and the model has 2"));
  EXPECT_THAT(refusal("llama", {.mamba_heads = 2}), HasSubstr("mamba_heads: the model has no mamba layer"));
  EXPECT_THAT(refusal("llama", {.layers = std::vector<std::int64_t>{0, 0, 6, -1}}),
              ::testing::AllOf(HasSubstr("layers: 0 is there twice"),
                               HasSubstr("layers: 6 is no layer of the model; expected numbers from 0 to 5"),
                               HasSubstr("layers: -1 is no layer")));
  EXPECT_THAT(refusal("llama", {.keep_layers = 7}), HasSubstr("keep_layers 7 is more than the 6 layers"));
  EXPECT_THAT(refusal("llama", {.layers = std::vector<std::int64_t>{0}, .keep_layers = 1}),
              HasSubstr("layers and keep_layers say the same twice"));
}

TEST_F(Cuts, LayersOfUnlikeGroupsNeedBothTargets) {
  const std::string table =
      "pattern = '*-*-'\nwidth = 8\nheads = 4\nkv_heads = 2\nhidden = 9\n[[block]]\nat = '2'\nkv_heads = 1\n";
  const auto model = decoders_.model(table, {});
  const DecoderShape shape = read_shape(*model);
  EXPECT_THAT(
      testing::error_of([&] { require_possible({.kv_heads = 1}, shape, "m"); }),
      HasSubstr("layers 0 and 2 have groups of 2 and 4 query heads, so kv_heads alone leaves them unlike"));
  require_possible({.heads = 2, .kv_heads = 1}, shape, "m");
}

TEST_F(Cuts, OtherModelsAreRefused) {
  MemoryModel other("type = \"gpt_neo\"\nlayers = 2", "runs/other");
  EXPECT_EQ(
      testing::error_of([&] { read_shape(other); }),
      "transform minitron: runs/other is a model of type gpt_neo; expected decoder, whose layers are letters "
      "of a pattern");
  const auto edited = recorded("plain");
  edited->describe().model.set("remove", parse_value("[{name = 'x'}]", {}), {});
  EXPECT_THAT(testing::error_of([&] { read_shape(*edited); }),
              HasSubstr("has 'remove', an edit of single nodes"));
}

}  // namespace
}  // namespace tenon::minitron::cut_test
