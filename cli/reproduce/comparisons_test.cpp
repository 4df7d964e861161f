// Results of a study beside last values: columns of other data, verdicts, first updates; and its tables in
// the file.
#include "reproduce/render.hpp"
#include "reproduce/results.hpp"

#include "ab/study.hpp"
#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <functional>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::read_text_file;
using ab::testing::replaced;
using ab::testing::write_text;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kCompared = R"(title = "Grids"
paper = "A paper"
question = "Are four one?"
base = "base.toml"
baseline = "one"
figure = "curves"
margin = 0.1

[size.quick]
steps = 400
seeds = [1]
simulate = ["simulate.samples=3"]

[size.default]
steps = 400
seeds = [1, 2, 3]

[simulate]
config = "flow.toml"
set = ["simulator.grid=8"]
sizes = ["quick"]

[[evaluate]]
name = "finer"
set = ["data.path=fine"]
arms = ["one"]

[[evaluate]]
name = "quickly"
metric = "val/other"
sizes = ["quick"]

[[agree]]
arm = "four"
with = "one"
updates = 2

[[arm]]
name = "one"

[[arm]]
name = "four"

[[paper_value]]
arm = "one"
value = 0.0128
what = "N 1000"
source = "a table"
)";

class Comparisons : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
    write_text(folder_ + "/base.toml", "[run]\nname = \"x\"\n");
    write_text(folder_ + "/flow.toml", "");
    study_ = read(kCompared);
  }
  StudyFile read(const std::string& text) const {
    write_text(folder_ + "/grids.toml", text);
    return read_study(folder_ + "/grids.toml");
  }
  std::string said(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  /// Runs of both arms; the losses of `four` end `apart` above those of `one`.
  StudyResult results(const std::function<double(std::int64_t seed)>& apart) {
    ab::RunnerOptions options;
    options.folder = folder_ + "/out";
    plan_ = make_plan(study_, *study_.size("default"), options,
                      [](const std::string& path, const std::vector<std::string>& sets) {
                        return ResolvedRun{Config::load(path, sets).root(), {"parameters: 7 trained"}};
                      });
    ab::testing::write_runs(plan_.experiment, options.folder, [&](std::size_t arm, std::int64_t seed) {
      return ab::testing::SyntheticRun{.seed = seed, .final_loss = 2.0 + (arm == 1 ? apart(seed) : 0)};
    });
    return read_results(study_, *study_.size("default"), plan_, options.folder);
  }
  /// Replaces the training metrics of a run by one line per loss, from update 1 on.
  void write_losses(const char* arm, int seed, const std::vector<double>& losses) const {
    const std::string path = ab::run_parent(folder_ + "/out", arm, seed) + "/1/metrics.jsonl";
    std::string text;
    for (std::size_t i = 0; i < losses.size(); ++i)
      text += R"({"step": )" + std::to_string(i + 1) + R"(, "split": "train", "name": "loss", "value": )" +
              std::to_string(losses[i]) + R"(, "wall_s": 1, "samples": 1, "tokens": 1, "bytes_sent": 0})" +
              "\n";
    write_text(path, text);
  }

  std::string folder_;
  StudyFile study_;
  Plan plan_;
};

TEST_F(Comparisons, TablesAreReadWhole) {
  ASSERT_TRUE(study_.simulation);
  EXPECT_EQ(study_.simulation->config, folder_ + "/flow.toml");
  EXPECT_THAT(study_.simulation->set, ElementsAre("simulator.grid=8"));
  EXPECT_THAT(study_.size("quick")->simulate, ElementsAre("simulate.samples=3"));
  ASSERT_EQ(study_.evaluations.size(), 2u);
  EXPECT_EQ(study_.evaluations[0].metric, "val/loss") << "the study's";
  EXPECT_EQ(study_.evaluations[1].metric, "val/other");
  ASSERT_EQ(study_.agreements.size(), 1u);
  EXPECT_EQ(study_.agreements[0].metric, "train/loss");
  EXPECT_EQ(study_.agreements[0].updates, 2);
  EXPECT_EQ(study_.margin, 0.1);
}

TEST_F(Comparisons, MistakesInTheTablesNameTheKeyAndWhatIsNear) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"config = \"flow", "cfg = \"flow", "simulate"},
      {"sizes = [\"quick\"]", "sizes = [\"quik\"]", "the study has no size 'quik'; did you mean 'quick'?"},
      {"arms = [\"one\"]", "arms = [\"on\"]",
       "evaluate[0].arms[0]: no arm is called 'on'; did you mean 'one'?"},
      {"name = \"quickly\"", "name = \"finer\"", "evaluate[1].name: two columns are called 'finer'"},
      {"arm = \"four\"", "arm = \"for\"", "agree[0].arm: no arm is called 'for'; did you mean 'four'?"},
      {"with = \"one\"", "with = \"four\"", "agree[0].with: an arm agrees with itself; name another"},
      {"updates = 2", "updates = 0", "updates"},
      {"margin = 0.1", "margin = -1", "margin"},
      {"[size.default]\n", "[size.default]\nsimulate = [\"a.b=1\"]\n",
       "size.default.simulate: nothing is simulated at this size without [simulate]"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(said(replaced(kCompared, c.from, c.to)), HasSubstr(c.message)) << c.to;
}

TEST_F(Comparisons, ColumnsAreMeasuredOnFinishedRunsOfTheArmsThatTheyName) {
  StudyResult r = results([](std::int64_t) { return 0; });
  std::vector<std::string> asked;
  read_columns(r, [&](const std::string& run, const std::vector<std::string>& sets) {
    EXPECT_THAT(sets, ElementsAre("data.path=fine"));
    asked.push_back(run.substr(folder_.size()));
    const double value = 0.1 * static_cast<double>(asked.size());
    return std::map<std::string, double>{{"val/loss", value}};
  });
  EXPECT_THAT(asked, ElementsAre("/out/runs/one/1/1", "/out/runs/one/2/1", "/out/runs/one/3/1"));
  ASSERT_EQ(r.columns.size(), 1u) << "the other one is of size quick";
  EXPECT_TRUE(r.complete);
  const std::string text = comparisons_markdown(r);
  EXPECT_THAT(text, HasSubstr("| arm | val/loss of the runs | finer |\n"));
  EXPECT_THAT(text, HasSubstr("| one | 2.0000 (2.0000 to 2.0000) | 0.2000 (0.1000 to 0.3000) |\n"));
  EXPECT_THAT(text, HasSubstr("| four | 2.0000 (2.0000 to 2.0000) | – |\n"));
  EXPECT_THAT(text, HasSubstr("- **finer**: val/loss with `data.path=fine`\n"));
  const auto json = nlohmann::json::parse(table_json(r));
  ASSERT_EQ(json["evaluations"][0]["runs"].size(), 3u);
  EXPECT_EQ(json["evaluations"][0]["runs"][2]["seed"], 3);
  EXPECT_NEAR(json["evaluations"][0]["runs"][2]["value"].get<double>(), 0.3, 1e-12);
}

TEST_F(Comparisons, WhatCannotBeMeasuredIsSaidAndTheStudyNotComplete) {
  StudyResult r = results([](std::int64_t) { return 0; });
  int calls = 0;
  read_columns(r, [&](const std::string&, const std::vector<std::string>&) -> std::map<std::string, double> {
    if (++calls == 1) fail_config("no checkpoint");
    if (calls == 2) return {{"val/loss", std::nan("")}};
    return {{"val/loss", 0.5}};
  });
  EXPECT_FALSE(r.complete);
  EXPECT_THAT(r.warnings, Contains("one, seed 1, finer: no checkpoint"));
  EXPECT_THAT(r.warnings, Contains("one, seed 2, finer: no finite value of val/loss was measured"));
  EXPECT_THAT(comparisons_markdown(r), HasSubstr("| 0.5000 |"));
}

TEST_F(Comparisons, FirstUpdatesAreComparedOneByOne) {
  results([](std::int64_t) { return 0; });
  for (int seed = 1; seed <= 3; ++seed) {
    write_losses("one", seed, {4, 2, 1});
    // The third update is beyond those that are compared.
    write_losses("four", seed, {4, seed == 2 ? 2.002 : 1.999, 3});
  }
  StudyResult r = read_results(study_, *study_.size("default"), plan_, folder_ + "/out");
  read_agreements(r);
  ASSERT_EQ(r.agreements.size(), 1u);
  const Agreement& a = r.agreements[0];
  EXPECT_EQ(a.seeds, 3u);
  EXPECT_NEAR(*a.largest, 1e-3, 1e-12);
  EXPECT_EQ(a.seed, 2);
  EXPECT_EQ(a.update, 2);
  EXPECT_THAT(comparisons_markdown(r),
              HasSubstr("- four against one: the largest relative difference of train/loss over the first 2 "
                        "updates of 3 seeds is 0.001 (seed 2, update 2).\n"));

  write_losses("four", 1, {4});
  r = read_results(study_, *study_.size("default"), plan_, folder_ + "/out");
  read_agreements(r);
  EXPECT_EQ(r.agreements[0].seeds, 2u);
  EXPECT_FALSE(r.complete);
  EXPECT_THAT(r.warnings,
              Contains("four and one, seed 1: expected train/loss after each of the first 2 updates "
                       "of both; let run.log_every be 1"));
}

TEST_F(Comparisons, VerdictsAreThoseOfTheABRunner) {
  StudyResult r = results([](std::int64_t seed) { return 0.001 * static_cast<double>(seed - 2); });
  read_verdicts(r, plan_.experiment);
  ASSERT_EQ(r.verdicts.size(), 1u);
  EXPECT_EQ(r.verdicts[0].verdict.outcome, ab::Outcome::kEquivalent) << r.verdicts[0].verdict.headline;
  EXPECT_THAT(comparisons_markdown(r),
              HasSubstr("- four and one are equivalent within 0.1: val/loss differs by"));

  r = results([](std::int64_t seed) { return 0.3 + 0.001 * static_cast<double>(seed); });
  read_verdicts(r, plan_.experiment);
  EXPECT_EQ(r.verdicts[0].verdict.outcome, ab::Outcome::kWorse) << r.verdicts[0].verdict.headline;
  const auto json = nlohmann::json::parse(table_json(r));
  EXPECT_EQ(json["verdicts"][0]["outcome"], "worse");
  EXPECT_EQ(json["margin"], 0.1);

  r.verdicts.clear();
  r.study.margin = 0;
  read_verdicts(r, plan_.experiment);
  EXPECT_THAT(r.verdicts, IsEmpty());
}

TEST_F(Comparisons, RunsThatAreMissingLeaveNoVerdict) {
  results([](std::int64_t) { return 0; });
  std::filesystem::remove_all(ab::run_parent(folder_ + "/out", "four", 2));
  StudyResult r = read_results(study_, *study_.size("default"), plan_, folder_ + "/out");
  read_verdicts(r, plan_.experiment);
  ASSERT_EQ(r.verdicts.size(), 1u);
  EXPECT_EQ(r.verdicts[0].verdict.outcome, ab::Outcome::kNone);
  EXPECT_THAT(r.verdicts[0].verdict.sentences, Contains("four, seed 2: missing"));
}

TEST_F(Comparisons, NumbersBesideCurvesAreInTheMetricsUnits) {
  const std::string text = table_markdown(results([](std::int64_t) { return 0; }));
  EXPECT_THAT(text, HasSubstr("| 0.0128 [N 1000] |"));
  EXPECT_THAT(text, HasSubstr("Numbers of the paper and of others:\n\n- one: 0.0128 (N 1000; a table)\n"));
  EXPECT_THAT(text, Not(HasSubstr("far larger model")));
}

}  // namespace
}  // namespace tenon::reproduce
