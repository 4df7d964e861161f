// Studies in a family, with prepared runs that a stand-in for the program copies into place: the level that a
// question gets, keeps and prints, and what may not become a question or go on as one.
#include "ab/family.hpp"

#include "ab/ab.hpp"
#include "ab/look_record.hpp"
#include "ab/testing/synthetic_runs.hpp"
#include "ab/verdict_line.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace tenon::ab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

constexpr std::int64_t kPairs = 7, kFixedPairs = 5;
constexpr SequentialRule kLooks{
    .max_seeds = kPairs, .first_look = 5, .block = 1, .method = SequentialMethod::kNormal};

class FamilyTest : public ::testing::Test {
 protected:
  FamilyTest() : folder_(testing::fresh_folder("family")) {
    testing::write_text(folder_ + "/base.toml", "[run]\nsteps = 400\n");
  }

  std::string family() const { return folder_ + "/family"; }
  std::string study(const std::string& name) const { return folder_ + "/" + name; }

  /// An experiment on seeds from `first` on whose other arms are worse by `shift`; its runs are
  /// prepared.
  Experiment ask(const std::string& name, std::int64_t first, double shift, std::size_t arms = 2,
                 std::int64_t pairs = kFixedPairs) {
    Experiment e = testing::sample_experiment(static_cast<std::size_t>(pairs));
    e.name = name;
    e.base = folder_ + "/base.toml";
    e.seeds.clear();
    for (std::int64_t seed = first; seed < first + pairs; ++seed) e.seeds.push_back(seed);
    while (e.arms.size() < arms) {
      e.arms.push_back(e.arms.back());
      e.arms.back().name = fmt::format("arm{}", e.arms.size());
    }
    if (!factors_.empty()) {
      e.factors = factors_;
      e.arms.clear();
      for (std::size_t cell = 0; cell < cell_count(factors_); ++cell)
        e.arms.push_back({.name = cell_name(factors_, cell), .set = cell_sets(factors_, cell)});
    }
    for (Arm& arm : e.arms) arm.extends.clear();
    testing::write_runs(e, folder_ + "/prepared/" + name, [&](std::size_t arm, std::int64_t seed) {
      testing::SyntheticRun run;
      run.seed = seed;
      run.steps = 400;
      const auto noise = [&](std::uint64_t stream) {
        return testing::normal_deviate(static_cast<std::uint64_t>(seed), stream);
      };
      run.final_loss = 2 + 0.05 * noise(90) + (shifted_(arm) ? shift : 0) + 0.007 * noise(arm + 17);
      return run;
    });
    return e;
  }

  Experiment ask_with_looks(const std::string& name, std::int64_t first, double shift, std::size_t arms = 2) {
    Experiment e = ask(name, first, shift, arms, kPairs);
    e.sequential = kLooks;
    return e;
  }

  StudyOptions options(const Experiment& e, const std::string& before = "") {
    StudyOptions o;
    o.folder = study(e.name);
    o.family = family();
    o.jobs = 4;
    o.progress = [this](const std::string& line, bool finished) {
      if (finished) said_ += line + "\n";
    };
    o.program = testing::stand_in(
        folder_, "arm=$(basename $(dirname \"$dir\"))\necho $arm $seed >>" + folder_ + "/made\n" + before +
                     "\nn=1; while [ -e \"$dir/$n\" ]; do n=$((n+1)); done\nmkdir -p \"$dir\" && cp -r \"" +
                     folder_ + "/prepared/" + e.name + "/runs/$arm/$seed/1\" \"$dir/$n\"");
    return o;
  }

  std::size_t runs_made() const {
    std::ifstream in(folder_ + "/made");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }

  std::string error_of(const Experiment& e, const StudyOptions& options) const {
    try {
      run_study(e, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::size_t questions() const { return read_ledger(family()).questions.size(); }
  json record_of(const std::string& name) const {
    return json::parse(testing::read_text_file(study(name) + "/experiment.json"))["experiment"];
  }

  std::string folder_, said_;
  std::vector<Factor> factors_;  ///< of the experiments that ask() makes
  std::function<bool(std::size_t arm)> shifted_ = [](std::size_t arm) { return arm > 0; };
};

TEST_F(FamilyTest, AQuestionTakesItsLevelBeforeItsFirstRunAndSaysItEverywhere) {
  const Experiment e = ask_with_looks("first", 1, 0.05);
  // The program keeps what the ledger holds when it is first started.
  const StudyOptions o =
      options(e, "[ -e " + folder_ + "/then ] || cp " + Ledger::path_of(family()) + " " + folder_ + "/then");
  const StudyOutcome out = run_study(e, o);
  const LedgerBook then = parse_ledger(testing::read_text_file(folder_ + "/then"), "then");
  ASSERT_EQ(then.questions.size(), 1u);
  EXPECT_FALSE(then.questions[0].answer);
  const double level = 0.05 * share_of(1);
  EXPECT_DOUBLE_EQ(then.questions[0].level, level);
  EXPECT_EQ(then.questions[0].asked.folder, "../first");
  EXPECT_EQ(then.questions[0].asked.digest, plan_digest(e));

  ASSERT_EQ(out.exit_status, 0) << closing_text(out);
  const Comparison& c = out.result.comparisons[0];
  EXPECT_EQ(c.verdict.outcome, Outcome::kWorse);
  EXPECT_DOUBLE_EQ(c.sequential->alpha, level);
  EXPECT_GE(c.sequential->course.looks.back().log_e, -std::log(level));
  const LedgerBook now = read_ledger(family());
  ASSERT_TRUE(now.questions[0].answer);
  EXPECT_TRUE(now.questions[0].answer->discovery);
  EXPECT_NEAR(std::log(*now.questions[0].answer->arms[0].e), c.sequential->course.looks.back().log_e, 1e-9);

  const std::string words =
      "Question 1 of the family " + family() + " has the level 0.0146 = 0.05 \u00d7 0.293 \u00d7 1";
  EXPECT_THAT(closing_text(out), HasSubstr(words));
  EXPECT_THAT(closing_text(out), HasSubstr("= 1 / the question's level"));
  EXPECT_THAT(closing_text(out), HasSubstr("98.54% confidence sequence"));
  EXPECT_THAT(testing::read_text_file(out.report_html_path), HasSubstr(words));
  EXPECT_THAT(testing::read_text_file(out.report_html_path),
              HasSubstr("0.0146, question 1 of a family at 0.05"));
  EXPECT_DOUBLE_EQ(record_of("first")["alpha"].get<double>(), level);
  EXPECT_EQ(record_of("first")["family"]["question"], 1);
  const json report = json::parse(testing::read_text_file(out.report_json_path));
  EXPECT_DOUBLE_EQ(report["family"]["level"].get<double>(), level);
  EXPECT_EQ(report["family"]["discovery"], true);
  const json line = json::parse(verdict_line(out));
  EXPECT_DOUBLE_EQ(line["family"]["level"].get<double>(), level);
  EXPECT_EQ(line["family"]["question"], 1);
  EXPECT_EQ(line["family"]["discovery"], true);
  // tenon report
  EXPECT_EQ(closing_text(report_study(study("first"))), closing_text(out));
}

TEST_F(FamilyTest, ADiscoveryHelpsTheNextQuestionAndArmsShareItsLevel) {
  Experiment e = ask_with_looks("one", 1, 0.05);
  run_study(e, options(e));
  e = ask_with_looks("two", 101, 0.0, 3);
  const StudyOutcome out = run_study(e, options(e));
  const double level = 0.05 * share_of(2) * 2;
  for (const Comparison& c : out.result.comparisons) EXPECT_DOUBLE_EQ(c.sequential->alpha, level / 2);
  const Question second = read_ledger(family()).questions[1];
  EXPECT_DOUBLE_EQ(second.level, level);
  EXPECT_EQ(second.discoveries, 1u);
  ASSERT_EQ(second.answer.value().arms.size(), 2u);
  EXPECT_EQ(second.answer->arms[0].outcome, "undecided");
  EXPECT_FALSE(second.answer->discovery);
  // On seeds that were used before the level is the reshaped one.
  e = ask_with_looks("three", 3, 0.05);
  said_.clear();
  run_study(e, options(e));
  EXPECT_DOUBLE_EQ(read_ledger(family()).questions[2].level, 0.05 * share_of(3) * (1.0 / 2 + 1.0 / 3));
  EXPECT_THAT(said_, HasSubstr("seeds 3 to 9 were used by question 1, too"));
  EXPECT_THAT(said_, HasSubstr("with seeds from 108 on"));
}

TEST_F(FamilyTest, AFixedStudyDecidesByItsPValueAtTheReshapedLevel) {
  const Experiment e = ask("fixed", 1, 0.05);
  const StudyOutcome out = run_study(e, options(e));
  const double level = 0.05 * share_of(1) / 2;
  EXPECT_DOUBLE_EQ(out.result.study.experiment.alpha, level);
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kWorse);
  EXPECT_THAT(closing_text(out), HasSubstr("99.268% interval"));
  const Question q = read_ledger(family()).questions[0];
  EXPECT_DOUBLE_EQ(q.answer.value().arms[0].p.value(), out.result.comparisons[0].primary.adjusted_p);
  EXPECT_FALSE(q.answer->arms[0].e);
  EXPECT_EQ(closing_text(report_study(study("fixed"))), closing_text(out));
}

TEST_F(FamilyTest, AFactorialStudyAnswersByItsEffects) {
  factors_ = {{"first", {{"off"}, {"on"}}}, {"second", {{"off"}, {"on"}}}};
  shifted_ = [](std::size_t cell) { return cell % 2 == 1; };  // the second factor alone does something
  const Experiment e = ask("crossed", 1, 0.05);
  const StudyOutcome out = run_study(e, options(e));
  ASSERT_TRUE(out.result.factorial) << closing_text(out);
  const Question q = read_ledger(family()).questions[0];
  ASSERT_EQ(q.answer.value().arms.size(), 3u);
  EXPECT_EQ(q.answer->arms[0].arm, "first=on");
  EXPECT_EQ(q.answer->arms[0].outcome, "inconclusive");
  EXPECT_EQ(q.answer->arms[1].arm, "second=on");
  EXPECT_EQ(q.answer->arms[1].outcome, "worse");
  EXPECT_DOUBLE_EQ(q.answer->arms[1].p.value(), out.result.factorial->main[1].contrast.primary.adjusted_p);
  EXPECT_EQ(q.answer->arms[2].outcome, "none shown");
  EXPECT_TRUE(q.answer->discovery);
  EXPECT_EQ(json::parse(verdict_line(out))["family"]["discovery"], true);
  EXPECT_THAT(closing_text(out), HasSubstr("Question 1 of the family"));
  EXPECT_THAT(testing::read_text_file(out.report_html_path), HasSubstr("Question 1 of the family"));
  // Its verdict is repeated like any other.
  said_.clear();
  EXPECT_EQ(closing_text(run_study(e, options(e))), closing_text(out));
  EXPECT_THAT(said_, HasSubstr("is answered"));
}

TEST_F(FamilyTest, AStudyThatFailedGoesOnWithItsQuestionAndItsRuns) {
  for (const bool looks : {false, true}) {
    Experiment e = looks ? ask_with_looks("looks", 101, 0.05) : ask("plain", 1, 0.05);
    const std::size_t before = looks ? 1 : 0;
    const std::string bad = fmt::format("[ $seed = {} ] && exit 3", looks ? 103 : 3);
    const StudyOutcome failed = run_study(e, options(e, bad));
    EXPECT_EQ(failed.exit_status, 1);
    ASSERT_EQ(questions(), before + 1);
    EXPECT_FALSE(read_ledger(family()).questions.back().answer);
    const double level = record_of(e.name)["alpha"];
    fs::remove(folder_ + "/made");
    const StudyOutcome done = run_study(e, options(e));
    EXPECT_EQ(done.exit_status, 0) << closing_text(done);
    EXPECT_EQ(questions(), before + 1);
    EXPECT_EQ(done.result.study.experiment.alpha, level);
    EXPECT_TRUE(read_ledger(family()).questions.back().answer);
    if (!looks) {
      EXPECT_EQ(runs_made(), 2u);  // of the seed that failed
    }
    // Answered: no run is made, and the verdict is the same, however the folders are written.
    fs::remove(folder_ + "/made");
    said_.clear();
    StudyOptions o = options(e);
    o.folder = folder_ + "/family/.././" + e.name + "/";
    o.family = family() + "/";
    const StudyOutcome again = run_study(e, o);
    EXPECT_EQ(runs_made(), 0u);
    EXPECT_EQ(again.result.verdict().sentences, done.result.verdict().sentences);
    EXPECT_EQ(questions(), before + 1);
    EXPECT_THAT(said_, HasSubstr("is answered"));
  }
}

TEST_F(FamilyTest, AnAnswerThatTheRunsNoLongerGiveIsAnError) {
  const Experiment e = ask("changed", 1, 0.05);
  run_study(e, options(e));
  const Experiment other = ask("changed", 1, 0.0);  // the same plan, other runs
  fs::remove_all(study("changed") + "/runs");
  fs::copy(folder_ + "/prepared/changed/runs", study("changed") + "/runs", fs::copy_options::recursive);
  EXPECT_THAT(error_of(other, options(other)), HasSubstr("do not give the verdict that the ledger"));
  fs::remove_all(study("changed") + "/runs");
  EXPECT_THAT(error_of(e, options(e)), HasSubstr("its runs are gone"));
}

TEST_F(FamilyTest, RestartIsANewQuestion) {
  for (const bool looks : {false, true}) {
    Experiment e = looks ? ask_with_looks("looks", 101, 0.05) : ask("plain", 1, 0.05);
    const std::size_t before = looks ? 2 : 0;
    run_study(e, options(e));
    StudyOptions o = options(e);
    o.restart = true;
    said_.clear();
    const StudyOutcome out = run_study(e, o);
    EXPECT_EQ(out.exit_status, 0) << closing_text(out);
    const LedgerBook book = read_ledger(family());
    ASSERT_EQ(book.questions.size(), before + 2);
    // The second one shares its seeds with the first.
    EXPECT_EQ(book.questions.back().rule, LevelRule::kReshaped);
    EXPECT_THAT(said_, HasSubstr(fmt::format("the share of question {} stays spent", before + 1)));
    EXPECT_TRUE(fs::exists(study(e.name) + "/earlier/1/experiment.json"));
    EXPECT_EQ(record_of(e.name)["family"]["question"], before + 2);
  }
}

TEST_F(FamilyTest, AQuestionWhoseRestartACrashCutIsNotSpentTwice) {
  const Experiment e = ask_with_looks("cut", 1, 0.0);
  run_study(e, options(e));
  {
    // The line of the new question is there, and nothing else of it.
    Ledger ledger(family(), 0.05);
    ledger.begin(ledger.book().questions[0].asked);
  }
  EXPECT_THAT(error_of(e, options(e)), HasSubstr("holds runs of question 1"));
  StudyOptions o = options(e);
  o.restart = true;
  run_study(e, o);
  EXPECT_EQ(questions(), 2u);
  EXPECT_TRUE(read_ledger(family()).questions[1].answer);
  // Before the first run of a folder: started again, the question is the same.
  const Experiment fresh = ask_with_looks("fresh", 201, 0.0);
  {
    Ledger ledger(family(), 0.05);
    ledger.begin({.question = "",
                  .experiment = "fresh",
                  .file = "",
                  .folder = "../fresh",
                  .digest = plan_digest(fresh),
                  .seeds = ranges_of(fresh.seeds),
                  .tuning = {},
                  .sequential = true});
  }
  run_study(fresh, options(fresh));
  EXPECT_EQ(questions(), 3u);
}

TEST_F(FamilyTest, RunsFromElsewhereDoNotBecomeAQuestion) {
  for (const bool looks : {false, true}) {
    Experiment e = looks ? ask_with_looks("before", 101, 0.05) : ask("outside", 1, 0.05);
    StudyOptions o = options(e);
    o.family = "";
    run_study(e, o);
    EXPECT_THAT(error_of(e, options(e)), HasSubstr("holds runs from outside the family"));
  }
  EXPECT_EQ(questions(), 0u);
  Experiment e = ask("inside", 201, 0.05);
  run_study(e, options(e));
  // Out of the family, into another one, and edited.
  StudyOptions o = options(e);
  o.family = "";
  EXPECT_THAT(error_of(e, o), HasSubstr("is question 1 of the family " + family()));
  o.family = folder_ + "/other";
  EXPECT_THAT(error_of(e, o), HasSubstr("is question 1 of another family"));
  e.margin = 0.5;
  EXPECT_THAT(error_of(e, options(e)), HasSubstr("was edited since"));
  EXPECT_EQ(questions(), 1u);
  o = options(e);
  o.restart = true;
  run_study(e, o);
  EXPECT_EQ(questions(), 2u);
  // A ledger that was put back as it was before the question.
  fs::remove_all(family());
  const Experiment first = ask("first", 301, 0.05);
  run_study(first, options(first));
  const std::string early = testing::read_text_file(Ledger::path_of(family()));
  const Experiment second = ask("second", 401, 0.05);
  run_study(second, options(second));
  testing::write_text(Ledger::path_of(family()), early);
  EXPECT_THAT(error_of(second, options(second)), HasSubstr("the ledger has lost lines"));
}

TEST_F(FamilyTest, RefusalsSpendNothing) {
  Experiment e = ask_with_looks("refused", 1, 0.05);
  StudyOptions o = options(e);
  o.self_check = true;
  EXPECT_THAT(error_of(e, o), HasSubstr("--aa asks nothing about the arms"));
  EXPECT_FALSE(fs::exists(family()));
  // Seven pairs of the sign process give an e-value of at most 32, and the first question needs 68.3.
  e.sequential->method = SequentialMethod::kSign;
  EXPECT_THAT(error_of(e, options(e)),
              HasSubstr("would get the level 0.0146, and 7 pairs conclude at 0.0313"));
  e.sequential.reset();
  e.test = DecidingTest::kSignFlip;
  EXPECT_THAT(error_of(e, options(e)),
              HasSubstr("would get the level 0.00732, and 7 pairs conclude at 0.0156"));
  EXPECT_EQ(questions(), 0u);
  e.alpha = 0.1;
  EXPECT_THAT(error_of(e, options(e)), HasSubstr("alpha is 0.1, and the family"));
  EXPECT_EQ(runs_made(), 0u);
}

TEST_F(FamilyTest, TheLedgerIsATableAndALine) {
  Experiment e = ask_with_looks("slower", 1, 0.05);
  e.question = "Is it slower?";
  run_study(e, options(e));
  e = ask("several", 101, 0.0, 3);
  e.question = "";
  run_study(e, options(e));
  e = ask_with_looks("broken", 201, 0.0);
  run_study(e, options(e, "exit 3"));
  const std::string table = ledger_table(family());
  EXPECT_THAT(table, HasSubstr(plan_digest(e).substr(0, 8)));
  EXPECT_THAT(table, HasSubstr("worse "));
  EXPECT_THAT(table, HasSubstr("  Is it slower?\n"));
  EXPECT_THAT(table, HasSubstr("  several\n"));  // by its name, where there is no question
  EXPECT_THAT(table, HasSubstr("nvfp4 inconclusive, arm3 inconclusive"));
  EXPECT_THAT(table, HasSubstr("3 questions, one discovery, 1 open; 0.025 of alpha = 0.05 is shared out.\n"));
  EXPECT_THAT(table, HasSubstr(fmt::format("the level {:.3g} on seeds from 208 on", 0.1 * share_of(4))));
  const json line = json::parse(ledger_line(family()));
  EXPECT_EQ(line["discoveries"], 1);
  EXPECT_EQ(line["open"], 1);
  EXPECT_EQ(line["questions"].size(), 3u);
  EXPECT_EQ(line["questions"][0]["discovery"], true);
  EXPECT_EQ(line["questions"][1]["arms"][1]["verdict"], "inconclusive");
  EXPECT_EQ(line["questions"][2]["discovery"], nullptr);
  EXPECT_EQ(line["next_seed"], 208);
}

}  // namespace
}  // namespace tenon::ab
