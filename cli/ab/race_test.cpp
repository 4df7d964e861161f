// Sequential studies with prepared runs that a stand-in for the program copies into place: which runs are
// made, when arms leave, and what forbids going on.
#include "ab/ab.hpp"
#include "ab/verdict_line.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::ab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

/// Final losses by arm and seed; NAN: the run diverges.
using Losses = std::function<double(std::size_t arm, std::int64_t seed)>;

class RaceTest : public ::testing::Test {
 protected:
  void prepare(std::size_t arms, const SequentialRule& rule, const Losses& losses) {
    folder_ = testing::fresh_folder("race");
    experiment_ = testing::sample_experiment(rule.max_seeds);
    testing::write_text(folder_ + "/base.toml", "[run]\nsteps = 400\n");
    experiment_.base = folder_ + "/base.toml";
    while (experiment_.arms.size() < arms) {
      Arm arm = experiment_.arms.back();
      arm.name = "arm" + std::to_string(experiment_.arms.size());
      experiment_.arms.push_back(arm);
    }
    for (Arm& arm : experiment_.arms) arm.extends.clear();
    experiment_.budget.amount = steps_;
    experiment_.sequential = rule;
    testing::write_runs(experiment_, folder_ + "/prepared", [&](std::size_t arm, std::int64_t seed) {
      testing::SyntheticRun run;
      run.seed = seed;
      run.final_loss = losses(arm, seed);
      run.steps = steps_;
      run.eval_every = steps_ / 8;
      run.weights_hash = same_weights_ ? "same" + std::to_string(seed) : "";
      return run;
    });
  }

  StudyOptions options(const std::string& before = "") const {
    StudyOptions o;
    o.folder = study();
    o.program = testing::stand_in(
        folder_, "arm=$(basename $(dirname \"$dir\"))\necho $arm $seed >>" + folder_ + "/made\n" + before +
                     "\nn=1; while [ -e \"$dir/$n\" ]; do n=$((n+1)); done\nmkdir -p \"$dir\" && cp -r \"" +
                     folder_ + "/prepared/runs/$arm/$seed/1\" \"$dir/$n\"");
    return o;
  }

  std::string study() const { return folder_ + "/study"; }

  /// Runs that were started, by arm.
  std::map<std::string, int> made() const {
    std::map<std::string, int> out;
    std::ifstream in(folder_ + "/made");
    std::string seed;
    for (std::string arm; in >> arm >> seed;) ++out[arm];
    return out;
  }

  std::string error_of(const StudyOptions& options) const {
    try {
      run_study(experiment_, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Experiment experiment_;
  std::string folder_;
  bool same_weights_ = false;
  int steps_ = 400;
};

double noise(std::size_t arm, std::int64_t seed) {
  return testing::normal_deviate(static_cast<std::uint64_t>(seed), arm + 17);
}

/// The second arm is worse by three deviations, the third better, further ones are alike.
double planted(std::size_t arm, std::int64_t seed) {
  const double shift[] = {0, 0.03, -0.03, 0, 0};
  return 2 + 0.05 * noise(90, seed) + shift[arm] + 0.007 * noise(arm, seed);
}

constexpr SequentialRule kNormalRule{
    .max_seeds = 24, .first_look = 5, .block = 2, .method = SequentialMethod::kNormal};

TEST_F(RaceTest, EndsAtTheFirstConclusionAndMakesNoFurtherRun) {
  prepare(2, kNormalRule, planted);
  for (const int jobs : {1, 3}) {
    fs::remove_all(study());
    fs::remove(folder_ + "/made");
    StudyOptions o = options();
    o.jobs = jobs;
    const StudyOutcome out = run_study(experiment_, o);
    ASSERT_EQ(out.exit_status, 0) << closing_text(out);
    const Comparison& c = out.result.comparisons[0];
    EXPECT_EQ(c.verdict.outcome, Outcome::kWorse);
    const std::size_t pairs = c.primary.differences.size();
    EXPECT_LT(pairs, 24u);
    EXPECT_EQ(pairs % 2, 1u);  // 5, 7, 9, ...
    EXPECT_EQ(c.sequential->course.pairs, pairs);
    const int n = static_cast<int>(pairs);
    EXPECT_EQ(made(), (std::map<std::string, int>{{"bf16", n}, {"nvfp4", n}}));
    EXPECT_EQ(verdict_status(out), 11);
  }
}

TEST_F(RaceTest, ArmsLeaveOneByOneAndTheBaselineGoesOn) {
  SequentialRule rule = kNormalRule;
  rule.max_seeds = 12;
  prepare(4, rule, planted);
  const StudyOutcome out = run_study(experiment_, options());
  ASSERT_EQ(out.exit_status, 0) << closing_text(out);
  const std::vector<Comparison>& c = out.result.comparisons;
  EXPECT_EQ(c[0].verdict.outcome, Outcome::kWorse);
  EXPECT_EQ(c[1].verdict.outcome, Outcome::kBetter);
  EXPECT_EQ(c[2].verdict.outcome, Outcome::kUndecided);
  EXPECT_DOUBLE_EQ(c[0].sequential->alpha, 0.05 / 3);
  const std::map<std::string, int> runs = made();
  EXPECT_LT(runs.at("nvfp4"), 12);
  EXPECT_LT(runs.at("arm2"), 12);
  EXPECT_EQ(runs.at("arm3"), 12);
  EXPECT_EQ(runs.at("bf16"), 12);
  EXPECT_EQ(c[0].seeds.size(), static_cast<std::size_t>(runs.at("nvfp4")));
  EXPECT_THAT(c[2].verdict.sentences, ::testing::Contains(HasSubstr("At the present effect and deviation")));
  EXPECT_EQ(verdict_status(out), 10);
  // The reports again, from the folder alone.
  const std::string first = testing::read_text_file(out.report_json_path);
  EXPECT_EQ(testing::read_text_file(report_study(study()).report_json_path), first);
  EXPECT_EQ(made(), runs);
}

TEST_F(RaceTest, IdenticalArmsEndAtTheFirstLook) {
  same_weights_ = true;
  prepare(2, kNormalRule, [](std::size_t, std::int64_t seed) { return planted(0, seed); });
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kIdentical);
  EXPECT_EQ(made().at("bf16"), 5);
  EXPECT_EQ(verdict_status(out), 14);
}

TEST_F(RaceTest, EquivalenceEndsARace) {
  prepare(2, kNormalRule, [](std::size_t arm, std::int64_t seed) { return 2 + 0.001 * noise(arm, seed); });
  experiment_.margin = 0.05;
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kEquivalent);
  EXPECT_EQ(verdict_status(out), 12);
}

TEST_F(RaceTest, FinishedRunsAreNotRepeated) {
  prepare(2, kNormalRule, planted);
  const StudyOutcome broken = run_study(
      experiment_,
      options("[ $seed = 4 ] && [ ! -e " + folder_ + "/once ] && touch " + folder_ + "/once && exit 3"));
  EXPECT_EQ(broken.exit_status, 1);
  EXPECT_EQ(broken.runs.failed.size(), 1u);
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kWorse);
  const int n = static_cast<int>(out.result.comparisons[0].primary.differences.size());
  EXPECT_EQ(made().at("bf16") + made().at("nvfp4"), 2 * n + 1);  // the failed one alone was made twice
}

TEST_F(RaceTest, FutilityEndsARaceUndecided) {
  SequentialRule rule = kNormalRule;
  rule.futility = 0.2;
  prepare(2, rule, [](std::size_t arm, std::int64_t seed) {
    return 2 + (arm == 0 ? 0 : seed % 2 == 0 ? 0.01 : -0.01) + 0.0001 * noise(arm, seed);
  });
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kUndecided);
  EXPECT_TRUE(out.result.comparisons[0].sequential->course.futile);
  EXPECT_THAT(closing_text(out), HasSubstr("Stopped as futile"));
  EXPECT_LT(made().at("bf16"), 24);
  EXPECT_EQ(testing::read_text_file(report_study(study()).report_json_path),
            testing::read_text_file(out.report_json_path));
}

TEST_F(RaceTest, TheReportOfAStudyThatGoesOnStandsAtItsLastLook) {
  prepare(2, kNormalRule, [](std::size_t arm, std::int64_t seed) { return 2 + 0.01 * noise(arm, seed); });
  EXPECT_EQ(run_study(experiment_, options("[ $seed = 8 ] && exit 3")).exit_status, 1);
  const std::string looks = testing::read_text_file(study() + "/looks.json");
  const StudyOutcome report = report_study(study());
  EXPECT_EQ(report.exit_status, 0);
  EXPECT_EQ(report.result.verdict().outcome, Outcome::kUndecided);
  EXPECT_EQ(report.result.comparisons[0].primary.differences.size(), 7u);
  EXPECT_THAT(closing_text(report), HasSubstr("The study is not over: 7 pairs of at most 24."));
  EXPECT_EQ(testing::read_text_file(study() + "/looks.json"), looks);
  EXPECT_EQ(verdict_status(report), 13);
}

TEST_F(RaceTest, AHundredPairsAreReportedInTwoSeconds) {
  SequentialRule rule = kNormalRule;
  rule.max_seeds = 100;
  rule.block = 1;
  steps_ = 16;
  prepare(2, rule, [](std::size_t arm, std::int64_t seed) { return 2 + 0.01 * noise(arm, seed); });
  fs::create_directories(study());
  fs::rename(folder_ + "/prepared/runs", study() + "/runs");
  testing::write_text(study() + "/experiment.json", study_record_json({experiment_, 1, false}));
  const std::clock_t begun = std::clock();  // of the processor: other tests may have the machine
  const StudyOutcome out = report_study(study());
  const double took = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  EXPECT_EQ(out.result.comparisons.at(0).sequential->course.looks.size(), 96u);
  EXPECT_LT(took, 2);
  EXPECT_NE(testing::read_text_file(out.report_html_path).find("All 96 looks"), std::string::npos);
}

TEST_F(RaceTest, APlanThatWasEditedIsRefused) {
  prepare(2, kNormalRule, planted);
  run_study(experiment_, options());
  const std::map<std::string, int> runs = made();
  experiment_.path = "/elsewhere/the_same.toml";
  EXPECT_EQ(error_of(options()), "");  // the name is no part of the plan
  experiment_.alpha = 0.1;
  EXPECT_THAT(error_of(options()), HasSubstr("was edited after"));
  EXPECT_THAT(error_of(options()), HasSubstr("--restart"));
  experiment_.alpha = 0.05;
  testing::write_text(experiment_.base, "[run]\nsteps = 401\n");
  EXPECT_THAT(error_of(options()), HasSubstr("was edited after"));
  EXPECT_EQ(made(), runs);
  StudyOptions again = options();
  again.restart = true;
  EXPECT_EQ(run_study(experiment_, again).result.verdict().outcome, Outcome::kWorse);
  EXPECT_EQ(made().at("bf16"), 2 * runs.at("bf16"));
  EXPECT_TRUE(fs::exists(study() + "/earlier/1/runs/bf16/1/1/summary.json"));
  EXPECT_TRUE(fs::exists(study() + "/earlier/1/report.html"));
}

TEST_F(RaceTest, ARunThatDisappearsBetweenLooksIsNamed) {
  prepare(2, kNormalRule, planted);
  run_study(experiment_, options());
  fs::rename(study() + "/runs/nvfp4/3", folder_ + "/gone");
  EXPECT_THAT(error_of(options()), HasSubstr("arm 'nvfp4', seed 3: a look has used the run"));
  EXPECT_THAT(error_of(options()), HasSubstr("it is gone"));
  EXPECT_THROW(report_study(study()), Error);
  fs::rename(folder_ + "/gone", study() + "/runs/nvfp4/3");
  EXPECT_EQ(error_of(options()), "");
  // Another value in its place.
  fs::remove_all(study() + "/runs/nvfp4/3/1");
  fs::copy(folder_ + "/prepared/runs/nvfp4/4/1", study() + "/runs/nvfp4/3/1", fs::copy_options::recursive);
  EXPECT_THAT(error_of(options()), HasSubstr("a look has used val/loss"));
  fs::create_directories(study() + "/runs/nvfp4/3/2");
  EXPECT_THAT(error_of(options()), HasSubstr("newer attempt 2"));
}

TEST_F(RaceTest, AStudyHasOneProcessAtATime) {
  prepare(2, kNormalRule, planted);
  fs::create_directories(study());
  {
    const FileLock held = lock_study(study());
    const std::string error = error_of(options());
    EXPECT_THAT(error,
                HasSubstr("process " + std::to_string(getpid()) + " works on the study in " + study()));
    EXPECT_THAT(error, HasSubstr("--out"));
    EXPECT_TRUE(made().empty());
  }
  // The lock ends with its process, and children that live on do not have it.
  const std::string sign = folder_ + "/locked";
  const pid_t holder = fork();
  if (holder == 0) {
    const FileLock held = lock_study(study());
    if (fork() == 0) {
      execl("/bin/sleep", "sleep", "5", static_cast<char*>(nullptr));
      _exit(1);
    }
    std::ofstream(sign) << 1;
    for (;;) pause();
  }
  while (!fs::exists(sign)) usleep(1000);
  EXPECT_THAT(error_of(options()), HasSubstr("process " + std::to_string(holder) + " works on"));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_EQ(error_of(options()), "");
  const FileLock held = lock_study(study());
  EXPECT_EQ(report_study(study()).exit_status, 0);  // reading takes no lock
}

TEST_F(RaceTest, ADivergedPairEndsItWithoutAVerdict) {
  prepare(2, kNormalRule, [](std::size_t arm, std::int64_t seed) {
    return arm == 1 && seed == 2 ? NAN : planted(arm, seed);
  });
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.exit_status, 1);
  EXPECT_EQ(verdict_status(out), 1);
  EXPECT_THAT(closing_text(out), HasSubstr("arm 'nvfp4', seed 2: the run diverged"));
  EXPECT_EQ(made().at("bf16"), 5);
}

TEST_F(RaceTest, RunsOfAnotherStudyAndContraryOptionsAreRefused) {
  prepare(2, kNormalRule, planted);
  StudyOptions o = options();
  o.self_check = true;
  EXPECT_THAT(error_of(o), HasSubstr("--aa"));
  experiment_.sequential.reset();
  o = options();
  o.restart = true;
  EXPECT_THAT(error_of(o), HasSubstr("--restart is for experiments with [sequential]"));
  run_study(experiment_, options());
  experiment_.sequential = kNormalRule;
  EXPECT_THAT(error_of(options()), HasSubstr("holds runs of a study without looks"));
}

TEST_F(RaceTest, TheReportsSayThatFixedNumbersAreNotValid) {
  prepare(2, kNormalRule, planted);
  experiment_.margin = 0.01;
  const StudyOutcome out = run_study(experiment_, options());
  const std::string page = testing::read_text_file(out.report_html_path);
  EXPECT_THAT(page, HasSubstr("Evidence by look"));
  EXPECT_THAT(page, HasSubstr("confidence sequence"));
  EXPECT_THAT(page, HasSubstr("paired t test, p (not valid under looking)"));
  EXPECT_THAT(page, HasSubstr("exact sign-flip test, p (not valid under looking)"));
  EXPECT_THAT(page, Not(HasSubstr("detectable with")));
  // Every place with a p-value says so.
  for (std::size_t at = page.find(", p</th>"); at != std::string::npos; at = page.find(", p</th>", at + 1))
    ADD_FAILURE() << "a p-value without the words: " << page.substr(at - 60, 80);
  const auto report = nlohmann::json::parse(testing::read_text_file(out.report_json_path));
  EXPECT_THAT(report["p_values"].get<std::string>(), HasSubstr("not valid"));
  const auto& looks = report["comparisons"][0]["sequential"]["looks"];
  ASSERT_GE(looks.size(), 1u);
  EXPECT_EQ(looks[0]["pairs"], 5);
  const std::string line = verdict_line(out);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto verdict = nlohmann::json::parse(line);
  EXPECT_EQ(verdict["verdict"], "worse");
  EXPECT_EQ(verdict["pairs"], looks.back()["pairs"]);
  EXPECT_EQ(verdict["e_values"].size(), looks.size());
  EXPECT_DOUBLE_EQ(std::log(verdict["e_values"][0]["difference"].get<double>()),
                   looks[0]["log_e"].get<double>());
  EXPECT_EQ(verdict["interval"], looks.back()["confidence_sequence"]);
  EXPECT_EQ(verdict["effect"], report["comparisons"][0]["primary"]["difference"]["mean"]);
  double seconds = 0;
  for (const auto& arm : report["arms"]) {
    for (const auto& run : arm["runs"]) seconds += run["wall_s"].get<double>();
  }
  EXPECT_NEAR(verdict["seconds"].get<double>(), seconds, 1e-9);
  EXPECT_GT(seconds, 0);
}

}  // namespace
}  // namespace tenon::ab
