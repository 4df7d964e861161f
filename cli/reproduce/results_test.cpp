// Pairing, resuming and rendering of a study on run folders made from formulas.
#include "reproduce/reproduce.hpp"

#include "ab/study.hpp"
#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;
using ab::testing::fresh_folder;
using ab::testing::read_text_file;
using ab::testing::SyntheticRun;
using ab::testing::write_text;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFormatStudy = R"(title = "Formats"
paper = "A paper, table 1"
question = "Which format?"
base = "base.toml"
baseline = "bf16"
reference = "fp4"
shares = ["train/mor/share"]
decisions = "train/mor"
notes = ["A note."]

[size.quick]
steps = 400
seeds = [1]

[size.default]
steps = 400
seeds = [1, 2, 3]

[[arm]]
name = "bf16"

[[arm]]
name = "fp4"
title = "FP4 | full"
set = ["precision.type=fp4"]

[[arm]]
name = "raw"
may_fail = true

[[paper_value]]
arm = "fp4"
value = -0.7
what = "12B"
source = "figure 4"
)";

/// Losses by arm and seed; the mean gap of fp4 is -1 % with a known spread.
double loss(std::size_t arm, std::int64_t seed) {
  const double base = 2.0 + 0.1 * static_cast<double>(seed);
  const double gap[] = {0, 0.01 + 0.002 * static_cast<double>(seed - 2), 0.5};
  return base * (1 + gap[arm]);
}

class Results : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
    write_text(folder_ + "/formats.toml", kFormatStudy);
    write_text(folder_ + "/base.toml", "[run]\nname = \"x\"\n");
    study_ = read_study(folder_ + "/formats.toml");
    size_ = *study_.size("default");
    ab::RunnerOptions options;
    options.folder = folder_ + "/out";
    plan_ =
        make_plan(study_, size_, options, [](const std::string& path, const std::vector<std::string>& sets) {
          return ResolvedRun{Config::load(path, sets).root(),
                             {"parameters: 840960 trained, 0 frozen, 0 in buffers"}};
        });
    ab::testing::write_runs(plan_.experiment, folder_ + "/out", [](std::size_t arm, std::int64_t seed) {
      SyntheticRun run;
      run.seed = seed;
      run.final_loss = loss(arm, seed);
      return run;
    });
  }
  std::string attempt(const char* arm, int seed) const {
    return ab::run_parent(folder_ + "/out", arm, seed) + "/1";
  }
  void edit(const std::string& path, const std::string& from, const std::string& to) const {
    std::string text = read_text_file(path);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << path << ": " << from;
    write_text(path, text.replace(at, from.size(), to));
  }
  StudyResult results() const { return read_results(study_, size_, plan_, folder_ + "/out"); }

  std::string folder_;
  StudyFile study_;
  Size size_;
  Plan plan_;
};

TEST(Gap, HasThePapersSign) {
  EXPECT_NEAR(gap_percent(2.0, 2.1, true), -5, 1e-12);    // a higher loss is worse
  EXPECT_NEAR(gap_percent(0.8, 0.76, false), -5, 1e-12);  // so is a lower accuracy
  EXPECT_NEAR(gap_percent(2.0, 1.9, true), 5, 1e-12);
}

TEST_F(Results, GapsArePairedAndHaveStudentIntervals) {
  const StudyResult r = results();
  EXPECT_TRUE(r.complete);
  ASSERT_TRUE(r.arms[1].gap);
  EXPECT_EQ(r.arms[1].gap->n, 3u);
  EXPECT_NEAR(r.arms[1].gap->mean, -1.0, 1e-9);
  // Gaps -0.8, -1.0, -1.2: sd 0.2, half width t(0.975, 2) * 0.2 / sqrt(3) with t = 4.302652730.
  EXPECT_NEAR(r.arms[1].gap->interval.low, -1.0 - 4.302652730 * 0.2 / std::sqrt(3.0), 1e-8);
  EXPECT_FALSE(r.arms[0].gap);
  EXPECT_FALSE(r.arms[1].reference_gap);  // the reference itself
  ASSERT_TRUE(r.arms[2].reference_gap);
  EXPECT_LT(r.arms[2].reference_gap->mean, -40);
  EXPECT_EQ(r.arms[0].parameters, "840960");
  EXPECT_EQ(r.arms[0].updates, 400);
  EXPECT_EQ(r.arms[0].tokens, 400 * 16 * 128);
}

TEST_F(Results, APairOverOtherDataIsLeftOutWithTheReason) {
  edit(attempt("fp4", 2) + "/manifest.json", "86c4e6aa", "00000000");
  const StudyResult r = results();
  EXPECT_EQ(r.arms[1].gap->n, 2u);
  EXPECT_THAT(r.warnings, ::testing::Contains(HasSubstr("fp4, seed 2 is no pair: the data differs")));
}

TEST_F(Results, SharesAndDecisionsComeFromThePolicysMetrics) {
  const auto line = [](const char* name, double value) {
    return std::string(R"({"step": 400, "split": "train", "name": ")") + name +
           "\", \"value\": " + std::to_string(value) +
           R"(, "wall_s": 1, "samples": 1, "tokens": 1, "bytes_sent": 0})" + "\n";
  };
  for (int seed = 1; seed <= 3; ++seed) {
    const std::string path = attempt("fp4", seed) + "/metrics.jsonl";
    write_text(path, read_text_file(path) + line("mor/share", 0.9 + 0.01 * seed) + line("mor/share/x", 1) +
                         line("mor/h.0.mlp.c_fc/fprop.x", 1) +
                         line("mor/h.0.mlp.c_fc/fprop.x/error", 0.0225) +
                         line("mor/h.1.attn.q_proj/dgrad.dy", 0.25) +
                         line("mor/h.1.attn.q_proj/dgrad.dy/error", 0.06));
  }
  const StudyResult r = results();
  ASSERT_TRUE(r.arms[1].shares[0].percent);
  EXPECT_NEAR(*r.arms[1].shares[0].percent, 92, 1e-9);
  EXPECT_FALSE(r.arms[0].shares[0].percent);
  ASSERT_EQ(r.arms[1].decisions.size(), 2u);
  EXPECT_EQ(r.arms[1].decisions[1].layer, "h.1.attn.q_proj");
  EXPECT_EQ(r.arms[1].decisions[1].operand, "dgrad.dy");
  const std::string text = table_markdown(r);
  EXPECT_THAT(text, HasSubstr("| 92.00 |"));
  EXPECT_THAT(text, HasSubstr("### fp4\n\n1 of 2 operands fell back at least once.\n"));
  EXPECT_THAT(text, HasSubstr("| h.1.attn.q_proj | dgrad.dy | 25.00 | 6.00 |"));
  EXPECT_THAT(text, Not(HasSubstr("| h.0.mlp.c_fc |")));
  EXPECT_EQ(nlohmann::json::parse(table_json(r))["arms"][1]["decisions"].size(), 2u);
}

TEST_F(Results, AFailureIsAResultOnlyWhereItMayBe) {
  for (const char* arm : {"raw", "fp4"})
    edit(attempt(arm, 1) + "/summary.json", "\"completed\"", "\"failed\"");
  const StudyResult r = results();
  EXPECT_FALSE(r.complete);
  EXPECT_EQ(r.arms[1].gap->n, 2u);
  fs::remove_all(attempt("fp4", 1));
  EXPECT_THAT(results().warnings, ::testing::Contains("fp4, seed 1: missing, not run yet"));
  ab::testing::write_run(attempt("fp4", 1), SyntheticRun{.seed = 1});
  EXPECT_TRUE(results().complete);  // the failed run of `raw` is one
}

TEST_F(Results, TheMarkdownSaysWhatTheReaderMustKnow) {
  const std::string text = table_markdown(results());
  EXPECT_THAT(text,
              HasSubstr("| arm | val/loss | gap to bf16, % (95 % interval) | gap to fp4, % (95 % interval) | "
                        "mor/share, % | paper | runs | wall time, s |\n"));
  EXPECT_THAT(text,
              HasSubstr("| FP4 \\| full | 2.2221 | −1.00 (−1.50 to −0.50) | 0 | – | −0.70 [12B] | 3 of 3 |"));
  EXPECT_THAT(text, HasSubstr("| bf16 | 2.2000 | 0 (baseline) |"));
  EXPECT_THAT(text, HasSubstr("**negative = the arm is worse**"));
  EXPECT_THAT(text, HasSubstr("| bf16 | 840,960 | 400 | 6,400 | 819,200 | none |"));
  EXPECT_THAT(text, HasSubstr("- machine: Example CPU @ 2.4 GHz, 2 cores; 2 threads a run; kernels avx2"));
  EXPECT_THAT(text, HasSubstr("- program: 0.1.0 (1f2e3d4c5b6a)"));
  EXPECT_THAT(text, HasSubstr("- seeds: 1, 2, 3"));
  EXPECT_THAT(text, HasSubstr("- simulated columns: none"));
  EXPECT_THAT(text, HasSubstr("- fp4: −0.70 (12B; figure 4)"));
  EXPECT_THAT(text, Not(HasSubstr("never quote")));
}

TEST_F(Results, ASimulatedClockIsNamed) {
  for (std::size_t a = 0; a < 3; ++a)
    write_text(attempt(plan_.experiment.arms[a].name.c_str(), 1) + "/config.resolved.toml",
               "[run]\nseed = 1\n[transport.clock]\ntype = \"simulated\"\n");
  EXPECT_THAT(table_markdown(results()), HasSubstr("- simulated columns: wall time"));
}

TEST_F(Results, TheJsonHasTheSameNumbers) {
  const auto json = nlohmann::json::parse(table_json(results()));
  EXPECT_TRUE(json["quotable"].get<bool>());
  EXPECT_NEAR(json["arms"][1]["gap_percent"]["mean"].get<double>(), -1.0, 1e-9);
  EXPECT_EQ(json["arms"][1]["gap_percent"]["pairs"], 3);
  EXPECT_TRUE(json["arms"][0]["gap_percent"]["mean"].is_null());
  EXPECT_EQ(json["arms"][2]["runs"].size(), 3u);
  EXPECT_EQ(json["arms"][0]["parameters"], 840960);
  EXPECT_EQ(json["provenance"]["simulated_columns"].size(), 0u);
  EXPECT_EQ(json["paper_values"][0]["source"], "figure 4");
}

TEST_F(Results, AQuickSizeWarnsEverywhere) {
  StudyResult r = results();
  r.size.name = "quick";
  const char* words = "proves that it runs; never quote these numbers";
  EXPECT_THAT(table_markdown(r), HasSubstr(words));
  EXPECT_THAT(figure_svg(r), HasSubstr(words));
  EXPECT_FALSE(nlohmann::json::parse(table_json(r))["quotable"].get<bool>());
}

TEST_F(Results, FiguresStandAlone) {
  StudyResult r = results();
  std::string svg = figure_svg(r);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("gap to bf16 in val/loss, %; negative = worse"));
  EXPECT_THAT(svg, HasSubstr("paper: −0.70 (12B, figure 4)"));
  r.study.figure = Figure::kCurves;
  svg = figure_svg(r);
  EXPECT_THAT(svg, HasSubstr("train/loss"));
  EXPECT_THAT(svg, HasSubstr("FP4 | full"));
}

TEST_F(Results, AControlThatFailedLeavesTheAxisToTheOthers) {
  StudyResult r = results();
  EXPECT_THAT(figure_svg(r), HasSubstr("◀ −50.0, beyond this axis"));
  for (double& gap : r.arms[2].gaps) gap /= 40;
  r.arms[2].gap->mean /= 40;
  r.arms[2].gap->interval.low /= 40;
  r.arms[2].gap->interval.high /= 40;
  EXPECT_THAT(figure_svg(r), Not(HasSubstr("beyond this axis")));
}

TEST_F(Results, FinishedRunsOfTheSameConfigurationAreKept) {
  const std::string parent = ab::run_parent(folder_ + "/out", "bf16", 1);
  auto wanted = ab::read_run(parent + "/1").config;
  std::string reason;
  EXPECT_EQ(action_for(parent, wanted, false, reason), Action::kKeep);
  wanted["optimizer.lr"] = "0.5";
  EXPECT_EQ(action_for(parent, wanted, false, reason), Action::kStart);
  EXPECT_EQ(reason, "attempt 1 is of another configuration: optimizer.lr is now 0.5, was absent");
}

TEST_F(Results, InterruptedRunsContinueAndFailedOnesStartAgain) {
  const std::string parent = ab::run_parent(folder_ + "/out", "bf16", 1);
  const auto wanted = ab::read_run(parent + "/1").config;
  std::string reason;
  edit(parent + "/1/summary.json", "\"completed\"", "\"interrupted\"");
  EXPECT_EQ(action_for(parent, wanted, false, reason), Action::kContinue);
  edit(parent + "/1/summary.json", "\"interrupted\"", "\"failed\"");
  EXPECT_EQ(action_for(parent, wanted, false, reason), Action::kStart);
  EXPECT_EQ(action_for(parent, wanted, true, reason), Action::kKeep);
  fs::remove(parent + "/1/summary.json");  // a kill
  EXPECT_EQ(action_for(parent, wanted, false, reason), Action::kContinue);
  write_text(parent + "/1/metrics.jsonl", "no json\n{}\n");
  EXPECT_EQ(action_for(parent, wanted, false, reason), Action::kStart);
  EXPECT_THAT(reason, HasSubstr("attempt 1 cannot be read"));
  EXPECT_EQ(action_for(folder_ + "/nowhere", wanted, false, reason), Action::kStart);
}

TEST_F(Results, AnArmThatCannotRunIsNamedBeforeAnythingStarts) {
  ab::RunnerOptions options;
  options.folder = folder_ + "/refused";
  const auto refuse = [](const std::string& path, const std::vector<std::string>& sets) -> ResolvedRun {
    if (path.find("fp4") != std::string::npos) fail_config("there is no precision.fp4");
    return {Config::load(path, sets).root(), {}};
  };
  try {
    make_plan(study_, size_, options, refuse);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "tenon reproduce: formats at size default cannot run here, and nothing was started. Arm 'fp4': there "
        "is no precision.fp4");
  }
}

TEST_F(Results, AFolderHoldsOneStudyAtOneSize) {
  Request request;
  request.folder = folder_ + "/mine";
  request.program = "/nonexistent/tenon";
  request.resolve = [](const std::string& path, const std::vector<std::string>& sets) {
    return ResolvedRun{Config::load(path, sets).root(), {}};
  };
  const Outcome outcome = reproduce(study_, size_, request);
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_EQ(outcome.started, 9u);
  EXPECT_THAT(read_text_file(outcome.markdown_path), HasSubstr("**Not complete: runs are missing or failed"));
  try {
    reproduce(study_, *study_.size("quick"), request);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "tenon reproduce: " + folder_ +
                  "/mine holds study formats at size default, not study formats at size "
                  "quick; choose another folder with --out");
  }
}

}  // namespace
}  // namespace tenon::reproduce
