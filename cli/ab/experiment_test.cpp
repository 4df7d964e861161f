// Experiment files: values that are read, mistakes that are refused, and the messages.
#include "ab/experiment.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tenon::ab {
namespace {

using ab::testing::replaced;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kGood = R"(
question = "Does NVFP4 train as well as BF16?"
base = "../base/gpt_tiny.toml"
seeds = [3, 1, 2]
metric = "val/accuracy"
margin = 0.02
target = 0.5
secondary = ["train/loss"]
test = "sign_flip"
budget = { tokens = 1000000 }
[[arm]]
name = "bf16"
[[arm]]
name = "nvfp4"
extends = ["../presets/precision_nvfp4.toml"]
set = ["precision.keep_last=1"]
)";

std::string write_experiment(const std::string& text) {
  const std::string folder = testing::fresh_folder("experiment"), path = folder + "/experiments/study.toml";
  testing::write_text(path, text);
  for (const char* extended : {"/base/gpt_tiny.toml", "/presets/precision_nvfp4.toml"})
    testing::write_text(folder + extended, "");
  return path;
}

std::string error_of(const std::string& text) {
  try {
    read_experiment(write_experiment(text), {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(ExperimentFile, IsReadWhole) {
  const std::string path = write_experiment(kGood);
  const Experiment e = read_experiment(path, {"alpha=0.1"});
  const std::string folder = std::filesystem::path(path).parent_path().parent_path().string();
  EXPECT_EQ(e.name, "study");
  EXPECT_EQ(e.base, folder + "/base/gpt_tiny.toml");
  EXPECT_THAT(e.seeds, ElementsAre(3, 1, 2));
  EXPECT_EQ(e.metric, "val/accuracy");
  EXPECT_FALSE(e.lower_is_better);  // known from the name
  EXPECT_EQ(e.margin, 0.02);
  EXPECT_EQ(e.target, 0.5);
  EXPECT_EQ(e.alpha, 0.1);
  EXPECT_EQ(e.test, DecidingTest::kSignFlip);
  EXPECT_EQ(e.decide_by, DecideBy::kFinalValue);
  EXPECT_EQ(e.budget.kind, Axis::kTokens);
  EXPECT_EQ(e.budget.amount, 1e6);
  ASSERT_EQ(e.arms.size(), 2u);
  EXPECT_EQ(e.arms[0].name, "bf16");
  EXPECT_THAT(e.arms[1].extends, ElementsAre(folder + "/presets/precision_nvfp4.toml"));
  EXPECT_THAT(e.arms[1].set, ElementsAre("precision.keep_last=1"));
}

TEST(ExperimentFile, MistakesAreNamed) {
  const struct {
    const char* what;
    const char* with;
    const char* message;
  } cases[] = {
      {"seeds = [3, 1, 2]", "seeds = []", "seeds is empty"},
      {"seeds = [3, 1, 2]", "seeds = [1, 1]", "repeats a seed"},
      {"seeds = [3, 1, 2]", "seeds = [-1]", "negative"},
      {"margin = 0.02", "margin = -1", "expected a positive difference"},
      {"margin = 0.02", "marjin = 0.02", "margin"},
      {"budget = { tokens = 1000000 }", "", "no budget"},
      {"budget = { tokens = 1000000 }", "budget = { tokens = 1, steps = 2 }", "exactly one of"},
      {"budget = { tokens = 1000000 }", "budget = { token = 1 }", "exactly one of"},
      {"budget = { tokens = 1000000 }", "budget = 400", "exactly one of"},
      {"name = \"nvfp4\"", "name = \"bf16\"", "two arms are called 'bf16'"},
      {"name = \"nvfp4\"", "name = \"../up\"", "cannot name a folder"},
      {"name = \"nvfp4\"", "nom = \"x\"", "name"},
      {"test = \"sign_flip\"", "test = \"wilcoxon\"", "sign_flip"},
      {"target = 0.5", "decide_by = \"time_to_target\"", "needs target"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of(replaced(kGood, c.what, c.with)), HasSubstr(c.message)) << c.with;
  std::string one_arm = kGood;
  one_arm.resize(one_arm.rfind("[[arm]]"));
  EXPECT_THAT(error_of(one_arm), HasSubstr("at least two arms, found 1"));
}

constexpr const char* kSequential = R"(base = "../base/gpt_tiny.toml"
seeds = { from = 4 }
[sequential]
max_seeds = 10
first_look = 3
block = 2
method = "normal"
futility = 0.1
[budget]
steps = 10
[[arm]]
name = "a"
[[arm]]
name = "b"
)";

TEST(ExperimentFile, ASequentialRuleEndsAnOpenListOfSeeds) {
  const Experiment e = read_experiment(write_experiment(kSequential), {});
  ASSERT_TRUE(e.sequential);
  EXPECT_EQ(e.sequential->max_seeds, 10u);
  EXPECT_EQ(e.sequential->first_look, 3u);
  EXPECT_EQ(e.sequential->block, 2u);
  EXPECT_EQ(e.sequential->method, SequentialMethod::kNormal);
  EXPECT_EQ(e.sequential->futility, 0.1);
  EXPECT_THAT(e.seeds, ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  const std::string closed = replaced(kSequential, "{ from = 4 }", "[9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 11]");
  EXPECT_THAT(read_experiment(write_experiment(closed), {}).seeds,
              ElementsAre(9, 8, 7, 6, 5, 4, 3, 2, 1, 10));
  EXPECT_FALSE(read_experiment(write_experiment(kGood), {}).sequential);
}

TEST(ExperimentFile, MistakesOfASequentialRuleAreNamedWithTheirLine) {
  const struct {
    const char* what;
    const char* with;
    const char* message;
  } cases[] = {
      {"max_seeds = 10", "max_seeds = 2",
       "study.toml:4:13: max_seeds is 2, less than first_look, which is 3"},
      {"max_seeds = 10", "max_seeds = 1000000000", "study.toml:4:13: "},
      {"{ from = 4 }", "{ from = 9223372036854775807 }", "study.toml:2:"},
      {"block = 2", "block = 0", "study.toml:6:9: "},
      {"first_look = 3", "first_look = 1", "study.toml:5:14: "},
      {"method = \"normal\"", "method = \"t\"", "study.toml:7:10: "},
      {"futility = 0.1", "futility = 2", "study.toml:8:12: "},
      {"futility = 0.1", "futile = 0.1", "futil"},
      {"{ from = 4 }", "{ from = -1 }", "study.toml:2:"},
      {"{ from = 4 }", "{ form = 4 }", "from"},
      {"{ from = 4 }", "[1, 2, 3]",
       "study.toml:2:9: 3 seeds, fewer than [sequential] max_seeds, which is 10"},
      {"[sequential]", "test = \"t\"\n[sequential]",
       "study.toml:3:8: test = \"t\" is a rule for a number of pairs"},
      {"[sequential]", "decide_by = \"time_to_target\"\ntarget = 1.0\n[sequential]",
       "study.toml:3:13: decide_by"},
      {"[sequential]", "margin = 0.0\n[sequential]",
       "study.toml:3:10: margin is 0; expected a positive difference"},
      {"[sequential]\nmax_seeds = 10\nfirst_look = 3\nblock = 2\nmethod = \"normal\"\nfutility = 0.1\n", "",
       "study.toml:2:9: seeds = {from = 4} is an open list"},
      {"[sequential]\nmax_seeds = 10\nfirst_look = 3\nblock = 2\nmethod = \"normal\"\nfutility = 0.1\n",
       "sequential = 3\n", "study.toml:3:14: expected the table [sequential]"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of(replaced(kSequential, c.what, c.with)), HasSubstr(c.message)) << c.with;
  EXPECT_THAT(error_of(replaced(kSequential, "max_seeds = 10\n", "")), HasSubstr("max_seeds"));
}

TEST(Experiment, AgainstItselfKeepsInitialWeightsAndDrawsAnewOtherwise) {
  const Experiment e = against_itself(testing::sample_experiment(3));
  ASSERT_EQ(e.arms.size(), 2u);
  EXPECT_EQ(e.arms[1].name, "bf16-again");
  EXPECT_TRUE(e.arms[1].own_order);
  EXPECT_FALSE(e.arms[0].own_order);
  EXPECT_NO_THROW(validate(e));
}

TEST(Experiment, DirectionsOfKnownMetrics) {
  EXPECT_TRUE(lower_is_better("val/loss"));
  EXPECT_TRUE(lower_is_better("relative_l2"));
  EXPECT_FALSE(lower_is_better("val/accuracy"));
  EXPECT_FALSE(lower_is_better("val/auc"));
  EXPECT_FALSE(lower_is_better("train/tokens_per_s"));
}

}  // namespace
}  // namespace tenon::ab
