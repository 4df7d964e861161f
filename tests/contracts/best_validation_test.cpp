// Rehearses a recovery policy that returns to the best validation loss when it has risen for so many
// evaluations, and trains on at half the learning rate: it receives evaluations, chooses its own checkpoint
// and changes the rate, without a change of the core.
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/recovery.hpp>

#include <gmock/gmock.h>

#include <cmath>

namespace rehearsal::best_validation_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

class BackToBest final : public RecoveryBase {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("patience", "2"), option::integer("every", "2"),
                                            option::integer("times", "1")};
  static constexpr ComponentInfo kInfo{
      .id = "back_to_best", .summary = "the best validation loss again", .options = kOptions};
  explicit BackToBest(const Options& options)
      : patience_(options.integer("patience")),
        every_(options.integer("every")),
        times_(options.integer("times")) {}

  void start(const RecoveryStart& start) override {
    roll_backs_ = start.roll_backs;
    if (start.rolled_back) rises_ = 0;
  }
  void before_slot(SlotStart& slot) override {
    slot.rate_scale = std::pow(0.5, static_cast<double>(roll_backs_));
  }
  void on_evaluation(std::int64_t slot, std::string_view metric, double value) override {
    if (metric != "loss") return;
    if (best_slot_ < 0 || value < best_) {
      best_ = value;
      best_slot_ = slot;
      rises_ = 0;
    } else {
      ++rises_;
    }
  }
  BoundaryPlan plan_boundary(const SaveMoment&) override {
    BoundaryPlan plan;
    plan.rolls_back = rises_ >= patience_ && roll_backs_ < times_;
    plan.from_slot = best_slot_;
    plan.reason = "validation";
    return plan;
  }
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan;
    plan.save = moment.slot > 0 && moment.slot % every_ == 0;
    plan.background = false;  // none is skipped: any of them may be the best
    return plan;
  }
  int keep() const override { return static_cast<int>(patience_) + 2; }
  void state(StateVisitor& visitor) override {
    visitor.real("best", best_);
    visitor.integer("best_slot", best_slot_);
    visitor.integer("rises", rises_);
  }

 private:
  std::int64_t patience_, every_, times_;
  double best_ = 0;
  std::int64_t best_slot_ = -1, rises_ = 0, roll_backs_ = 0;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.best", .version = "1.0.0", .summary = "back to the best"},
                    BackToBest)

/// Each slot moves w away from the data, until the rate is halved.
std::vector<std::string> sets(int ranks) {
  return {"optimizer={type='sgd', lr=2.1}",
          "recovery={type='back_to_best'}",
          "run.steps=20",
          "run.eval_every=2",
          "run.log_every=1",
          "parallel.ranks=" + std::to_string(ranks),
          "transport={type='thread'}",
          "sync={type='ddp'}"};
}

class BestValidation : public ::testing::TestWithParam<int> {};

TEST_P(BestValidation, IsGoneBackToWhenTheLossHasRisenForSoManyEvaluations) {
  const Folder folder;
  const RunResult result = train(plugin, "", sets(GetParam()), folder);
  EXPECT_EQ(result.steps, 20);
  const auto files = make_posix_files();
  const std::string log = read_text(*files, folder.path + "/run/1/recovery.jsonl", 1 << 20);
  EXPECT_THAT(log, HasSubstr("\"slot\":7,")) << "evaluations before slots 2, 4 and 6, then the next boundary";
  EXPECT_THAT(log, HasSubstr(R"("action":"validation","from_slot":2)"));
  EXPECT_EQ(log.find("validation"), log.rfind("validation")) << "once";
  EXPECT_NEAR(result.metrics.at("train/lr"), 1.05, 1e-12);
}

TEST_P(BestValidation, AResumeIsTheRun) {
  const Folder folder;
  const RunResult whole = train(plugin, "", sets(GetParam()), folder, "whole");
  std::vector<std::string> budget = sets(GetParam());
  budget.push_back("run.max_samples=" + std::to_string(12 * 2 * GetParam()));
  EXPECT_EQ(train(plugin, "", budget, folder, "run").steps, 12);
  const RunResult resumed = train(plugin, "", sets(GetParam()), folder, "run", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Ranks, BestValidation, ::testing::Values(1, 2));

}  // namespace
}  // namespace rehearsal::best_validation_test
