// Patterns with Mamba-2 layers: the graph, the rules of Nemotron-H on its published patterns and on broken
// ones, and what is refused. N2 of the specification: the parser counts, checks and gives the pattern back.
#include "graph_lines.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tenon::testing::hybrid_test {
namespace {

using decoder::build;
using decoder::line_of;
using decoder::lines_of;
using decoder::text_data;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kOptions =
    "width = 8\nheads = 2\nhidden = 12\nmamba_heads = 4\nmamba_head_width = 2\nposition = 'none'\n"
    "ffn = 'squared_relu'\n";

std::string hybrid(const std::string& pattern, const std::string& more = "") {
  return "pattern = '" + pattern + "'\n" + kOptions + more;
}

/// The letters of a graph, read from the nodes of its layers.
std::string letters_of(const GraphSpec& graph) {
  std::string letters;
  for (const NodeSpec& node : graph.nodes) {
    if (node.type == "mamba2") letters += 'M';
    if (node.type == "attention") letters += '*';
    if (node.name.ends_with("down_proj")) letters += '-';
  }
  return letters;
}

struct Published {
  const char *name, *pattern;
  int mamba, ffn;
  std::vector<int> attention;  ///< numbers of its layers
};
std::ostream& operator<<(std::ostream& out, const Published& model) {
  return out << model.name;
}
const Published kPublished[] = {
    {"nemotron_h_8b", "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", 24, 24, {7, 18, 29, 40}},
    {"nemotron_h_47b_code",
     "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-",
     45,
     48,
     {17, 38, 49, 60, 86}},
    {"nemotron_h_47b_paper",
     "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---M----M-M*-M-M-M-M-M-",
     44,
     49,
     {17, 38, 49, 60, 86}},
    {"nemotron_h_56b",
     "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-"
     "M-M*-M-M-M-M-M-",
     54,
     54,
     {7, 18, 29, 40, 51, 62, 73, 84, 95, 106}},
    {"nano_9b_v2", "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", 27, 25, {14, 21, 30, 39}},
    {"nano_12b_v2",
     "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
     28,
     28,
     {7, 16, 25, 34, 43, 52}},
    {"hybrid_tiny", "M-M-M*-M-", 4, 4, {5}},
};

class PublishedPattern : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedPattern, N2_IsCountedAndGivenBackAndObeysTheRules) {
  const Published& model = GetParam();
  const GraphSpec graph = build(hybrid(model.pattern, "rules = 'nemotron_h'\n"), text_data(4, 5));
  const std::string letters = letters_of(graph);
  EXPECT_EQ(letters, model.pattern);
  EXPECT_EQ(std::ranges::count(letters, 'M'), model.mamba);
  EXPECT_EQ(std::ranges::count(letters, '-'), model.ffn);
  std::vector<int> attention;
  for (std::size_t i = 0; i < letters.size(); ++i)
    if (letters[i] == '*') attention.push_back(static_cast<int>(i));
  EXPECT_EQ(attention, model.attention);
  for (const int number : attention)
    EXPECT_NE(line_of(graph, fmt::format("model.layers.{}.self_attn", number)), "") << number;
}

INSTANTIATE_TEST_SUITE_P(N2, PublishedPattern, ::testing::ValuesIn(kPublished),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(HybridGraph, HasTheseNodesOfMamba) {
  const GraphSpec graph =
      build(hybrid("M-",
                   "mamba_state = 3\nmamba_groups = 2\nmamba_conv = 2\nmamba_chunk = 16\neps = 0.5\n"
                   "mamba_dt_limits = [0.25, 0]\ndepth_scaled_init = true\ninit_scale = 0.5\nrepeat = 2\n"),
            text_data(4, 5));
  EXPECT_EQ(line_of(graph, "model.layers.2.norm"), "rms_norm(model.layers.1.residual) eps=0.5");
  EXPECT_EQ(line_of(graph, "model.layers.2.mamba"),
            "mamba2(model.layers.2.norm) heads=4 head_width=2 state=3 groups=2 conv=2 chunk=16 norm_eps=0.5 "
            "init_scale=0.5 out_init_scale=0.25");
  EXPECT_EQ(line_of(graph, "model.layers.2.residual"),
            "residual(model.layers.1.residual, model.layers.2.mamba)");
  for (const NodeSpec& node : graph.nodes) {
    for (const NamedOption& option : node.options) {
      if (option.name != "dt_limits") continue;
      EXPECT_THAT(std::get<std::vector<double>>(option.value), ElementsAre(0.25, 0.0));
    }
  }
}

TEST(HybridGraph, GivesDocumentsToEveryLayerThatMixesPositions) {
  const GraphSpec graph = build(hybrid("M-*-M-"), text_data(4, 5, true));
  EXPECT_THAT(line_of(graph, "model.layers.0.mamba"), HasSubstr("mamba2(model.layers.0.norm, documents)"));
  EXPECT_THAT(line_of(graph, "model.layers.2.self_attn"), HasSubstr(", documents)"));
  EXPECT_THAT(line_of(graph, "model.layers.4.mamba"), HasSubstr("(model.layers.4.norm, documents)"));
}

TEST(HybridGraph, BlocksChangeMambaLayers) {
  const GraphSpec graph = build(hybrid("M-M*-",
                                       "[[block]]\nat = '*:mamba'\nmamba_state = 7\nmamba_groups = 2\n"
                                       "[[block]]\nat = '2'\nmamba_heads = 6\nmamba_chunk = 8\n"),
                                text_data(4, 5));
  EXPECT_THAT(line_of(graph, "model.layers.0.mamba"),
              HasSubstr("heads=4 head_width=2 state=7 groups=2 conv=4 chunk=256"));
  EXPECT_THAT(line_of(graph, "model.layers.2.mamba"),
              HasSubstr("heads=6 head_width=2 state=7 groups=2 conv=4 chunk=8"));
}

std::string refusal(const std::string& options, const DataInfo& data = text_data(4, 5)) {
  try {
    build(options, data);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << options;
  return "";
}

TEST(NemotronRules, N2_NameEveryRuleThatIsBrokenWithLayerAndNumber) {
  const struct {
    std::string pattern, more;
    std::vector<const char*> says;
  } cases[] = {
      {"-M-M-M*-M-", "", {"the first layer is M: layer 0 is -"}},
      {"M-M-M*-M-M", "", {"the last layer is -: layer 9 is M"}},
      {"M-M-M-M-M*",
       "",
       {"the last layer is -: layer 9 is *", "from layer 0 on 9 layers have none, more than 1.75 times 5.0"}},
      {"M-M-*M-M-", "", {"- follows every *: layer 4 is *, and layer 5 is M"}},
      {"M-M-**-M-",
       "",
       {"layer 4 is *, and layer 5 is *", "about 8 % of the layers are *, which is 1 to 1 of 9: there are 2",
        "layers 4 and 5 are *, nearer than half of 3.0"}},
      {"M-M-M-M-", "", {"about 8 % of the layers are *, which is 1 to 1 of 8: there are 0"}},
      {"M*-M-M-M-M-M-M-M-",
       "",
       {"* are evenly spread: from layer 2 on 15 layers have none, more than 1.75 times 8.5"}},
      {"M*---M-", "", {"M and - are about as many, at most 1 apart: there are 2 M and 4 -"}},
      {"M-M-M*-M-", "position = 'rope'\n", {"there are no positions: in layer 5 'position' is rope"}},
      {"M-M-M*-M-", "tied = true\n", {"embedding and head are not tied"}},
      {"M-M-M*-M-", "norm = 'layer'\n", {"norms are RMS norms: in layer 0 'norm' is layer"}},
      {"M-M-M*-M-", "bias = ['out']\n", {"in layer 5 'bias' is not []"}},
      {"M-M-M*-M-", "[[block]]\nat = '3'\nffn = 'gelu'\n", {"in layer 3 'ffn' is not squared_relu"}},
      {"M-M-M*-M-", "[[block]]\nat = '6'\nskip = true\n", {"layer 5 is *, and layer 7 is M"}},
  };
  for (const auto& c : cases) {
    std::string options = hybrid(c.pattern, "rules = 'nemotron_h'\n");
    for (const char* key : {"position", "ffn"}) {
      const std::string line = std::string(key) + " = '";
      if (c.more.rfind(line, 0) != 0) continue;
      const std::size_t at = options.find(line);
      options.erase(at, options.find('\n', at) + 1 - at);
    }
    const std::string says = refusal(options + c.more);
    EXPECT_THAT(says, HasSubstr("'rules' is nemotron_h, and the model breaks:"));
    EXPECT_EQ(std::ranges::count(says, '\n'), static_cast<std::ptrdiff_t>(c.says.size()) + 1) << says;
    for (const char* part : c.says) EXPECT_THAT(says, HasSubstr(part));
    std::string free = options + c.more;
    free.replace(free.find("nemotron_h"), 10, "free");
    EXPECT_NO_THROW(build(free, text_data(4, 5))) << free;
  }
}

NamePlan plan_of(const std::string& options) {
  Bench bench("cpu", "reference", 1);
  const auto model = bench.make_component<Model>("decoder", options);
  return static_cast<ModelNames*>(model->query(ModelNames::kId))->name_plan(text_data(4, 5));
}

const NameRule& rule_of(const NamePlan& plan, const std::string& here) {
  const auto found =
      std::ranges::find_if(plan.rules, [&](const NameRule& rule) { return rule.here.front() == here; });
  if (found == plan.rules.end()) fail_run("no rule for " + here);
  return *found;
}

/// "first+count ..." of each block.
std::string blocks_of(const NameRule& rule) {
  std::vector<std::string> texts;
  for (const RowRange& block : rule.blocks) texts.push_back(fmt::format("{}+{}", block.first, block.count));
  return fmt::format("{}", fmt::join(texts, " "));
}

TEST(HybridNames, PutPartsOfAllGroupsTogether) {
  // A group has 2 heads of width 2, state 3: z 0-3, x 4-7, B 8-10, C 11-13, time steps 14-15.
  const NamePlan plan = plan_of(hybrid("M-", "mamba_groups = 2\nmamba_state = 3\n"));
  EXPECT_EQ(blocks_of(rule_of(plan, "model.layers.0.mamba.in_proj.weight")),
            "0+4 16+4 4+4 20+4 8+3 24+3 11+3 27+3 14+2 30+2");
  for (const char* name : {"weight", "bias"})
    EXPECT_EQ(blocks_of(rule_of(plan, fmt::format("model.layers.0.mamba.conv1d.{}", name))),
              "0+4 10+4 4+3 14+3 7+3 17+3");
  for (const char* name : {"dt_bias", "A_log", "D", "norm.weight", "out_proj.weight"}) {
    const NameRule& rule = rule_of(plan, fmt::format("model.layers.0.mamba.{}", name));
    EXPECT_TRUE(rule.blocks.empty()) << name;
    EXPECT_THAT(rule.there, ElementsAre(fmt::format("backbone.layers.0.mixer.{}", name)));
  }
  EXPECT_THAT(rule_of(plan, "model.layers.1.mlp.up_proj.weight").there,
              ElementsAre("backbone.layers.1.mixer.up_proj.weight"));
  const NamePlan one_group = plan_of(hybrid("MM"));
  EXPECT_TRUE(rule_of(one_group, "model.layers.1.mamba.in_proj.weight").blocks.empty());
  EXPECT_THAT(one_group.files[0].text, HasSubstr("\"architectures\": [\"Mamba2ForCausalLM\"]"));
  EXPECT_THAT(plan.files[0].text, HasSubstr("\"hybrid_override_pattern\": \"M-\""));
}

TEST(HybridNames, RefuseWhatTransformersHasNoModelFor) {
  const std::string nemotron = "export_as = 'NemotronHForCausalLM'\n";
  const struct {
    std::string options;
    const char* says;
  } cases[] = {
      {hybrid("M-", "tied = true\n"), "NemotronHForCausalLM has no such model: 'tied' is true"},
      {hybrid("M*-", "[[block]]\nat = '1'\nposition = 'rope'\nhead_width = 2\n"),
       "'position' of layer 1 is rope; expected none"},
      {hybrid("M*-", "window = 2\n"), "'window' of layer 1 is 2; expected 0"},
      {hybrid("M*-", "bias = ['qkv']\n"), "'bias' of layer 1 is [qkv]; expected [qkv, out]"},
      {hybrid("M-M-", "[[block]]\nat = '2'\nmamba_groups = 2\n"),
       "'mamba_groups' of layer 2 is 2; expected 1"},
      {hybrid("M-M-", "[[block]]\nat = '3'\nhidden = 5\n"), "'hidden' of layer 3 is 5; expected 12"},
      {hybrid("M-", "[[block]]\nat = '1'\neps = 0.5\n"), "'eps' of layer 1 is 0.5; expected 1e-05"},
      {hybrid("M-", "[[block]]\nat = '1'\nnorm = 'layer'\n"), "'norm' of layer 1 is layer; expected rms"},
      {hybrid("M-", "[[block]]\nat = '1'\nffn = 'swiglu'\n"),
       "'ffn' of layer 1 is swiglu; expected squared_relu"},
      {hybrid("M-", "mamba_dt_limits = [0, 1]\n"),
       "'mamba_dt_limits' of layer 0 is [0, 1]; expected no upper"},
      {hybrid("MM-", "[[block]]\nat = '0'\nskip = true\n"), "'block' skips layer 0"},
      {hybrid("MM", "mamba_heads = 3\n"),
       "the heads of layer 0 have 6 elements together; expected a multiple of"},
      {hybrid("M-", "export_as = 'Mamba2ForCausalLM'\n"), "layer 1 of 'pattern' is -; expected M alone"},
      {hybrid("M-", "export_as = 'LlamaForCausalLM'\n"),
       "layer 0 of 'pattern' is M; expected * and - in turns"},
  };
  for (const auto& c : cases) {
    std::string options = c.options;
    for (const char* twice : {"mamba_heads = 3"})
      if (options.find(twice) != std::string::npos) options.erase(options.find("mamba_heads = 4\n"), 16);
    try {
      plan_of(options);
      ADD_FAILURE() << "accepted: " << options;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(c.says));
    }
  }
  EXPECT_NO_THROW(plan_of(hybrid("*-", nemotron)));
}

TEST(NemotronRules, SkippedLayersDoNotCount) {
  const std::string wrong = hybrid("*M-M-M*-M-", "rules = 'nemotron_h'\n");
  refusal(wrong);
  EXPECT_NO_THROW(build(wrong + "[[block]]\nat = '0'\nskip = true\n", text_data(4, 5)));
}

TEST(Hybrid, RefusesWhatCannotWork) {
  const std::string no_heads = "pattern = '-M'\nwidth = 8\nhidden = 8\n";
  const struct {
    std::string options, says;
  } cases[] = {
      {no_heads, "layer 1 (mamba): 'mamba_heads' is missing, the number of its heads"},
      {hybrid("M-", "mamba_groups = 3\n"),
       "layer 0 (mamba): 'mamba_heads' 4 is no multiple of 'mamba_groups' 3; expected as many heads in every "
       "group"},
      {hybrid("MM", "[[block]]\nat = '1'\nmamba_groups = 8\n"),
       "'block' 0 (at \"1\"), layer 1 (mamba): 'mamba_heads' 4 is no multiple of 'mamba_groups' 8"},
      {hybrid("M-", "mamba_conv = 5\n"),
       "layer 0 (mamba): 'mamba_conv' 5 sees more tokens than a context of 4 has; expected at most 4"},
      {hybrid("M-", "mamba_dt_limits = [0.5, 0.25]\n"),
       "'mamba_dt_limits' is [0.5, 0.25]; expected the lower"},
      {hybrid("M-", "mamba_dt_limits = [0.5]\n"), "mamba_dt_limits"},
      {hybrid("M-", "mamba_state = 0\n"), "mamba_state"},
      {hybrid("M-", "mamba_chunk = 0\n"), "mamba_chunk"},
      {hybrid("M-", "mamba_conv = 0\n"), "mamba_conv"},
      {hybrid("M-", "mamba_heads = 0\n"), "mamba_heads"},
      {hybrid("M-", "rules = 'nemotron'\n"), "rules"},
      {hybrid("Mx"), "'pattern' has 'x' at 1; expected * attention, - FFN or M Mamba-2"},
      {hybrid("M-", "[[block]]\nat = '1'\nmamba_heads = 4\n"),
       "sets 'mamba_heads', which only layers of kind mamba have, and matches none of them"},
      {hybrid("M-", "[[block]]\nat = '0'\nhidden = 4\n"),
       "sets 'hidden', which only layers of kind ffn have"},
  };
  for (const auto& c : cases) {
    std::string options = c.options;
    if (const std::size_t twice = options.rfind("mamba_heads = 0"); twice != std::string::npos)
      options.erase(options.find("mamba_heads = 4\n"), 16);
    EXPECT_THAT(refusal(options), HasSubstr(c.says));
  }
  // A long context of which samples take a part is no reason to refuse.
  EXPECT_NO_THROW(build(hybrid("M-", "mamba_conv = 5\ncontext = 5\n"), text_data(4, 5)));
}

}  // namespace
}  // namespace tenon::testing::hybrid_test
