// The tables of `tenon simulate`: defaults, and what is refused.
#include "simulate/plan.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::simulate {
namespace {

using ::testing::HasSubstr;

class Catalog final : public ComponentCatalog {
 public:
  ComponentSchema describe(std::string_view kind, std::string_view type) const override {
    EXPECT_EQ(kind, "simulator/1");
    if (type != "darcy") fail_config("there is no simulator '" + std::string(type) + "'");
    static constexpr OptionSpec kOptions[] = {option::integer("grid", "85").at_least(3)};
    return {"simulator.darcy", option_list(kOptions)};
  }
};

Plan plan_of(const std::string& toml) {
  const Config config = Config::parse(toml, "configs/flow.toml", {});
  return read_plan(config, Catalog(), "configs/flow.toml");
}

constexpr const char* kLeast = "[simulate]\nsamples = 4\n[simulator]\ntype = 'darcy'\n";

TEST(SimulatePlan, FillsInDefaults) {
  const Plan plan = plan_of(kLeast);
  EXPECT_EQ(plan.settings.samples, 4);
  EXPECT_EQ(plan.settings.seed, 1u);
  EXPECT_EQ(plan.settings.folder, "simulations/flow");
  EXPECT_EQ(plan.settings.retries, 2);
  EXPECT_GE(plan.settings.workers, 1);
  EXPECT_LE(plan.settings.workers, 4);
  EXPECT_EQ(plan.id, "darcy");
  EXPECT_EQ(plan.config, "[simulator]\ntype = \"darcy\"\ngrid = 85\n");
  EXPECT_EQ(simulator_options(plan.config, Catalog()).options->integer("grid"), 85);
}

TEST(SimulatePlan, FolderLosesItsLastSlash) {
  EXPECT_EQ(
      plan_of("[simulate]\nsamples = 1\nfolder = 'sims/a//'\n[simulator]\ntype = 'darcy'\n").settings.folder,
      "sims/a");
}

TEST(SimulatePlan, SaysWhatIsWrong) {
  const struct {
    const char *toml, *words;
  } cases[] = {
      {"[simulator]\ntype = 'darcy'\n", "there is no table [simulate]"},
      {"[simulate]\nsamples = 4\n", "there is no table [simulator]"},
      {"[simulate]\nsamples = 4\n[simulator]\ngrid = 4\n", "[simulator] has no type"},
      {"[simulate]\nsamples = 4\n[simulator]\ntpe = 'darcy'\n",
       "[simulator] has no option 'tpe'; did you mean 'type'?"},
      {"[simulate]\n[simulator]\ntype = 'darcy'\n", "samples"},
      {"[simulate]\nsamples = 0\n[simulator]\ntype = 'darcy'\n", "samples"},
      {"[simulate]\nsample = 4\n[simulator]\ntype = 'darcy'\n", "did you mean 'samples'?"},
      {"[simulate]\nsamples = 4\nformat = 'csv'\n[simulator]\ntype = 'darcy'\n", "'npy', 'hdf5'"},
      {"[simulate]\nsamples = 4\n[simulator]\ntype = 'darcy'\ngird = 4\n", "did you mean 'grid'?"},
      {"[simulate]\nsamples = 4\n[simulator]\ntype = 'darcey'\n", "there is no simulator 'darcey'"},
      {"[simulate]\nsamples = 4\n[simulatr]\n[simulator]\ntype = 'darcy'\n",
       "a simulation has no table 'simulatr'; did you mean 'simulate'?"},
      {"[simulate]\nsamples = 4\n[run]\nsteps = 4\n[simulator]\ntype = 'darcy'\n",
       "a simulation has no table 'run'"},
  };
  for (const auto& [toml, words] : cases) {
    try {
      plan_of(toml);
      ADD_FAILURE() << toml;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.what(), HasSubstr(words)) << toml;
    }
  }
}

}  // namespace
}  // namespace tenon::simulate
