// The tables of `tenon transform`: defaults, sources and their checkpoints, what is refused, and folders that
// would be written over.
#include "transform/plan.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tenon::transform {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Catalog final : public ComponentCatalog {
 public:
  ComponentSchema describe(std::string_view kind, std::string_view type) const override {
    EXPECT_EQ(kind, "transform/1");
    if (type != "merge") fail_config("there is no transform '" + std::string(type) + "'");
    static constexpr OptionSpec kOptions[] = {option::reals("weights", "[]")};
    return {"transform.merge", option_list(kOptions)};
  }
};

Plan plan_of(const std::string& toml, const std::string& to = "") {
  return read_plan(Config::parse(toml, "configs/mean.toml", {}), Catalog(), "configs/mean.toml", to);
}

using Steps = std::vector<std::optional<std::int64_t>>;

TEST(TransformPlan, FillsInDefaults) {
  const Plan plan = plan_of("[transform]\ntype = 'merge'\nfrom = ['/runs/a', '/runs/b']\n");
  EXPECT_EQ(plan.type, "merge");
  ASSERT_EQ(plan.sources.size(), 2U);
  EXPECT_EQ(plan.sources[1].folder, "/runs/b");
  EXPECT_EQ(plan.sources[1].step, std::nullopt);
  EXPECT_EQ(plan.to, "models/mean");
  EXPECT_TRUE(plan.options->reals("weights").empty());
}

TEST(TransformPlan, TheCommandLineNamesTheFolderBeforeTheFile) {
  const std::string toml = "[transform]\ntype = 'merge'\nfrom = ['/runs/a']\nto = 'models/x//'\n";
  EXPECT_EQ(plan_of(toml).to, "models/x");
  EXPECT_EQ(plan_of(toml, "y/").to, "y");
}

TEST(TransformPlan, AStepIsOfAllOfEachOrOneOfSeveral) {
  const auto steps_of = [](const char* lines) {
    Steps steps;
    for (const Source& source : plan_of(std::string("[transform]\ntype = 'merge'\n") + lines).sources)
      steps.push_back(source.step);
    return steps;
  };
  EXPECT_EQ(steps_of("from = ['/a', '/b']\nstep = [7]"), (Steps{7, 7}));
  EXPECT_EQ(steps_of("from = ['/a', '/b']\nstep = [7, 9]"), (Steps{7, 9}));
  EXPECT_EQ(steps_of("from = ['/a']\nstep = [7, 9, 11]"), (Steps{7, 9, 11}));
}

TEST(TransformPlan, SaysWhatIsWrong) {
  const struct {
    const char *toml, *words;
  } cases[] = {
      {"[plugins]\npaths = []\n", "configs/mean.toml: there is no table [transform]"},
      {"transform = 3\n", "there is no table [transform]"},
      {"[transform]\nfrom = ['/a']\n", "[transform] has no type"},
      {"[transform]\ntyp = 'merge'\nfrom = ['/a']\n",
       "[transform] has no option 'typ'; did you mean 'type'?"},
      {"[transform]\ntype = 'merge'\n", "[transform] needs option 'from': a list of paths"},
      {"[transform]\ntype = 'merge'\nfrom = []\n", "option 'from' of [transform] names no folder"},
      {"[transform]\ntype = 'merge'\nfrom = '/a'\n", "expected a list of"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a']\nstep = 3\n", "expected a list of whole numbers"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a']\nstep = [-1]\n", "expected"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a', '/b', '/c']\nstep = [1, 2]\n",
       "option 'step' of [transform] has 2 numbers, and 'from' has 3 folders; expected one number for all, "
       "one for each, "
       "or several of one folder"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a']\nto = ''\n", "option 'to' of [transform] is empty"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a']\nweigths = [1]\n", "did you mean 'weights'?"},
      {"[transform]\ntype = 'merge'\nform = ['/a']\n", "did you mean 'from'?"},
      {"[transform]\ntype = 'merg'\nfrom = ['/a']\n", "there is no transform 'merg'"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a']\n[plugin]\n",
       "a transform has no table 'plugin'; did you mean 'plugins'?"},
      {"[transform]\ntype = 'merge'\nfrom = ['/a']\n[run]\nsteps = 4\n", "a transform has no table 'run'"},
  };
  for (const auto& entry : cases) {
    const auto read = [&] { plan_of(entry.toml); };
    EXPECT_THAT(testing::error_of(read), HasSubstr(entry.words)) << entry.toml;
  }
}

using TransformFolders = testing::FolderTest;

TEST_F(TransformFolders, NothingIsWrittenOver) {
  const std::string run = folder_ + "/run";
  fs::create_directories(run + "/1");
  fs::create_directory_symlink(run, folder_ + "/link");
  fs::create_symlink(folder_ + "/nowhere", folder_ + "/dangling");
  const auto refusal = [&](const std::string& to) {
    Plan plan;
    plan.type = "identity";
    plan.sources = {{run, std::nullopt}};
    plan.to = to;
    return testing::error_of([&] { require_new(plan); });
  };
  EXPECT_EQ(refusal(folder_ + "/new"), "no error");
  EXPECT_EQ(refusal(folder_ + "/run2"), "no error");
  EXPECT_EQ(refusal(folder_ + "/deep/new"), "no error");
  for (const std::string& same : {run, folder_ + "/link", folder_ + "/./run", run + "/1/.."})
    EXPECT_THAT(refusal(same),
                HasSubstr("is a source and the folder of the result; a transform never writes over its "
                          "source"))
        << same;
  for (const std::string& inside : {run + "/1", run + "/new", folder_ + "/link/deep/new"})
    EXPECT_THAT(refusal(inside), HasSubstr("is inside the source '" + run + "'")) << inside;
  for (const std::string& there : {folder_, folder_ + "/dangling"})
    EXPECT_THAT(refusal(there),
                HasSubstr("exists; nothing is written over, so name a new folder or remove it"))
        << there;
}

}  // namespace
}  // namespace tenon::transform
