// Arithmetic and rendering of a study of scaling, on records made by hand.
#include "reproduce/scaling.hpp"

#include "ab/study.hpp"
#include "ab/testing/synthetic_runs.hpp"
#include "reproduce/reproduce.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <limits>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::read_text_file;
using ab::testing::SyntheticRun;
using ab::testing::write_text;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// 4 trainers of batch 10: 100 slots each, 80 syncs, 2 MB of weights sent by each trainer.
ab::RunRecord record() {
  ab::RunRecord run;
  run.status = "completed";
  run.steps = 100;
  run.samples = 4000;
  run.wall_s = 11;
  run.series["train/loss"] = {
      {10, 0.7, 2.0, 400, 0, 0}, {50, 0.6, 5.0, 2000, 0, 0}, {90, 0.5, 10.0, 3600, 0, 0}};
  run.distributions["sync_gap"] = {80, 4.9, 3, 12};
  run.rank_bytes = {{"parameter", 2e6}, {"model", 5e5}};
  run.bytes_by_purpose = {{"parameter", 2e6}, {"servers.parameter", 8e6}};
  run.exposed_comm_s = 1.0;
  run.late_s = 1.2;
  run.config = {{"data.batch", "10"},
                {"parallel.ranks", "4"},
                {"parallel.servers", "2"},
                {"parallel.workers", "3"},
                {"sync.mode", "\"shadow\""},
                {"sync.interval", "10"},
                {"sync.rest", "0.001"},
                {"transport.link.bandwidth", "1000000.0"},
                {"transport.link.latency", "0.0005"}};
  return run;
}

TEST(ScalingArithmetic, ARateIsThatBetweenTheFirstAndTheLastLine) {
  ab::RunRecord run = record();
  EXPECT_DOUBLE_EQ(*examples_per_second(run), 3200 / 8.0);
  run.series["train/loss"].resize(1);
  EXPECT_FALSE(examples_per_second(run));
}

TEST(ScalingArithmetic, AGapIsAllSlotsOverAllSyncs) {
  ab::RunRecord run = record();
  EXPECT_DOUBLE_EQ(*average_sync_gap(run), 100 * 4 / 80.0);
  run.distributions.clear();
  EXPECT_FALSE(average_sync_gap(run));
}

TEST(ScalingArithmetic, TheModelIsReadFromTheRun) {
  const ExchangeModel m = exchange_model(record());
  EXPECT_FALSE(m.foreground);
  EXPECT_EQ(m.trainers, 4);
  EXPECT_EQ(m.servers, 2);
  EXPECT_DOUBLE_EQ(m.bytes, 2e6 * 4 / 80);  // of one exchange
  EXPECT_DOUBLE_EQ(m.slots_per_s, 400.0 / (4 * 10));
  EXPECT_DOUBLE_EQ(m.bandwidth, 1e6);
  EXPECT_EQ(m.pieces, 2);  // one for each server
  ab::RunRecord ring = record();
  ring.config["parallel.servers"] = "0";
  ring.config["sync.piece"] = "10000";
  EXPECT_EQ(exchange_model(ring).pieces, 7);  // 1e5 x 4 / (2 x 3) bytes of weights in pieces of 1e4
  ab::RunRecord other = record();
  other.config["sync.mode"] = "\"foreground\"";
  other.config["transport.link.bandwidth"] = "inf";
  EXPECT_TRUE(exchange_model(other).foreground);
  EXPECT_EQ(exchange_model(other).bandwidth, kInfinity);
}

TEST(ScalingArithmetic, GapsArePredictedByTheSlowerLink) {
  struct Case {
    const char* what;
    ExchangeModel model;
    double gap;
  };
  ExchangeModel m;
  m.bytes = 1e6;
  m.bandwidth = 1e8;
  m.latency = 0.001;
  m.rest = 0.002;
  m.pieces = 2;
  m.poll = 0.004;
  m.slots_per_s = 50;
  m.interval = 7;
  const auto at = [m](double trainers, double servers) {
    ExchangeModel out = m;
    out.trainers = trainers;
    out.servers = servers;
    return out;
  };
  ExchangeModel front = at(20, 2);
  front.foreground = true;
  const Case cases[] = {
      {"two ways on its own link", at(2, 2), 50 * (2 * 0.01 + 3 * 2 * 0.001 + 0.002)},
      {"the servers' links for 20 trainers", at(20, 2), 50 * 20 * 0.01 / 2},
      {"twice the servers", at(20, 4), 50 * 20 * 0.01 / 4},
      {"a ring", at(5, 0), 50 * (0.01 + 2 * (2 * 4 * 0.001 + 0.002) + 0.002)},
      {"the foreground", front, 7},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    EXPECT_NEAR(predicted_gap(c.model).value_or(-1), c.gap, 1e-9);
  }
  m.bandwidth = kInfinity;
  EXPECT_FALSE(predicted_gap(m));
}

TEST(ScalingArithmetic, ServersAreFullWhenEveryIntervalNeedsTheirWholeLinks) {
  ExchangeModel m;
  m.foreground = true;
  m.servers = 2;
  m.interval = 5;
  m.bytes = 1e6;
  m.bandwidth = 1e8;
  m.slots_per_s = 50;
  EXPECT_DOUBLE_EQ(*predicted_saturation(m), 5 * 2 * 1e8 / (1e6 * 50));
  for (ExchangeModel none : {[m] {
                               ExchangeModel x = m;
                               x.foreground = false;
                               return x;
                             }(),
                             [m] {
                               ExchangeModel x = m;
                               x.servers = 0;
                               return x;
                             }(),
                             [m] {
                               ExchangeModel x = m;
                               x.bandwidth = kInfinity;
                               return x;
                             }()})
    EXPECT_FALSE(predicted_saturation(none));
}

constexpr const char* kScalingStudy = R"(title = "Scaling"
paper = "A paper"
question = "Is it linear?"
base = "base.toml"
baseline = "behind"

[scaling]
points = [1, 2, 4]
alone = "one"
measured = ["threads"]
measured_points = [1]

[size.quick]
samples = 4000
measured_samples = 4000
seeds = [1]

[size.default]
samples = 4000
measured_samples = 4000
seeds = [1, 2]

[[arm]]
name = "one"

[[arm]]
name = "behind"
title = "Behind | the training"
set = ["sync.mode=shadow"]

[[arm]]
name = "front"
set = ["sync.mode=foreground"]

[[arm]]
name = "threads"
set = ["transport.clock.type=wall"]
)";

/// Rates: 1000 examples/s with one trainer; arm `behind` x 0.9 a trainer, in front x 0.5; 2 + 0.01 trainers +
/// seed / 1000 of loss.
class ScalingStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
    write_text(folder_ + "/base.toml", "[data]\nbatch = 10\n[transport.clock]\ntype = \"simulated\"\n");
    write_text(folder_ + "/study.toml", kScalingStudy);
    given_ = read_study(folder_ + "/study.toml");
    size_ = *given_.size("default");
    study_ = at_points(given_, size_);
    request_.folder = folder_ + "/out";
    request_.program = "/nonexistent/tenon";
    request_.resolve = [](const std::string& path, const std::vector<std::string>& sets) {
      return ResolvedRun{Config::load(path, sets).root(), {}};
    };
    ab::RunnerOptions runner;
    runner.folder = request_.folder;
    plan_ = make_plan(study_, size_, runner, request_.resolve);
    for (std::size_t a = 0; a < study_.arms.size(); ++a)
      for (const std::int64_t seed : size_.seeds) write(a, seed);
  }

  void write(std::size_t a, std::int64_t seed) const {
    const StudyArm& arm = study_.arms[a];
    const std::string attempt = ab::run_parent(request_.folder, arm.arm.name, seed) + "/1";
    const auto trainers = static_cast<double>(arm.trainers);
    const double share = arm.of == "behind" ? 0.9 : arm.of == "front" ? 0.5 : 1;
    SyntheticRun run;
    run.seed = seed;
    run.steps = static_cast<int>(arm.arm.steps);
    run.batch = static_cast<int>(10 * arm.trainers);
    run.final_loss = 2 + 0.01 * trainers + 0.001 * static_cast<double>(seed);
    ab::testing::write_run(attempt, run);
    std::string lines;
    for (const int step : {run.steps / 2, run.steps})
      lines += fmt::format(
          "{{\"step\": {}, \"split\": \"train\", \"name\": \"loss\", \"value\": 2, \"wall_s\": {}, "
          "\"samples\": {}, \"tokens\": 0, \"bytes_sent\": 0}}\n",
          step, 3 + step * run.batch / (1000 * trainers * share), step * run.batch);
    write_text(attempt + "/metrics.jsonl", lines);
    auto summary = nlohmann::json::parse(read_text_file(attempt + "/summary.json"));
    summary["wall_s"] = 8.0;
    summary["communication"] = nlohmann::json::array();
    for (int rank = 0; rank < arm.trainers; ++rank)
      summary["communication"].push_back(
          {{"exposed_s", 1.5},
           {"late_s", 0.5},
           {"purposes",
            {{"parameter", {{"bytes_sent", 1e6 + 2e5 * rank}}}, {"model", {{"bytes_sent", 1e5}}}}}});
    summary["bytes_by_purpose"] = {{"servers.parameter", 4e6 * trainers}};
    if (arm.trainers > 1)
      summary["distributions"]["sync_gap"] = {{"count", 80}, {"mean", 4}, {"min", 1}, {"max", 9}};
    write_text(attempt + "/summary.json", summary.dump());
    write_text(attempt + "/config.resolved.toml", to_toml(plan_.arms[a].root, false));
    auto text = read_text_file(attempt + "/config.resolved.toml");
    const std::size_t at = text.find("seed = 1");
    if (at != std::string::npos) text.replace(at, 8, fmt::format("seed = {}", seed));
    write_text(attempt + "/config.resolved.toml", text);
  }
  StudyResult results() const { return read_results(study_, size_, plan_, request_.folder); }

  std::string folder_;
  StudyFile given_, study_;
  Size size_;
  Plan plan_;
  Request request_;
};

TEST_F(ScalingStudy, SpeedupsReferToTheOneTrainerOfTheSameClock) {
  const std::vector<ScalingArm> arms = scaling_arms(results());
  ASSERT_EQ(arms.size(), 3u);
  ASSERT_EQ(arms[0].points.size(), 3u);
  EXPECT_TRUE(arms[0].points[0].shared);
  EXPECT_EQ(arms[0].points[0].arm, "one");
  EXPECT_NEAR(*arms[0].points[0].examples_per_s, 1000, 1e-6);
  EXPECT_NEAR(*arms[0].points[2].examples_per_s, 3600, 1e-6);
  EXPECT_NEAR(*arms[0].points[2].speedup, 3.6, 1e-9);
  EXPECT_NEAR(*arms[0].points[2].linear_percent, 90, 1e-6);
  EXPECT_NEAR(*arms[1].points[1].linear_percent, 50, 1e-6);
  EXPECT_TRUE(arms[2].measured);
  ASSERT_EQ(arms[2].points.size(), 1u);
  EXPECT_FALSE(arms[2].points[0].shared);
}

TEST_F(ScalingStudy, APointHasItsLossBytesWaitsAndExamplesInFlight) {
  const PointResult point = scaling_arms(results())[0].points[2];
  ASSERT_TRUE(point.loss);
  EXPECT_EQ(point.loss->n, 2u);
  EXPECT_NEAR(point.loss->mean, 2.0415, 1e-9);
  EXPECT_NEAR(point.loss->low, 2.041, 1e-9);
  EXPECT_NEAR(point.loss->high, 2.042, 1e-9);
  EXPECT_NEAR(*point.sync_gap, 100 * 4 / 80.0, 1e-9);
  EXPECT_NEAR(*point.longest_sync_gap, 9, 1e-9);
  EXPECT_NEAR(*point.elp, 40, 1e-9);
  EXPECT_NEAR(*point.sync_bytes, 1.3e6, 1e-3);
  EXPECT_NEAR(*point.bytes, 1.4e6, 1e-3);
  EXPECT_NEAR(*point.waited_s, 2, 1e-9);
  EXPECT_NEAR(*point.waited_percent, 25, 1e-9);
}

TEST_F(ScalingStudy, TheTablesSaySimulatedAndMeasured) {
  const std::string text = table_markdown(results());
  EXPECT_THAT(text,
              HasSubstr("| examples/s, simulated (share of linear) | 1 trainer | 2 trainers | 4 trainers |"));
  EXPECT_THAT(text, HasSubstr("| Behind \\| the training | 1,000 | 1,800 (90 %) | 3,600 (90 %) |"));
  EXPECT_THAT(text, HasSubstr("| front | 1,000 | 1,000 (50 %) | 2,000 (50 %) |"));
  EXPECT_THAT(
      text,
      HasSubstr("| examples/s, measured (share of linear) | 1 trainer |\n|---|---:|\n| threads | 1,000 |"));
  EXPECT_THAT(text, HasSubstr("2.04150 (2.04100 to 2.04200)"));
  EXPECT_THAT(text, HasSubstr("| front | 4 | simulated | 2,000 | 2.00 | 50.0 |"));
  EXPECT_THAT(text, HasSubstr("| threads | 1 | wall | 1,000 |"));
  EXPECT_THAT(text, HasSubstr("- **behind**: Behind | the training: `sync.mode=shadow`\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("gap to behind")));
}

TEST_F(ScalingStudy, TheJsonHasTheSameNumbers) {
  const auto json = nlohmann::json::parse(table_json(results()));
  ASSERT_EQ(json["scaling"].size(), 3u);
  EXPECT_EQ(json["scaling"][0]["arm"], "behind");
  EXPECT_NEAR(json["scaling"][0]["points"][2]["examples_per_s"].get<double>(), 3600, 1e-6);
  EXPECT_EQ(json["scaling"][0]["points"][0]["run_of"], "one");
  EXPECT_EQ(json["scaling"][2]["clock"], "wall");
}

TEST_F(ScalingStudy, TheFigureHasThreePanelsAndALinearReference) {
  const std::string svg = figure_svg(results());
  for (const char* part : {"thousand examples/s, simulated", ">linear<", ">val/loss<",
                           "slots between two syncs, mean", "Behind | the training"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
}

TEST_F(ScalingStudy, FinishedPointsAreKeptAndOthersStart) {
  std::filesystem::remove_all(ab::run_parent(request_.folder, "behind.4", 2));
  std::filesystem::remove_all(ab::run_parent(request_.folder, "threads.1", 1));
  const Outcome outcome = reproduce(given_, size_, request_);
  EXPECT_EQ(outcome.kept, 10u);
  EXPECT_EQ(outcome.started, 2u);
  EXPECT_EQ(outcome.runs.failed.size(), 2u);  // there is no program; both clocks were tried
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_THAT(closing_text(outcome), HasSubstr("simulated examples/s: 1,000 at 1; 1,800 at 2; 3,600 at 4;"));
}

}  // namespace
}  // namespace tenon::reproduce
