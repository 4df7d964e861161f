// Conditions on runs that are compared: every unequal budget, evaluation set or configuration is refused with
// a message.
#include "ab/study.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tenon::ab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SyntheticRun;

SyntheticRun base_run(std::size_t arm, std::int64_t seed) {
  SyntheticRun run;
  run.seed = seed;
  run.final_loss = 2.0 + 0.01 * static_cast<double>(seed) + (arm == 1 ? 0.02 : 0);
  run.config = {{"precision.type", arm == 0 ? "\"bf16\"" : "\"nvfp4\""}};
  return run;
}

using Change = void (*)(SyntheticRun&);

Study study_with(const Experiment& e, Change change_in_second_arm, int jobs = 1) {
  const std::string folder = testing::fresh_folder("study");
  testing::write_runs(e, folder, [&](std::size_t arm, std::int64_t seed) {
    SyntheticRun run = base_run(arm, seed);
    if (arm == 1) change_in_second_arm(run);
    return run;
  });
  return load_study(e, folder, jobs, false);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& l : lines) out += l + "\n";
  return out;
}

TEST(Study, EqualRunsArePaired) {
  const Study s = study_with(testing::sample_experiment(2), [](SyntheticRun&) {});
  EXPECT_THAT(s.refusals, IsEmpty());
  ASSERT_EQ(s.config_difference.size(), 1u);
  EXPECT_EQ(s.config_difference[0].key, "precision.type");
  EXPECT_THAT(s.config_difference[0].values, ElementsAre("\"bf16\"", "\"nvfp4\""));
}

TEST(Study, WhatForbidsPairing) {
  const struct {
    const char* name;
    Change change;
    const char* message;
  } cases[] = {
      {"more samples", [](SyntheticRun& r) { r.batch = 32; }, "the budget differs: 6400 and 12800 samples"},
      {"more steps", [](SyntheticRun& r) { r.steps = 450; }, "consumed 450 steps, the budget is 400"},
      {"fewer steps", [](SyntheticRun& r) { r.steps = 350; }, "consumed 350 steps, the budget is 400"},
      {"other context", [](SyntheticRun& r) { r.context = 64; },
       "the evaluation set differs: data.context is 128 and 64"},
      {"other tokens", [](SyntheticRun& r) { r.context = 64; },
       "the budget differs: 819200 and 409600 tokens"},
      {"other evaluation", [](SyntheticRun& r) { r.config.emplace_back("run.eval_batches", "3"); },
       "the evaluation set differs: run.eval_batches is (absent) and 3"},
      {"other target", [](SyntheticRun& r) { r.config.emplace_back("run.target", "1.5"); },
       "the target differs"},
      {"failed", [](SyntheticRun& r) { r.status = "failed"; }, "the run is 'failed', not completed"},
      {"diverged", [](SyntheticRun& r) { r.final_loss = INFINITY; }, "diverged"},
      {"not one arm",
       [](SyntheticRun& r) {
         if (r.seed == 2) r.config.emplace_back("optimizer.lr", "0.5");
       },
       "arm 'nvfp4' is not one arm"},
  };
  for (const auto& c : cases) {
    const Study s = study_with(testing::sample_experiment(2), c.change);
    EXPECT_THAT(joined(s.refusals), HasSubstr(c.message)) << c.name;
  }
}

TEST(Study, OtherBatchIsFineWhenSamplesAreTheBudget) {
  Experiment e = testing::sample_experiment(2);
  e.budget = {Axis::kSamples, 6400};
  const auto twice_the_batch = [](SyntheticRun& r) {
    r.batch = 32;
    r.steps = 200;
  };
  EXPECT_THAT(study_with(e, twice_the_batch).refusals, IsEmpty());
  e.target = 2.2;  // evaluated at other sample counts: times to target would not be comparable
  EXPECT_THAT(joined(study_with(e, twice_the_batch).refusals), HasSubstr("same evaluation points"));
}

TEST(Study, SecondsNeedTheMachineAlone) {
  Experiment e = testing::sample_experiment(2);
  e.budget = {Axis::kSeconds, 4.4};
  EXPECT_THAT(study_with(
                  e, [](SyntheticRun&) {}, 1)
                  .refusals,
              IsEmpty());
  EXPECT_THAT(joined(study_with(
                         e, [](SyntheticRun&) {}, 2)
                         .refusals),
              HasSubstr("--jobs 1"));
  EXPECT_THAT(joined(study_with(e, [](SyntheticRun& r) { r.step_seconds = 0.02; }).refusals),
              HasSubstr("budget differs"));
}

TEST(Study, OtherDataIsRefused) {
  const Experiment e = testing::sample_experiment(1);
  const std::string folder = testing::fresh_folder("data");
  testing::write_runs(e, folder, base_run);
  const std::string manifest = run_parent(folder, "nvfp4", 1) + "/1/manifest.json";
  std::string text = testing::read_text_file(manifest);
  text.replace(text.find("86c4e6aa"), 8, "00000000");
  testing::write_text(manifest, text);
  EXPECT_THAT(joined(load_study(e, folder, 1, false).refusals),
              HasSubstr("the data differs: data[0].sha256"));
}

// A plugin that was rebuilt while the study ran, and one that took another's place when a run was resumed.
TEST(Study, OtherFilesOfOnePluginAreRefused) {
  const Experiment e = testing::sample_experiment(1);
  const std::string folder = testing::fresh_folder("plugins");
  testing::write_runs(e, folder, base_run);
  const std::string lock = run_parent(folder, "nvfp4", 1) + "/1/plugins.lock";
  const std::string text = testing::read_text_file(lock);
  testing::write_text(lock, testing::replaced(text, "9f86d081", "00000000"));
  EXPECT_THAT(joined(load_study(e, folder, 1, false).refusals),
              HasSubstr("plugins.lock differs: plugin.tenon.optimizer_adamw.sha256 is \"9f86d081"));
  testing::write_text(lock, text + testing::replaced(text, "9f86d081", "00000000") + "first_step = 7\n");
  const RunRecord run = read_run(run_parent(folder, "nvfp4", 1) + "/1");
  EXPECT_THAT(run.plugins_lock.at("plugin.tenon.optimizer_adamw.sha256"), HasSubstr("9f86d081"));
  EXPECT_THAT(run.plugins_lock.at("plugin.tenon.optimizer_adamw@7.sha256"), HasSubstr("00000000"));
}

TEST(Study, MissingRunsAreRefusalsAndTheNewestAttemptCounts) {
  const Experiment e = testing::sample_experiment(3);
  const std::string folder = testing::fresh_folder("attempt");
  testing::write_runs(e, folder, base_run);
  std::filesystem::remove_all(run_parent(folder, "bf16", 2));
  SyntheticRun failed = base_run(1, 3);
  failed.status = "failed";
  testing::write_run(run_parent(folder, "nvfp4", 3) + "/2", failed);
  const Study s = load_study(e, folder, 1, false);
  ASSERT_EQ(s.refusals.size(), 2u);
  EXPECT_THAT(s.refusals[0], HasSubstr("arm 'bf16', seed 2"));
  EXPECT_THAT(s.refusals[1], HasSubstr("/nvfp4/3/2"));
}

TEST(Study, SeedsThatChangeNothingAreRefused) {
  const Experiment e = testing::sample_experiment(3);
  const auto first_two_alike = [](SyntheticRun& r) {
    if (r.seed < 3) r.weights_hash = "0123";
  };
  const Study s = study_with(e, first_two_alike);
  ASSERT_EQ(s.refusals.size(), 1u) << joined(s.refusals);
  EXPECT_THAT(s.refusals[0],
              HasSubstr("arm 'nvfp4': seeds 1 and 2 ended with the same weights, bit for bit: they "
                        "are one run, not a sample of 2. Nothing that the seed changes"));
  const Study fixed = study_with(e, [](SyntheticRun& r) {
    r.weights_hash = "0123";
    r.config.emplace_back("run.seed_init", "5");
  });
  EXPECT_THAT(joined(fixed.refusals), HasSubstr("seeds 1, 2 and 3 ended with the same weights"));
  EXPECT_THAT(joined(fixed.refusals), HasSubstr("fixes run.seed_init = 5; leave that out"));
  EXPECT_THAT(joined(fixed.notes), HasSubstr("Arm 'nvfp4' fixes run.seed_init = 5"));
  // A seed that is written down but follows the study's is not fixed.
  EXPECT_THAT(
      joined(study_with(
                 e, [](SyntheticRun& r) { r.config.emplace_back("run.seed_init", std::to_string(r.seed)); })
                 .notes),
      ::testing::Not(HasSubstr("fixes")));
}

TEST(Study, AnAaStudyWithUnequalConfigurationsIsRefused) {
  const Experiment e = testing::sample_experiment(2);
  const std::string folder = testing::fresh_folder("aa");
  testing::write_runs(e, folder, base_run);
  EXPECT_THAT(joined(load_study(e, folder, 1, true).refusals), HasSubstr("equal configurations"));
}

}  // namespace
}  // namespace tenon::ab
