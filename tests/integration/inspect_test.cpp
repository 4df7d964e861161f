// `tenon inspect` over all shipped plugins: it reads tags and opens no library, so it is quick.
#include "run_program.hpp"

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

namespace tenon::integration::inspect_test {
namespace {

double child_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Inspect, OfAllPluginsTakesLessThanATenthOfASecond) {
  const Scratch scratch;
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const double begin = child_seconds();
    const Ended ended = scratch.run({"inspect"});
    times.push_back(child_seconds() - begin);  // of the processor: other work on the machine does not count
    ASSERT_EQ(ended.status, 0) << ended.err;
    for (const char* component : {"adamw", "gpt_neo", "ddp", "cosine", "head_cross_entropy"})
      ASSERT_THAT(ended.out, ::testing::HasSubstr(component));
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[2], 0.1);
  std::cout << "median of 5: " << times[2] * 1e3 << " ms\n";
}

TEST(Inspect, OfOneComponentNamesEveryOption) {
  const Scratch scratch;
  const Ended ended = scratch.run({"inspect", "optimizer.adamw"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* option : {"lr", "betas", "eps", "weight_decay"})
    EXPECT_THAT(ended.out, ::testing::HasSubstr(option));
}

TEST(Inspect, OfOneComponentListsItsIdentities) {
  const Scratch scratch;
  const Ended text = scratch.run({"inspect", "sync.post_local_sgd"});  // it cannot be made with defaults
  EXPECT_THAT(text.out, ::testing::HasSubstr("  a warm-up that does not end is data-parallel training\n"
                                             "    {type = \"post_local_sgd\", warmup = 1000000000} is "
                                             "{type = \"ddp\"}, to the bit\n"));
  EXPECT_THAT(scratch.run({"inspect", "optimizer.adagrad"}).out, ::testing::HasSubstr(" within 1e-09\n"));
  EXPECT_THAT(scratch.run({"inspect", "recovery.spike_guard", "--json"}).out,
              ::testing::HasSubstr("\"other\": \"{type = \\\"none\\\"}\""));
}

TEST(Inspect, ListsOfComponentsSayTheirKind) {
  const Scratch scratch;
  const Ended text = scratch.run({"inspect", "reward.sum"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, ::testing::AllOf(::testing::HasSubstr("components(reward), default required"),
                                         ::testing::HasSubstr("[data.reward]\ntype = \"sum\"\n")));
  EXPECT_THAT(scratch.run({"inspect", "reward.sum", "--json"}).out,
              ::testing::HasSubstr("\"type\": \"components(reward)\""));
}

// Compares the preset quickstart's text about plugins that it leaves out with the plugins themselves.
TEST(Inspect, PluginsThatQuickstartLeavesOutOfferWhatThePresetSays) {
  const Scratch scratch;
  const std::string presets = read_file(TENON_SOURCE_DIR "/CMakePresets.json");
  std::smatch list;
  ASSERT_TRUE(std::regex_search(presets, list, std::regex("\"TENON_LEAVE_OUT\": \"([^\"]+)\"")));
  const std::string words = list[1];
  const std::regex entry("([a-z_0-9]+)=([^;]+)");
  int built = 0;
  for (std::sregex_iterator found(words.begin(), words.end(), entry), end; found != end; ++found) {
    const std::string file = TENON_BINARY_DIR "/lib/tenon/plugins/" + (*found)[1].str() + ".so";
    if (!fs::exists(file)) continue;  // MPI is optional
    ++built;
    const Ended ended = scratch.run({"inspect", file});
    std::istringstream components((*found)[2].str());
    for (std::string component; std::getline(components, component, ',');) {
      const std::string id = component.substr(component.find('.') + 1);
      EXPECT_THAT(ended.out, ::testing::AnyOf(::testing::HasSubstr("components  " + component),
                                              ::testing::HasSubstr("(also called " + id + ")")))
          << component;
    }
  }
  EXPECT_GE(built, 2);
}

TEST(InspectTables, OfARunSaysWhatItHasOrWhatToAdd) {
  const Scratch scratch;
  EXPECT_EQ(scratch.run({"inspect", "--tables"}).err,
            "tenon: tenon inspect: which RUN? usage: tenon inspect RUN --tables\n");
  EXPECT_EQ(scratch.run({"inspect", "run.toml", "--tables", "--markdown"}).err,
            "tenon: tenon inspect: --tables prints text or --json, no Markdown\n");
  ASSERT_EQ(scratch.train().status, 0);
  const Ended without = scratch.run({"inspect", "runs/tiny", "--tables"});
  EXPECT_EQ(without.status, 2);
  EXPECT_EQ(
      without.err,
      "tenon: tenon inspect: runs/tiny/1 has no record of its tables (tables.rank<r>.json). The observer "
      "`tables` writes it: add\n\n[[observe]]\ntype = \"tables\"\n\nto the configuration and train again\n");
  ASSERT_EQ(scratch.train({"--set", "observe=[{type='tables'}]"}).status, 0);
  for (const char* run : {"runs/tiny", "runs/tiny/2"}) {
    const Ended with = scratch.run({"inspect", run, "--tables"});
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(with.out, "runs/tiny/2: 1 rank, 6 applied slots from slot 0\nthe model has no row tables\n");
  }
  EXPECT_EQ(scratch.run({"inspect", "runs/tiny", "--tables", "--json"}).out,
            "{\n  \"run\": \"runs/tiny/2\",\n  \"ranks\": 1,\n  \"first_slot\": 0,\n  \"slots\": 6,\n"
            "  \"samples\": 12,\n  \"ranks_without_file\": [],\n  \"tables\": []\n}\n");
}

/// Words in backticks of a line of Markdown.
std::vector<std::string> in_backticks(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t open = line.find('`'); open != std::string::npos; open = line.find('`', open + 1)) {
    const std::size_t close = line.find('`', open + 1);
    if (close == std::string::npos) break;
    words.push_back(line.substr(open + 1, close - open - 1));
    open = close;
  }
  return words;
}

using Components = std::map<std::string, std::set<std::string>>;  // by kind

/// README's table of plugins; a row without a kind belongs to the previous kind.
Components readme_components() {
  Components kinds;
  std::istringstream readme(read_file(fs::path(TENON_SOURCE_DIR) / "README.md"));
  std::string line, kind;
  while (std::getline(readme, line) && line != "## Plugins that exist") continue;
  while (std::getline(readme, line) && !line.starts_with("## ")) {
    if (!line.starts_with("| ") || line.starts_with("| kind")) continue;
    const std::size_t second = line.find('|', 1), third = line.find('|', second + 1);
    std::istringstream(line.substr(1, second - 1)) >> kind;
    for (const std::string& name : in_backticks(line.substr(second, third - second)))
      kinds[kind].insert(name);
  }
  return kinds;
}

Components offered_components() {
  const Ended ended = Scratch().run({"inspect"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  Components kinds;
  std::istringstream printed(ended.out);
  std::string kind;
  for (std::string line; std::getline(printed, line) && !line.empty();) {
    if (!line.starts_with("  ")) {
      kind = line;
    } else {
      kinds[kind].insert(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return kinds;
}

/// Names of components in the sources: some plugins need libraries that are not installed everywhere.
/// Importers are in the plugins of their models.
std::string sources_of(const std::string& kind) {
  std::string text;
  const fs::path plugins = fs::path(TENON_SOURCE_DIR) / "plugins";
  for (const auto& entry :
       fs::recursive_directory_iterator(plugins / (kind == "importer" ? "model" : kind))) {
    if (entry.path().extension() == ".hpp" || entry.path().extension() == ".cpp")
      text += read_file(entry.path());
  }
  return text;
}

TEST(Inspect, AndReadmeListTheSameComponents) {
  const Components readme = readme_components(), offered = offered_components();
  ASSERT_GT(readme.size(), 8U);
  for (const auto& [kind, names] : offered) {
    const auto listed = readme.find(kind);
    for (const std::string& name : names)
      EXPECT_TRUE(listed != readme.end() && listed->second.contains(name))
          << "README lacks " << kind << "." << name;
  }
  for (const auto& [kind, names] : readme) {
    const auto found = offered.find(kind);
    const std::string sources = sources_of(kind);
    for (const std::string& name : names) {
      const bool exists = (found != offered.end() && found->second.contains(name)) ||
                          sources.find("\"" + name + "\"") != std::string::npos;
      EXPECT_TRUE(exists) << "README lists " << kind << "." << name << ", which no plugin offers";
    }
  }
}

TEST(Graph, ShowsTheEditedModel) {
  const Scratch scratch;
  const Ended text = scratch.run({"graph", "run.toml"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, ::testing::AllOf(::testing::HasSubstr("model gpt_neo: "),
                                         ::testing::HasSubstr("transformer.h.0.mlp.act"),
                                         ::testing::HasSubstr("transformer.h.0.mlp.c_fc.weight"),
                                         ::testing::ContainsRegex("mlp.c_fc.weight.* 64 +16 +f32\n")));
  const Ended quantized = scratch.run({"graph", "run.toml", "--set", "precision.type=mxfp8"});
  EXPECT_THAT(quantized.out, ::testing::ContainsRegex("mlp.c_fc.weight.* 64 +16 +mxfp8\n")) << quantized.err;
  const Ended edited = scratch.run(
      {"graph", "run.toml", "--json", "--svg", "model.svg", "--set",
       "model.remove=[{match='transformer.h.0.mlp.act'}]", "--set",
       "model.insert=[{after='transformer.h.*.mlp.c_fc', name='{}_drop', type='dropout', p=0.5}]"});
  ASSERT_EQ(edited.status, 0) << edited.err;
  EXPECT_THAT(edited.out, ::testing::AllOf(::testing::HasSubstr("transformer.h.0.mlp.c_fc_drop"),
                                           ::testing::Not(::testing::HasSubstr("mlp.act"))));
  EXPECT_THAT(
      read_file(scratch / "model.svg"),
      ::testing::AllOf(::testing::StartsWith("<svg"), ::testing::HasSubstr("transformer.h.0.mlp.c_fc_drop")));
  EXPECT_THAT(scratch.run({"graph", "run.toml", "--dot"}).out, ::testing::StartsWith("digraph \"gpt_neo\""));
}

TEST(Graph, RefusalsNameTheEdit) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& set) {
    const Ended ended = scratch.run({"graph", "run.toml", "--set", set});
    EXPECT_EQ(ended.status, 2) << set;
    return ended.err;
  };
  EXPECT_THAT(refusal("model.remove=[{match='transformer.h.0.mlp.akt'}]"),
              ::testing::HasSubstr("no node of the model matches 'transformer.h.0.mlp.akt'; did you mean "
                                   "'transformer.h.0.mlp.act'?"));
  EXPECT_THAT(refusal("model.remove=[{match='x', nodes='y'}]"),
              ::testing::HasSubstr("[[model.remove]] has no option 'nodes'"));
}

}  // namespace
}  // namespace tenon::integration::inspect_test
