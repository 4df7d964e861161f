// A study of simulations on figures written by hand: rates, efficiencies, samples that differ, missing runs;
// plans and refusals.
#include "reproduce/map.hpp"

#include "ab/testing/synthetic_runs.hpp"
#include "reproduce/render.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/simulation.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ::testing::HasSubstr;

constexpr const char* kMapStudy = R"(title = "Map"
paper = "p"
question = "q"
base = "sim.toml"
metric = "tasks/s"
baseline = "plain"
[map]
workers = [1, 2]
[size.quick]
samples = 4
seeds = [1, 2]
[size.default]
samples = 8
seeds = [1]
points = [1, 4]
[[arm]]
name = "plain"
[[arm]]
name = "killed"
title = "a quarter killed"
set = ["simulate.crash_share=0.25"]
)";

StudyFile map_study(const std::string& folder, const std::string& text = kMapStudy) {
  ab::testing::write_text(folder + "/sim.toml", "[simulate]\nsamples = 1\n[simulator]\ntype = \"flow\"\n");
  ab::testing::write_text(folder + "/map.toml", text);
  return read_study(folder + "/map.toml");
}

ab::RunnerOptions runner_in(const std::string& folder) {
  ab::RunnerOptions options;
  options.program = "tenon";
  options.folder = folder + "/out";
  return options;
}

/// Writes the files of `tenon simulate --json`: four samples with digests by seed, one of them `odd`.
void leave_run(const MapRun& run, double wall_s, double repeated, const std::string& odd = "") {
  SimulationManifest manifest;
  manifest.simulator = "flow";
  manifest.plugin = "test.flow";
  manifest.plugin_version = "1.0.0";
  manifest.config = "[simulator]\ntype = \"flow\"\n";
  manifest.seed = static_cast<std::uint64_t>(run.seed);
  manifest.samples = 4;
  manifest.fields = {{"x", DType::kF32, Shape{2}, false}};
  for (std::int64_t i = 0; i < 4; ++i) manifest.finished[i] = fmt::format("{:030x}{:02x}", run.seed, i);
  if (!odd.empty()) manifest.finished[3] = odd;
  ab::testing::write_text(run.folder + "/simulation/manifest.json", simulation_manifest_text(manifest));
  ab::testing::write_text(
      run.folder + "/output.log",
      fmt::format(
          "tenon simulate: a warning\n{{\"folder\": \"f\", \"status\": \"completed\", \"samples\": 4, "
          "\"finished\": 4, \"failed\": 0, \"taken_up\": 0, \"repeated\": {}, \"lost_workers\": {}, "
          "\"workers\": {}, \"wall_s\": {}, \"busy_s\": {}, \"holes\": []}}\n",
          repeated, repeated, run.workers, wall_s, 0.8 * wall_s * static_cast<double>(run.workers)));
  std::filesystem::last_write_time(run.folder + "/output.log",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
}

const SimulationCheck kAnything = [](const std::string&, const std::vector<std::string>&) {};

TEST(MapPlan, EveryArmWorkerAndSeedIsARunInTurns) {
  const std::string folder = fresh_folder("map_plan");
  const StudyFile study = map_study(folder);
  std::vector<std::string> checked;
  const MapPlan plan =
      plan_map(study, *study.size("quick"), runner_in(folder),
               [&](const std::string& path, const std::vector<std::string>& sets) {
                 checked.push_back(std::filesystem::path(path).filename().string() + " " + sets.back());
               });
  EXPECT_THAT(checked,
              ::testing::ElementsAre("plain.1.toml simulate.workers=1", "plain.2.toml simulate.workers=2",
                                     "killed.1.toml simulate.workers=1", "killed.2.toml simulate.workers=2"));
  ASSERT_EQ(plan.runs.size(), 8u);
  ASSERT_EQ(plan.jobs.size(), 8u);
  EXPECT_EQ(plan.runs[4].arm, 1u) << "the second seed goes back";
  EXPECT_EQ(plan.runs[4].workers, 2);
  const std::vector<std::string>& words = plan.jobs[3].command;
  EXPECT_EQ(words[1], "simulate");
  EXPECT_THAT(words, ::testing::IsSupersetOf({"simulate.crash_share=0.25", "simulate.samples=4",
                                              "simulate.seed=1", "simulate.workers=2", "--json"}));
  EXPECT_EQ(words.back(), "simulate.folder=\"" + folder + "/out/runs/killed.2/1/1/simulation\"");
}

TEST(MapPlan, FinishedRunsAreKeptUntilTheirConfigurationChanges) {
  const std::string folder = fresh_folder("map_kept");
  const StudyFile study = map_study(folder);
  const Size& size = *study.size("quick");
  for (const MapRun& run : plan_map(study, size, runner_in(folder), kAnything).runs) {
    if (run.seed == 1) leave_run(run, 1, 0);
  }
  const MapPlan again = plan_map(study, size, runner_in(folder), kAnything);
  EXPECT_EQ(again.jobs.size(), 4u);
  for (const MapRun& run : again.runs) {
    EXPECT_EQ(run.kept, run.seed == 1);
    if (!run.kept) {
      EXPECT_EQ(run.reason, "attempt 1 did not end");
      EXPECT_TRUE(run.folder.ends_with("/2/2")) << "half of a simulation has no rate: " << run.folder;
    }
  }
  const StudyFile other = map_study(folder, replaced(kMapStudy, "crash_share=0.25", "crash_share=0.5"));
  const MapPlan changed = plan_map(other, size, runner_in(folder), kAnything);
  for (const MapRun& run : changed.runs) {
    if (run.seed == 1 && run.arm == 1) {
      EXPECT_EQ(run.reason, "attempt 1 is of another configuration");
    }
    EXPECT_EQ(run.kept, run.seed == 1 && run.arm == 0);
  }
}

TEST(MapPlan, WhatCannotRunIsRefusedWithItsArm) {
  const std::string folder = fresh_folder("map_refused");
  const StudyFile study = map_study(folder);
  try {
    plan_map(study, *study.size("quick"), runner_in(folder), [](const auto& path, const auto&) {
      if (path.find("killed") != std::string::npos) fail_config("no such simulator");
    });
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("map at size quick cannot run here, and nothing was started. Arm "
                                        "'killed': no such simulator"));
  }
}

class MapResults : public ::testing::Test {
 protected:
  /// plain: 1 s by one worker, 0.5 s by two; killed: 1.25 s and 0.8 s with one repetition.
  StudyResult read(const std::string& name, const std::string& odd = "", bool leave_all = true) {
    const std::string folder = fresh_folder(name);
    StudyResult r;
    r.study = map_study(folder);
    r.size = *r.study.size("quick");
    const MapPlan plan = plan_map(r.study, r.size, runner_in(folder), kAnything);
    for (const MapRun& run : plan.runs) {
      const bool last = run.arm == 1 && run.workers == 2 && run.seed == 2;
      if (last && !leave_all) continue;
      const double wall = run.arm == 0       ? 1.0 / static_cast<double>(run.workers)
                          : run.workers == 1 ? 1.25
                                             : 0.8;
      leave_run(run, wall, run.arm == 0 ? 0 : 1, last ? odd : "");
    }
    read_map_results(r, plan.runs);
    return r;
  }
};

TEST_F(MapResults, EfficiencyIsARateOverWorkersTimesOneWorkersRate) {
  const StudyResult r = read("map_rates");
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(r.warnings, std::vector<std::string>());
  const std::vector<MapPoint>& points = r.as<MapResult>().points;
  ASSERT_EQ(points.size(), 4u);
  EXPECT_DOUBLE_EQ(points[1].rate->mean, 8);
  EXPECT_DOUBLE_EQ(points[1].efficiency->mean, 1);
  EXPECT_DOUBLE_EQ(points[2].efficiency->mean, 0.8);
  EXPECT_DOUBLE_EQ(points[3].efficiency->mean, 5.0 / 8);
  EXPECT_DOUBLE_EQ(*points[3].busy, 0.8);
  EXPECT_DOUBLE_EQ(*points[3].attempt_s, 0.8 * 2 * 0.8 / 5);
  EXPECT_EQ(points[3].repeated, 1);
  EXPECT_EQ(points[3].equal, 8u);
  EXPECT_EQ(points[3].compared, 8u);
  const std::string text = table_markdown(r);
  EXPECT_THAT(text, HasSubstr("| a quarter killed | 3.20 (3.20 to 3.20) | 5.00 (5.00 to 5.00) |"));
  EXPECT_THAT(text, HasSubstr("| a quarter killed | 80.0 (80.0 to 80.0) | 62.5 (62.5 to 62.5) |"));
  EXPECT_THAT(text, HasSubstr("2 arms x 2 numbers of workers x 2 seeds x 4 tasks"));
  EXPECT_THAT(text, HasSubstr("- machine: "));
  EXPECT_GT(r.provenance.ended.substr(0, 13), r.provenance.begun.substr(0, 13)) << "logs are an hour younger";
  const auto json = nlohmann::json::parse(table_json(r));
  EXPECT_EQ(json["map"][3]["efficiency_measured"]["mean"], 0.625);
  EXPECT_TRUE(figure_svg(r).starts_with("<svg"));
}

TEST_F(MapResults, ASampleThatDiffersIsSaidAndTheStudyNotComplete) {
  const StudyResult r = read("map_differs", std::string(32, 'f'));
  EXPECT_FALSE(r.complete);
  EXPECT_THAT(r.warnings,
              ::testing::ElementsAre("killed by 2 workers: 1 of 8 samples differ from those of one worker"));
  EXPECT_THAT(table_markdown(r), HasSubstr("7 of 8"));
}

TEST_F(MapResults, ARunThatIsMissingIsSaid) {
  const StudyResult r = read("map_missing", "", false);
  EXPECT_FALSE(r.complete);
  EXPECT_THAT(r.warnings, ::testing::ElementsAre("killed by 2 workers, seed 2: missing, not run yet"));
  EXPECT_EQ(r.as<MapResult>().points[3].rate->n, 1u);
}

TEST(MapFile, WhatCannotBeIsRefusedWithItsPlace) {
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"workers = [1, 2]", "workers = [2, 4]", "map.workers: the first number must be 1"},
      {"workers = [1, 2]", "workers = [1, 1]", "map.workers: 1 follows 1; values must ascend"},
      {"workers = [1, 2]", "worker = [1, 2]", "did you mean 'workers'?"},
      {"points = [1, 4]", "points = [4]", "size.default.points: the first number must be 1"},
      {"samples = 4", "steps = 4", "size.quick.steps: a simulation has tasks and no steps"},
      {"simulate.crash_share=0.25", "simulate.workers=3", "simulate.workers is the study's to set"},
  };
  for (const auto& [from, to, words] : cases) {
    try {
      map_study(fresh_folder("map_file"), replaced(kMapStudy, from, to));
      ADD_FAILURE() << to << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

}  // namespace
}  // namespace tenon::reproduce
