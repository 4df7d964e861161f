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
