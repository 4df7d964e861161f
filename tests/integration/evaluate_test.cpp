// tenon evaluate on whole runs: the numbers that training reported, other data and settings, values for other
// programs, and refusals.
#include "run_program.hpp"

#include <regex>

namespace tenon::integration::evaluate_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Evaluate : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(scratch_.train().status, 0); }
  Ended evaluate(std::vector<std::string> more) const {
    more.insert(more.begin(), {"evaluate", "runs/tiny"});
    const Ended ended = scratch_.run(std::move(more));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended;
  }
  static double number(const std::string& json, const std::string& key) {
    std::smatch found;
    const bool there = std::regex_search(json, found, std::regex("\"" + key + "\": ([^,\\n}]*)"));
    EXPECT_TRUE(there) << key << " in " << json;
    return there ? std::stod(found[1]) : 0;
  }
  Scratch scratch_;
};

TEST_F(Evaluate, MeasuresWhatTrainingReportedAtItsEnd) {
  const std::string json = evaluate({"--json"}).out;
  EXPECT_EQ(number(json, "val/loss"), std::stod(scratch_.summary("val/loss")));
  EXPECT_EQ(number(json, "step"), 6);
  EXPECT_NE(number(evaluate({"--json", "--step", "4"}).out, "val/loss"), number(json, "val/loss"));
  EXPECT_THAT(evaluate({}).out, StartsWith("step 6 of runs/tiny/1, "));
}

TEST_F(Evaluate, TakesOtherDataAndLeavesTheRunAsItIs) {
  const auto before = tree(scratch_ / "runs");
  write_file(scratch_ / "other.txt", std::string(3000, 'a'));
  const double as_trained = number(evaluate({"--json"}).out, "val/loss");
  EXPECT_NE(number(evaluate({"--json", "--set", "data.path='other.txt'"}).out, "val/loss"), as_trained);
  EXPECT_NEAR(number(evaluate({"--json", "--set", "data.batch=1"}).out, "val/loss"), as_trained, 1e-5);
  EXPECT_EQ(changes(scratch_ / "runs", before), std::vector<std::string>{});
}

TEST_F(Evaluate, WritesValuesOfANodePerSample) {
  const Ended ended = evaluate({"--write", "transformer.wte=values.npy", "--json"});
  const auto samples = static_cast<int>(number(ended.out, "samples"));
  EXPECT_THAT(read_file(scratch_ / "values.npy"), HasSubstr("'shape': (" + std::to_string(samples) + ", "));
  EXPECT_THAT(read_file(scratch_ / "values.npy"), HasSubstr("'descr': '<f4'"));
}

// The operator of configs/base on a coarse grid, then on a finer one with the same weights.
TEST(EvaluateOnAnotherGrid, AnOperatorKeepsItsError) {
  const Scratch scratch;
  const Ended trained =
      scratch.run({"train", TENON_SOURCE_DIR "/configs/base/fno_darcy.toml", "--quiet", "--set",
                   "run.steps=60", "--set", "model.width=8", "--set", "recovery.type='full'"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto error = [&](std::vector<std::string> sets) {
    std::vector<std::string> words{"evaluate", "runs/fno_darcy", "--json"};
    for (std::string& set : sets) {
      words.emplace_back("--set");
      words.push_back(std::move(set));
    }
    const Ended ended = scratch.run(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    std::smatch found;
    EXPECT_TRUE(std::regex_search(ended.out, found, std::regex("\"val/relative_l2\": ([0-9.e-]*)")))
        << ended.out;
    return std::stod(found[1]);
  };
  std::vector<std::string> finer{"data.shapes=['x=1x32x32', 'y=1x32x32']"};
  for (const std::string prefix : {"", "val_"}) {
    finer.push_back("data." + prefix + "inputs=['x=data/darcy/darcy_test_32_x.npy']");
    finer.push_back("data." + prefix + "targets=['y=data/darcy/darcy_test_32_y.npy']");
  }
  const double coarse = error({}), fine = error(finer);
  EXPECT_LT(coarse, 0.6) << "a field of zeros has 1";
  EXPECT_NEAR(fine, coarse, 0.1);
  EXPECT_NE(fine, coarse);
}

TEST_F(Evaluate, RefusesWhatItCannotDo) {
  const struct {
    std::vector<std::string> words;
    const char* says;
  } cases[] = {
      {{"evaluate"}, "tenon evaluate: usage: tenon evaluate RUN [options]"},
      {{"evaluate", "runs/tiny", "--write", "wte"},
       "tenon evaluate: --write is 'wte', expected NODE=FILE.npy"},
      {{"evaluate", "runs/tiny", "--write", "nothing=a.npy"},
       "tenon evaluate: --write: the graph has no node 'nothing'; it has transformer.wte, "},
      {{"evaluate", "runs/tiny", "--step", "3"},
       "tenon evaluate: runs/tiny/1 has no checkpoint of step 3; it has"},
      {{"evaluate", "runs/tiny", "--set", "model.width=32"}, "model/"},
  };
  for (const auto& c : cases) {
    const Ended ended = scratch_.run(c.words);
    EXPECT_NE(ended.status, 0) << c.says;
    EXPECT_THAT(ended.err, HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace tenon::integration::evaluate_test
