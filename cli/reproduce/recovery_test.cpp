// A study of recovery on logs written by hand: sums of charges, schedules without training, differences and
// lines through them, refusals.
#include "reproduce/recovery.hpp"

#include "ab/testing/synthetic_runs.hpp"
#include "reproduce/render.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ab::testing::write_text;
using ::testing::HasSubstr;

constexpr const char* kRecoveryStudy = R"(title = "Recovery"
paper = "p"
question = "q"
base = "run.toml"
metric = "val/auc"
baseline = "none"
[recovery]
draws = 50
full = "full"
[[recovery.pair]]
arm = "part"
minus = "none"
[[recovery.line]]
title = "all"
arms = ["none", "part", "full"]
[size.quick]
steps = 4
seeds = [1]
[size.default]
steps = 4
seeds = [1, 2]
[[arm]]
name = "none"
[[arm]]
name = "full"
[[arm]]
name = "part"
)";

StudyFile recovery_study(const std::string& folder, const std::string& text = kRecoveryStudy) {
  write_text(folder + "/run.toml", "[run]\nsteps = 1\n");
  write_text(folder + "/recovery.toml", text);
  return read_study(folder + "/recovery.toml");
}

/// Four slots of an hour each. Saves at 1 (complete) and 3; a failure at 2 with `repeated` slots.
std::string log_of(double share, double repeated, double pls, bool partial) {
  const auto save = [](int slot, bool complete, double bytes, double part, double hours) {
    return fmt::format(
        R"({{"event":"save","slot":{},"status":"committed","complete":{},"bytes":{},"share_of_complete":{},"charged":{{"save_hours":{}}}}})"
        "\n",
        slot, complete, bytes, part, hours);
  };
  return save(0, true, 1000, 1, 0) + save(1, true, 1000, 1, 0.5) +
         fmt::format(
             R"({{"event":"failure","slot":2,"lost_access_share":0.25,"account":{{"pls":{}}},"charged":{{"load_hours":0.1,"restart_hours":0.2,"repeat_hours":{}}}}})"
             "\n",
             pls, repeated) +
         (repeated > 0 ? save(1, true, 1000, 1, 0.5) : "") +
         save(3, false, 1000 * share, share, 0.5 * share) +
         R"({"event":"save","slot":3,"status":"aborted","bytes":0})"
         "\n" +
         fmt::format(
             R"({{"event":"end","slot":4,"productive_hours":4.0,"access_shares":[0.75,0.25],"account":{{"pls":{},"partial_recovery":{},"save_interval_s":7200.0,"always_whole_share":0.01}}}})"
             "\n",
             pls, partial ? 1 : 0) +
         R"({"event":"sa)";  // torn
}

TEST(RecoveryRuns, SumWhatWasCharged) {
  const std::string folder = fresh_folder("recovery_sums");
  write_text(folder + "/recovery.jsonl", log_of(0.25, 1.0, 0.125, true));
  const RecoveryRun run = read_recovery_run(folder);
  EXPECT_DOUBLE_EQ(run.charged.save, 0.5 + 0.5 + 0.125);
  EXPECT_DOUBLE_EQ(run.charged.load, 0.1);
  EXPECT_DOUBLE_EQ(run.charged.restart, 0.2);
  EXPECT_DOUBLE_EQ(run.charged.repeat, 1.0);
  EXPECT_DOUBLE_EQ(run.overhead_percent(), 100 * (1.125 + 0.3 + 1) / 4);
  EXPECT_EQ(run.failures, 1);
  EXPECT_EQ(run.lost_accesses, 0.25);
  EXPECT_EQ(run.pls, 0.125);
  EXPECT_TRUE(run.partial);
  EXPECT_EQ(run.interval_hours, 2);
  EXPECT_EQ(run.written, 2250);
  EXPECT_EQ(run.written_share, 2.25);
  ASSERT_EQ(run.saves.size(), 2u) << "what is saved again after a roll-back is one moment of the rhythm";
  EXPECT_EQ(run.saves[0].hour, 1);
  EXPECT_EQ(run.saves[1].hour, 3);
  EXPECT_EQ(run.saves[1].share, 0.25);
  EXPECT_EQ(run.access_shares, (std::vector<double>{0.75, 0.25}));
  write_text(folder + "/recovery.jsonl", "{}\nnonsense\n{}\n");
  EXPECT_THROW(read_recovery_run(folder), Error);
}

TEST(Schedules, CostWhatTheClockRulesSay) {
  const std::vector<ChargedSave> saves = {{10, 1}, {20, 0.5}, {30, 0.5}};
  const std::vector<config::EmulatedFailure> failures = {{5, {0}}, {20, {1, 2}}, {29, {0}}};
  const ChargedHours partial = charge_schedule(failures, saves, true, 0.1, 0.02, 0.03);
  EXPECT_DOUBLE_EQ(partial.save, 0.2);
  EXPECT_DOUBLE_EQ(partial.load, 0.06);
  EXPECT_DOUBLE_EQ(partial.restart, 0.09);
  EXPECT_EQ(partial.repeat, 0);
  const ChargedHours full = charge_schedule(failures, saves, false, 0.1, 0.02, 0.03);
  EXPECT_DOUBLE_EQ(full.repeat, 5 + 0 + 9) << "before the first save; exactly at one; before the next";
  EXPECT_DOUBLE_EQ(schedule_pls(failures, 10, 40, 4), (5 + 0 + 9) / (40.0 * 4));
  EXPECT_DOUBLE_EQ(schedule_pls(failures, 100, 40, 4), (5 + 2 * 20 + 29) / (40.0 * 4));
}

TEST(StraightLines, GoThroughTheirPoints) {
  const StraightLine exact = straight_line({0, 1, 3}, {1, -1, -5});
  EXPECT_DOUBLE_EQ(exact.slope, -2);
  EXPECT_DOUBLE_EQ(exact.intercept, 1);
  EXPECT_DOUBLE_EQ(exact.correlation, -1);
  // numpy.polyfit([0, 1, 2, 3], [0, 2, 1, 3], 1) and numpy.corrcoef
  const StraightLine rough = straight_line({0, 1, 2, 3}, {0, 2, 1, 3});
  EXPECT_NEAR(rough.slope, 0.8, 1e-12);
  EXPECT_NEAR(rough.intercept, 0.3, 1e-12);
  EXPECT_NEAR(rough.correlation, 0.8, 1e-12);
  EXPECT_EQ(straight_line({2, 2}, {1, 3}).slope, 0);
}

/// Both seeds of every arm, in the study's folder.
StudyResult result_of(const std::string& folder) {
  StudyResult result;
  result.study = recovery_study(folder);
  result.size = *result.study.size("default");
  const double aucs[] = {0.80, 0.80, 0.78};
  for (std::size_t a = 0; a < 3; ++a) {
    ArmResult& arm = result.arms.emplace_back();
    for (const std::int64_t seed : {1, 2}) {
      const std::string run = fmt::format("{}/{}/{}", folder, a, seed);
      write_text(run + "/recovery.jsonl", a == 0   ? R"({"event":"end","slot":4,"productive_hours":4.0})"
                                                     "\n"
                                          : a == 1 ? log_of(1, 1, 0, false)
                                                   : log_of(0.25, 0, 0.25, true));
      RunResult& one = arm.runs.emplace_back();
      one.seed = seed;
      one.status = "completed";
      one.value = aucs[a] + 0.01 * static_cast<double>(seed);
      one.record.emplace();
      one.record->folder = run;
      one.record->config = {{"emulate.law", "\"exponential\""},
                            {"emulate.hours", "4.0"},
                            {"emulate.mtbf_hours", "2.0"},
                            {"emulate.shards", "2"},
                            {"emulate.lost", "1"},
                            {"emulate.at_least", "1"},
                            {"emulate.save_minutes", "30.0"},
                            {"emulate.load_minutes", "6.0"},
                            {"emulate.restart_minutes", "12.0"}};
    }
  }
  read_recovery_results(result);
  return result;
}

TEST(RecoveryResults, AreThoseOfTheLogs) {
  const StudyResult result = result_of(fresh_folder("recovery_results"));
  EXPECT_TRUE(result.warnings.empty());
  const RecoveryArm& none = result.as<RecoveryResult>().arms[0];
  const RecoveryArm& full = result.as<RecoveryResult>().arms[1];
  const RecoveryArm& part = result.as<RecoveryResult>().arms[2];
  EXPECT_FALSE(none.drawn.has_value()) << "an arm without costs has no overhead to divide by";
  EXPECT_DOUBLE_EQ(full.overhead_percent->mean, 100 * (1.5 + 0.3 + 1) / 4);
  EXPECT_DOUBLE_EQ(part.overhead_percent->mean, 100 * (0.625 + 0.3) / 4);
  EXPECT_DOUBLE_EQ(part.ratio->mean, (1.5 + 0.3 + 1) / (0.625 + 0.3));
  EXPECT_DOUBLE_EQ(part.written_share, 1.25);
  EXPECT_EQ(part.always_whole, 0.01);
  ASSERT_TRUE(part.drawn && full.drawn);
  EXPECT_EQ(part.drawn->draws, 50);
  EXPECT_DOUBLE_EQ(full.drawn->ratio.mean, 1);
  EXPECT_GT(part.drawn->ratio.mean, 1);
  // Two saves of 0.5 h, the second by a quarter of the bytes, and 0.3 h per failure.
  EXPECT_NEAR(part.drawn->overhead_percent.mean, 100 * (0.625 + 0.3 * part.drawn->failures) / 4, 1e-9);
  // Eq. (7) for T = 2, J = 4, M = 2, N = 2, given a failure.
  EXPECT_NEAR(*part.drawn->law, 4 / (2.0 * 4 * 2) / (1 - std::exp(-2.0)), 1e-12);
  ASSERT_EQ(result.as<RecoveryResult>().pairs.size(), 1u);
  EXPECT_EQ(result.as<RecoveryResult>().pairs[0].title, "part − none");
  EXPECT_NEAR(result.as<RecoveryResult>().pairs[0].value->mean, -0.02, 1e-12);
  ASSERT_EQ(result.as<RecoveryResult>().fits.size(), 1u);
  EXPECT_NEAR(result.as<RecoveryResult>().fits[0].slope, -0.08, 1e-12);
  EXPECT_NEAR(result.as<RecoveryResult>().fits[0].correlation, -1, 1e-9);
  EXPECT_EQ(result.as<RecoveryResult>().access_shares, (std::vector<double>{0.75, 0.25}));
}

TEST(RecoveryResults, ArePrinted) {
  const StudyResult result = result_of(fresh_folder("recovery_printed"));
  const std::string tables = recovery_tables(result);
  EXPECT_THAT(
      tables,
      HasSubstr("| part | 1.0 | 2 | 1.25 | 0.00 | 0 | 0.625 | 0.100 | 0.200 | 0.000 | 23.12 (23.12 to "
                "23.12) | 3.0 (3.0 to 3.0) | 0.2500 (0.2500 to 0.2500) | 25.0 (25.0 to 25.0) |"));
  EXPECT_THAT(tables, HasSubstr("| part − none | −0.02000 (−0.02000 to −0.02000) | 2 |"));
  EXPECT_THAT(tables, HasSubstr("| all | 3 | −0.0800 |"));
  EXPECT_THAT(tables,
              HasSubstr("domain has: 75.0 25.0 %. Tables that every priority save writes whole hold 1.0 %"));
  const nlohmann::json json = nlohmann::json::parse(table_json(result));
  EXPECT_DOUBLE_EQ(json["recovery"]["arms"][2]["save_hours"], 0.625);
  EXPECT_EQ(json["recovery"]["arms"][2]["schedules"]["draws"], 50);
  EXPECT_NEAR(json["recovery"]["lines"][0]["slope"], -0.08, 1e-12);
  EXPECT_THAT(figure_svg(result), HasSubstr("portion of lost samples (PLS)"));
  double height = 0;
  EXPECT_THAT(recovery_figure(result, 900, height), HasSubstr(">70.00<"));
}

TEST(RecoveryStudies, SayWhatIsWrong) {
  const auto refused = [](const std::string& from, const std::string& to) {
    const std::string folder = fresh_folder("recovery_refused");
    try {
      recovery_study(folder, replaced(kRecoveryStudy, from, to));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("draws = 50", "draw = 50"), HasSubstr("did you mean 'draws'?"));
  EXPECT_THAT(refused("full = \"full\"", "full = \"ful\""), HasSubstr("ful"));
  EXPECT_THAT(refused("minus = \"none\"", "minus = \"part\""), HasSubstr("an arm minus itself is 0"));
  EXPECT_THAT(refused("[\"none\", \"part\", \"full\"]", "[\"none\"]"),
              HasSubstr("fewer than three arms says nothing"));
  EXPECT_THAT(refused("[recovery]", "[map]\nworkers = [1]\n[recovery]"), HasSubstr("one of [scaling]"));
}

}  // namespace
}  // namespace tenon::reproduce
