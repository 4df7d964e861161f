// Whole runs with every update rule that keeps state: equal bits when a run is interrupted and continued, and
// the same rule on two ranks.
#include "run_program.hpp"

namespace tenon::integration::optimizers_test {
namespace {

struct Rule {
  const char* name;
  std::vector<std::string> sets;
};

void PrintTo(const Rule& rule, std::ostream* out) {
  *out << rule.name;
}

class Rules : public ::testing::TestWithParam<Rule> {
 protected:
  Ended train(const Scratch& scratch, std::vector<std::string> sets, bool resume = false) const {
    sets.insert(sets.begin(), GetParam().sets.begin(), GetParam().sets.end());
    std::vector<std::string> words;
    for (const std::string& set : sets) {
      words.emplace_back("--set");
      words.push_back(set);
    }
    if (resume) words.emplace_back("--resume");
    const Ended ended = scratch.train(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended;
  }
};

TEST_P(Rules, ContinueToTheSameBits) {
  const Scratch whole, cut;
  train(whole, {});
  train(cut, {"run.max_samples=6"});  // three slots
  EXPECT_EQ(cut.summary("steps"), "3");
  train(cut, {}, true);
  EXPECT_EQ(cut.summary("steps"), "6");
  EXPECT_EQ(cut.summary("weights_hash"), whole.summary("weights_hash"));
  EXPECT_EQ(cut.summary("state_hash"), whole.summary("state_hash"));
}

TEST_P(Rules, LowerTheLoss) {
  const Scratch scratch;
  train(scratch, {"run.steps=80", "recovery.every=1000"});
  EXPECT_LT(std::stod(scratch.summary("val/loss")), 3.5) << "ln 256 = 5.55 at the start";
}

TEST_P(Rules, WorkOnTwoRanks) {
  const Scratch first, second;
  for (const Scratch* scratch : {&first, &second})
    train(*scratch, {"parallel.ranks=2", "transport.type=thread", "sync.type=ddp"});
  EXPECT_EQ(first.summary("state_hash"), second.summary("state_hash"));
}

INSTANTIATE_TEST_SUITE_P(All, Rules,
                         ::testing::Values(Rule{"adagrad", {"optimizer.type=adagrad", "optimizer.lr=0.05"}},
                                           Rule{"rowwise_adagrad",
                                                {"optimizer.type=rowwise_adagrad", "optimizer.lr=0.05"}},
                                           Rule{"lamb", {"optimizer.type=lamb", "optimizer.lr=0.02"}},
                                           Rule{"muon",
                                                {"optimizer.type=muon", "optimizer.lr=0.02",
                                                 "optimizer.inner.type=adamw", "optimizer.inner.lr=0.01"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Muon, NeedsTheRuleInside) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "optimizer.type=muon"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, ::testing::HasSubstr("inner"));
}

}  // namespace
}  // namespace tenon::integration::optimizers_test
