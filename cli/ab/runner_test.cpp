// The runner against a stand-in for the program: order, arguments, failures, deadlines and signals.
#include "ab/ab.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include <signal.h>
#include <unistd.h>

namespace tenon::ab {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunnerOptions options_for(const std::string& folder, const std::string& body) {
  RunnerOptions o;
  o.folder = folder + "/study";
  o.program = testing::stand_in(folder, body);
  o.stop_grace_s = 1;
  return o;
}

TEST(Runner, SaysWhichSeedsAnArmFixes) {
  const std::string folder = testing::fresh_folder("fixed_seeds");
  testing::write_text(folder + "/base.toml", "[run]\nseed = 1\nseed_init = 5\n");
  Experiment e = testing::sample_experiment(2);
  e.base = folder + "/base.toml";
  e.arms[1].own_order = true;
  const std::vector<std::string> warnings = fixed_seed_warnings(e);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("arm 'bf16' fixes run.seed_init (" + folder + "/base.toml:3:"));
}

TEST(Runner, ArmsChangePlacesFromSeedToSeed) {
  const Experiment e = testing::sample_experiment(3);
  RunnerOptions o;
  o.program = "tenon";
  o.folder = "/out";
  std::string order;
  for (const Job& job : plan_jobs(e, o)) order += e.arms[job.arm].name[0] + std::to_string(job.seed) + " ";
  EXPECT_EQ(order, "b1 n1 n2 b2 b3 n3 ");
}

TEST(Runner, CommandsNameBudgetSeedAndFolder) {
  Experiment e = testing::sample_experiment(1);
  e.arms[1].set = {"precision.type=nvfp4"};
  RunnerOptions o;
  o.program = "tenon";
  o.folder = "/out";
  EXPECT_THAT(
      plan_jobs(e, o)[1].command,
      ElementsAre("tenon", "train", "/out/arms/nvfp4.toml", "--set", "precision.type=nvfp4", "--set",
                  "run.steps=400", "--set", "run.seed=1", "--run-dir", "/out/runs/nvfp4/1", "--quiet"));
  const struct {
    Budget budget;
    const char* set;
  } budgets[] = {{{Axis::kSamples, 1e6}, "run.max_samples=1000000"},
                 {{Axis::kTokens, 12345678}, "run.max_tokens=12345678"},
                 {{Axis::kSeconds, 2.5}, "run.max_seconds=2.5"},
                 {{Axis::kBytes, 3e9}, "run.max_bytes=3000000000"}};
  for (const auto& b : budgets) EXPECT_THAT(budget_sets(b.budget), ElementsAre(b.set));
}

TEST(Runner, TheCopyOfAnAaStudySharesInitialWeightsOnly) {
  RunnerOptions o;
  o.folder = "/out";
  const auto jobs = plan_jobs(against_itself(testing::sample_experiment(1)), o);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_THAT(jobs[0].command, ::testing::Not(Contains(HasSubstr("seed_order"))));
  EXPECT_THAT(jobs[1].command, Contains("run.seed_init=1"));
  EXPECT_THAT(jobs[1].command, Contains("run.seed_order=" + std::to_string(other_seed(1))));
  EXPECT_THAT(jobs[1].command, Contains("run.seed_rounding=" + std::to_string(other_seed(1))));
}

TEST(Runner, ArmFilesHoldTheMergedConfiguration) {
  Experiment e = testing::sample_experiment(1);
  const std::string folder = testing::fresh_folder("runner_arm");
  e.base = folder + "/base.toml";
  e.arms[1].extends = {folder + "/preset.toml"};
  testing::write_text(e.base,
                      "[optimizer]\ntype = \"adamw\"\nbetas = [0.9, 0.95]\n[run]\nname = \"a \\\"b\\\"\"\n");
  testing::write_text(folder + "/preset.toml", "[optimizer]\ntype = \"sgd\"\n");
  const std::string text = arm_file_text(e, e.arms[1], {});
  EXPECT_THAT(text, HasSubstr("type = \"sgd\""));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("betas")));
  EXPECT_THAT(text, HasSubstr(R"(name = "a \"b\"")"));
  EXPECT_THAT(arm_file_text(e, e.arms[0], {}), HasSubstr("betas = [0.9, 0.95]"));
  e.arms[1].extends = {folder + "/missing.toml"};
  EXPECT_THROW(arm_file_text(e, e.arms[1], {}), Error);
}

TEST(Runner, ArmFilesNamePluginsWhereTheirFileMeantThem) {
  Experiment e = testing::sample_experiment(1);
  const std::string folder = testing::fresh_folder("runner_plugins");
  e.base = folder + "/base.toml";
  testing::write_text(folder + "/build/lion.so", "");
  testing::write_text(e.base, "[plugins]\npaths = [\"build/lion.so\", \"/tmp\"]\n");
  EXPECT_THAT(arm_file_text(e, e.arms[0], {}),
              HasSubstr("paths = [\"" + folder + "/build/lion.so\", \"/tmp\"]"));
}

// Every path of the base becomes absolute, values of --set stay out, and what a change of type dropped is
// noted.
TEST(Runner, ArmFilesHoldAbsolutePathsAndNoteWhatATypeDropped) {
  Experiment e = testing::sample_experiment(1);
  const std::string folder = testing::fresh_folder("runner_paths");
  e.base = folder + "/base.toml";
  testing::write_text(e.base,
                      "[data]\ntype = \"text\"\npath = \"a.txt\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.5\n");
  testing::write_text(folder + "/arm.toml", "[optimizer]\ntype = \"adamw\"\n");
  e.arms[1].extends = {folder + "/arm.toml"};
  RunnerOptions options;
  options.folder = folder;
  std::vector<std::string> said;
  options.progress = [&](const std::string& line, bool) { said.push_back(line); };
  options.resolve = [&](const Config& run) {
    Value root = run.root();
    const Origin origin = root.find("data")->find("path")->origin;
    root.find("data")->set("path", Value(folder + "/a.txt"), origin).origin = origin;
    if (root.find("optimizer")->find("lr") == nullptr)
      root.find("optimizer")->set("lr", Value(0.001), Origin{"default", 0, 0}).origin =
          Origin{"default", 0, 0};
    return run.with_root(std::move(root));
  };
  write_arm_files(e, options);
  const std::string text = arm_file_text(e, e.arms[1], options);
  EXPECT_THAT(text, HasSubstr("path = \"" + folder + "/a.txt\""));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("seed")));
  const std::string note = "optimizer.lr = 0.5 (" + folder +
                           "/base.toml:6:6) was dropped when the type of its table changed (" + folder +
                           "/arm.toml:2:8); the new type has it, too: 0.001 (default)";
  EXPECT_EQ(arm_notes(folder, e.arms[1]), std::vector<std::string>{note});
  EXPECT_EQ(said, std::vector<std::string>{"arm '" + e.arms[1].name + "': " + note});
  options.resolve = [](const Config&) -> Config { fail_config("no such thing"); };
  try {
    arm_file_text(e, e.arms[0], options);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot run here, and nothing was started. Arm '" + e.arms[0].name +
                                        "': no such thing"));
  }
}

TEST(Runner, AFailureIsReportedWithItsLogAndTheOthersGoOn) {
  const std::string folder = testing::fresh_folder("runner_fail");
  const RunnerOptions o = options_for(
      folder, "echo working on $seed\ncase \"$dir\" in */nvfp4/2) echo boom >&2; exit 3;; esac\n");
  const RunnerResult r = run_jobs(testing::sample_experiment(3), o);
  EXPECT_EQ(r.completed, 5u);
  ASSERT_EQ(r.failed.size(), 1u);
  EXPECT_EQ(r.failed[0].status, 3);
  EXPECT_EQ(r.failed[0].job.seed, 2);
  EXPECT_EQ(r.failed[0].log_tail, "working on 2\nboom");
  EXPECT_FALSE(r.interrupted);
}

TEST(Runner, JobsRunSideBySide) {
  const std::string folder = testing::fresh_folder("runner_jobs");
  RunnerOptions o = options_for(folder, "sleep 0.5");
  o.jobs = 6;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run_jobs(testing::sample_experiment(3), o).completed, 6u);
  // Sequential runs would take 3 s; the bound leaves room for a busy machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2500));
}

TEST(Runner, ARunBeyondItsDeadlineIsStoppedAndThenKilled) {
  const std::string folder = testing::fresh_folder("runner_deadline");
  RunnerOptions o = options_for(folder, "trap '' TERM\ncase $seed in 1) while :; do sleep 0.05; done;; esac");
  o.run_deadline_s = 0.4;
  o.stop_grace_s = 0.3;
  o.jobs = 2;
  const RunnerResult r = run_jobs(testing::sample_experiment(2), o);
  EXPECT_EQ(r.completed, 2u);
  ASSERT_EQ(r.failed.size(), 2u);
  EXPECT_THAT(r.failed[0].reason, HasSubstr("deadline"));
}

TEST(Runner, CtrlCReachesTheRunsAndEndsTheStudy) {
  const std::string folder = testing::fresh_folder("runner_signal");
  RunnerOptions o =
      options_for(folder, "trap 'echo saved; exit 130' INT\necho ready\nwhile :; do sleep 0.05; done");
  o.stop_grace_s = 10;
  std::thread impatient([&] {
    const std::string log = o.folder + "/runs/bf16/1/output.log";
    for (int i = 0; i < 200 && testing::read_text_file(log).find("ready") == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    kill(getpid(), SIGINT);
  });
  const RunnerResult r = run_jobs(testing::sample_experiment(3), o);
  impatient.join();
  EXPECT_TRUE(r.interrupted);
  ASSERT_EQ(r.failed.size(), 1u);
  EXPECT_EQ(r.failed[0].status, 130);
  EXPECT_THAT(r.failed[0].log_tail, HasSubstr("saved"));
}

TEST(Runner, AProgramThatCannotStartFailsEveryRun) {
  RunnerOptions o;
  o.folder = testing::fresh_folder("runner_none");
  o.program = "/nonexistent/tenon";
  const RunnerResult r = run_jobs(testing::sample_experiment(1), o);
  ASSERT_EQ(r.failed.size(), 2u);
  EXPECT_THAT(r.failed[0].reason, HasSubstr("cannot start '/nonexistent/tenon'"));
}

TEST(Runner, SecondsAsBudgetRefuseSharedMachines) {
  Experiment e = testing::sample_experiment(1);
  e.budget = {Axis::kSeconds, 1};
  RunnerOptions o;
  o.folder = testing::fresh_folder("runner_seconds");
  o.jobs = 2;
  EXPECT_THROW(run_jobs(e, o), Error);
}

// The whole study with prepared runs that the stand-in copies into place.
class Course : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::fresh_folder("course");
    testing::write_runs(experiment_, folder_ + "/prepared", [](std::size_t arm, std::int64_t seed) {
      testing::SyntheticRun run;
      run.seed = seed;
      run.final_loss = 2 + 0.01 * static_cast<double>(seed) + 0.02 * static_cast<double>(arm) +
                       0.001 * testing::normal_deviate(static_cast<std::uint64_t>(seed), arm);
      return run;
    });
  }
  StudyOptions options(const std::string& extra) {
    StudyOptions o;
    o.folder = folder_ + "/study";
    o.program =
        testing::stand_in(folder_, extra + "\nmkdir -p \"$dir\" && cp -r \"" + folder_ +
                                       "/prepared/runs/$(basename $(dirname \"$dir\"))/$seed/1\" \"$dir/1\"");
    o.progress = [this](const std::string& line, bool finished) {
      if (finished) finished_.push_back(line);
    };
    return o;
  }
  Experiment experiment_ = testing::sample_experiment(4);
  std::string folder_;
  std::vector<std::string> finished_;
};

TEST_F(Course, EndsInReportsWithAVerdict) {
  const StudyOutcome out = run_study(experiment_, options(""));
  EXPECT_EQ(out.exit_status, 0);
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kWorse);
  EXPECT_THAT(closing_text(out), HasSubstr("nvfp4 is worse than bf16"));
  EXPECT_THAT(testing::read_text_file(out.report_html_path), HasSubstr("nvfp4 is worse than bf16"));
  ASSERT_EQ(finished_.size(), 8u);
  EXPECT_THAT(finished_[0], HasSubstr("ab 1/8 runs: bf16 seed 1 done in"));
  EXPECT_TRUE(is_study_folder(folder_ + "/study"));
  const std::string first = testing::read_text_file(out.report_json_path);
  EXPECT_EQ(testing::read_text_file(report_study(folder_ + "/study").report_json_path), first);
}

TEST_F(Course, AnIncompletePairGivesNoVerdict) {
  const StudyOutcome out =
      run_study(experiment_, options("case \"$dir\" in */bf16/3) echo disk full; exit 1;; esac"));
  EXPECT_EQ(out.exit_status, 1);
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kNone);
  EXPECT_THAT(closing_text(out), HasSubstr("| disk full"));
  EXPECT_THAT(testing::read_text_file(out.report_html_path), HasSubstr("No verdict"));
}

TEST_F(Course, AFolderWithoutStudyIsRefused) {
  EXPECT_FALSE(is_study_folder(folder_));
  EXPECT_THROW(report_study(folder_), Error);
}

}  // namespace
}  // namespace tenon::ab
