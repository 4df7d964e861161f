// Factorial studies: the file and its refusals, contrasts against NumPy's, error rates on planted effects,
// seeds with failed cells, and the reports.
#include "ab/factorial.hpp"
#include "test_paths.hpp"

#include "ab/ab.hpp"
#include "ab/testing/synthetic_runs.hpp"
#include "ab/verdict_line.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::replaced;
using ::testing::SizeIs;
using testing::SyntheticRun;

constexpr const char* kGood = R"(base = "../base.toml"
seeds = [1, 2, 3]
budget = { steps = 10 }
[[factor]]
name = "rounding"
levels = [{ name = "stochastic" }, { name = "nearest", set = { "precision.stochastic" = "none" } }]
[[factor]]
name = "rate"
levels = [
  { name = "low", set = { optimizer.lr = 1e-3, "precision.+keep" = ["head"] } },
  { name = "high", set = { optimizer.lr = 1e-2 } },
  { name = "higher", set = { optimizer.lr = 3e-2, optimizer.betas = [0.9, 0.99] } },
]
)";

std::string write_factors(const std::string& text) {
  const std::string folder = testing::fresh_folder("factors"), path = folder + "/experiments/study.toml";
  testing::write_text(path, text);
  testing::write_text(folder + "/base.toml", "");
  return path;
}

std::string refusal_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    read_experiment(write_factors(text), sets);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(FactorFile, CellsAreTheArms) {
  const Experiment e = read_experiment(write_factors(kGood), {});
  ASSERT_THAT(e.factors, SizeIs(2));
  EXPECT_EQ(e.factors[1].levels[2].name, "higher");
  std::vector<std::string> names;
  for (const Arm& arm : e.arms) names.push_back(arm.name);
  EXPECT_THAT(names, ElementsAre("rounding-stochastic_rate-low", "rounding-stochastic_rate-high",
                                 "rounding-stochastic_rate-higher", "rounding-nearest_rate-low",
                                 "rounding-nearest_rate-high", "rounding-nearest_rate-higher"));
  EXPECT_THAT(e.arms[0].set, ElementsAre("optimizer.lr=0.001", "precision.+keep=[\"head\"]"));
  EXPECT_THAT(e.arms[5].set, ElementsAre("precision.stochastic=\"none\"", "optimizer.lr=0.03",
                                         "optimizer.betas=[0.9, 0.99]"));
  for (std::size_t cell = 0; cell < e.arms.size(); ++cell)
    EXPECT_EQ(cell_of_levels(e.factors, levels_of_cell(e.factors, cell)), cell);
  const StudyRecord back = parse_study_record(study_record_json({e, 2, false}), "test");
  EXPECT_EQ(study_record_json(back), study_record_json({e, 2, false}));
  ASSERT_THAT(back.experiment.factors, SizeIs(2));
  EXPECT_EQ(back.experiment.factors[1].levels[1].set, e.factors[1].levels[1].set);
}

TEST(FactorFile, MistakesAreNamedWithTheirLine) {
  const std::string second = "[[factor]]\nname = \"rate\"";
  const struct {
    std::string what, with, message;
  } cases[] = {
      {second, "[[arm]]\nname = \"a\"\n" + second, "study.toml:7:1: [[arm]] stands beside [[factor]]"},
      {second, "[sequential]\nmax_seeds = 3\n" + second,
       "study.toml:7:1: [sequential] looks at one difference"},
      {second, "[tune]\nseeds = [8, 9]\n" + second, "study.toml:7:1: [tune] would give cells settings"},
      {"budget", "decide_by = \"time_to_target\"\ntarget = 2.0\nbudget",
       "study.toml:3:13: decide_by = \"time_to_target\" has no contrasts"},
      {"name = \"rate\"", "name = \"rounding\"", "study.toml:7:1: two factors are called 'rounding'"},
      {"name = \"rate\"", "name = \"the rate\"",
       "study.toml:8:8: the factor name 'the rate' cannot be a part"},
      {"\"higher\"", "\"high\"", "study.toml:12:3: factor 'rate' has two levels called 'high'"},
      {"\"higher\"", "\"-\"", "study.toml:12:12: the level name '-' cannot be a part"},
      {"optimizer.lr = 1e-2", "optimizer.lr = 1e-3, \"precision.+keep\" = [\"head\"]",
       "study.toml:11:3: levels 'low' and 'high' of factor 'rate' set the same values"},
      {"optimizer.lr = 1e-2", "precision.stochastic = \"none\"", "study.toml:11:"},
      {"optimizer.lr = 1e-2", "\"precision\" = 3", "which factor 'rounding' sets, too ("},
      {"{ name = \"stochastic\" }, ", "",
       "study.toml:6:10: factor 'rounding' has one level; a factor needs at least"},
      {"levels = [{ name = \"stoch", "lvels = [{ name = \"stoch", "lvels"},
      {"{ name = \"stochastic\" }", "{ name = \"stochastic\", sett = {} }", "sett"},
      {"{ name = \"stochastic\" }", "{ name = \"stochastic\", set = 4 }",
       "study.toml:6:40: set of level 'stochastic' is the whole number 4; expected a table"},
      {"\"stochastic\" }", "\"" + std::string(60, 's') + "\" }",
       "has a name of 78 characters, made of the names of its levels; at most 64"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(refusal_of(replaced(kGood, c.what, c.with)), HasSubstr(c.message)) << c.with;
  const std::string conflict =
      refusal_of(replaced(kGood, "optimizer.lr = 1e-2", "precision.stochastic = \"none\""));
  EXPECT_THAT(conflict,
              HasSubstr("factor 'rate' sets precision.stochastic, which factor 'rounding' sets, too"));
  EXPECT_THAT(conflict, HasSubstr("study.toml:6:"));  // where the other one is
  const std::string text = kGood;
  EXPECT_THAT(
      refusal_of(text.substr(0, text.rfind("[[factor]]"))),
      HasSubstr("one factor has no interaction; write its levels as [[arm]] tables, or add a second"));
  EXPECT_THAT(
      refusal_of("base = \"../base.toml\"\nseeds = [1]\nbudget = { steps = 1 }\nfactor = 3\n"),
      HasSubstr("study.toml:4:10: factors are written as [[factor]] tables, found the whole number 3"));
  EXPECT_THAT(refusal_of(kGood, {"decide_by=time_to_target", "target=2"}), HasSubstr("--set decide_by"));
  std::string many = kGood;
  for (int f = 0; f < 3; ++f) {
    many += fmt::format(
        "[[factor]]\nname = \"f{0}\"\nlevels = [{{ name = \"a\" }}, {{ name = \"b\", set = {{ \"x.k{0}\" = "
        "1 }} }}]\n",
        f);
  }
  EXPECT_THAT(refusal_of(many),
              HasSubstr("the factors have 2 x 3 x 2 x 2 x 2 = 48 cells, each with a run for every "
                        "seed; at most 32"));
}

TEST(FactorFile, AnArmAgainstItselfIsRefused) {
  const Experiment e = read_experiment(write_factors(kGood), {});
  StudyOptions options;
  options.folder = testing::fresh_folder("factors_aa");
  options.self_check = true;
  try {
    run_study(e, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("study.toml: --aa compares one arm with itself"));
  }
}

/// Factors a, b, ... with so many levels each.
Experiment experiment_with(const std::vector<std::size_t>& levels, std::size_t seeds) {
  Experiment e = testing::sample_experiment(seeds);
  e.arms.clear();
  for (std::size_t f = 0; f < levels.size(); ++f) {
    Factor factor{std::string(1, static_cast<char>('a' + f)), {}};
    for (std::size_t l = 0; l < levels[f]; ++l)
      factor.levels.push_back({fmt::format("{}", l), {fmt::format("x.f{}={}", f, l)}});
    e.factors.push_back(std::move(factor));
  }
  for (std::size_t cell = 0; cell < cell_count(e.factors); ++cell)
    e.arms.push_back({.name = cell_name(e.factors, cell), .set = cell_sets(e.factors, cell)});
  return e;
}

FactorialResult effects(const Experiment& e, CellValues values) {
  return effects_of(e, std::move(values), [](std::size_t, std::size_t) { return false; });
}

void expect_same(const Comparison& got, const json& want, const std::string& where) {
  const auto close = [&](double value, const char* key) {
    EXPECT_NEAR(value, want.at(key).get<double>(), 1e-9 * std::max(1.0, std::abs(want.at(key).get<double>())))
        << where << " " << key;
  };
  const PairedMetric& m = got.primary;
  const auto differences = want.at("differences").get<std::vector<double>>();
  ASSERT_EQ(m.differences.size(), differences.size());
  for (std::size_t s = 0; s < differences.size(); ++s)
    EXPECT_NEAR(m.differences[s], differences[s], 1e-12) << where;
  close(m.difference.mean, "mean");
  close(m.difference.interval.low, "low");
  close(m.difference.interval.high, "high");
  close(m.t_test.t, "t");
  close(m.t_test.p, "p_t");
  close(m.sign_flip.p, "p_sign_flip");
  close(m.adjusted_p, "p_t_holm");
  close(got.equivalence->p, "p_equivalence");
  close(got.adjusted_equivalence_p, "p_equivalence_holm");
}

// The same contrasts as weights over the cells, in NumPy; see tests/reference/ab_factorial.py.
TEST(Factorial, AgreesWithNumPy) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/ab_factorial.json");
  const json record = json::parse(in);
  ASSERT_GE(record["cases"].size(), 5u);
  for (const json& c : record["cases"]) {
    const std::string name = c["name"];
    const auto values = c["values"].get<CellValues>();
    Experiment e = experiment_with(c["levels"].get<std::vector<std::size_t>>(), values.front().size());
    e.alpha = record["alpha"];
    e.margin = record["margin"];
    const FactorialResult f = effects(e, values);
    ASSERT_EQ(f.main.size(), c["main"].size());
    ASSERT_EQ(f.interactions.size(), c["interactions"].size());
    for (std::size_t i = 0; i < f.main.size(); ++i) {
      EXPECT_EQ(f.main[i].factor, c["main"][i]["factor"].get<std::size_t>());
      EXPECT_EQ(f.main[i].level, c["main"][i]["level"].get<std::size_t>());
      expect_same(f.main[i].contrast, c["main"][i], fmt::format("{}, main effect {}", name, i));
      const json& alone = c["one_at_a_time"][i];
      expect_same(f.main[i].one_at_a_time, alone, fmt::format("{}, one at a time {}", name, i));
      EXPECT_NEAR(f.main[i].gap.mean, alone["gap"].get<double>(), 1e-9);
      EXPECT_NEAR(f.main[i].gap.interval.low, alone["gap_low"].get<double>(), 1e-9);
      EXPECT_NEAR(f.main[i].gap.interval.high, alone["gap_high"].get<double>(), 1e-9);
    }
    for (std::size_t i = 0; i < f.interactions.size(); ++i) {
      const json& want = c["interactions"][i];
      EXPECT_EQ(f.interactions[i].first, want["first"].get<std::size_t>());
      EXPECT_EQ(f.interactions[i].second_level, want["second_level"].get<std::size_t>());
      expect_same(f.interactions[i].contrast, want, fmt::format("{}, interaction {}", name, i));
    }
  }
}

/// Values of a 2 x 2 x 2 study: a deviation of each seed, noise of each run, and planted effects of a, b and
/// of both, in units of the noise.
CellValues planted(std::uint64_t study, std::size_t seeds, double a, double b, double both) {
  CellValues out(8, std::vector<double>(seeds));
  for (std::size_t s = 0; s < seeds; ++s) {
    const double of_seed = 10 * testing::normal_deviate(study * 64 + s, 900);
    for (std::size_t cell = 0; cell < 8; ++cell) {
      const bool has_a = cell & 4, has_b = cell & 2;
      out[cell][s] = of_seed + testing::normal_deviate(study * 64 + s, cell) + (has_a ? a : 0) +
                     (has_b ? b : 0) + (has_a && has_b ? both : 0);
    }
  }
  return out;
}

bool shown(const MainEffect& effect) {
  const Outcome outcome = effect.contrast.verdict.outcome;
  return outcome == Outcome::kBetter || outcome == Outcome::kWorse;
}

bool shown(const Interaction& interaction) {
  return interaction.reading == InteractionReading::kPresent;
}

TEST(Factorial, FalsePositivesOverAllContrastsStayAtAlpha) {
  constexpr std::uint64_t kStudies = 2000;
  const Experiment e = experiment_with({2, 2, 2}, 8);
  const struct {
    const char* what;
    double a, both;
  } cases[] = {{"no effect", 0, 0}, {"a main effect", 3, 0}, {"an interaction", 0, 3}};
  for (const auto& c : cases) {
    std::uint64_t wrong = 0, found_main = 0, found_both = 0;
    for (std::uint64_t i = 0; i < kStudies; ++i) {
      const FactorialResult f = effects(e, planted(i, 8, c.a, 0, c.both));
      // An interaction of a and b is half a main effect of both.
      const bool null_a = c.a == 0 && c.both == 0, null_b = c.both == 0;
      wrong += (null_a && shown(f.main[0])) || (null_b && shown(f.main[1])) || shown(f.main[2]) ||
               (c.both == 0 && shown(f.interactions[0])) || shown(f.interactions[1]) ||
               shown(f.interactions[2]);
      found_main += shown(f.main[0]);
      found_both += shown(f.interactions[0]);
    }
    const double n = kStudies, rate = static_cast<double>(wrong) / n;
    const double half = 1.96 * std::sqrt(rate * (1 - rate) / n);
    std::printf(
        "%s: a false contrast in %.2f%% of studies (95%% interval %.2f%% to %.2f%%); a found in %.1f%%, a x "
        "b "
        "in %.1f%%\n",
        c.what, 100 * rate, 100 * (rate - half), 100 * (rate + half),
        100 * static_cast<double>(found_main) / n, 100 * static_cast<double>(found_both) / n);
    EXPECT_LE(rate - 2 * half, e.alpha) << c.what;
    EXPECT_GE(rate, 0.01) << c.what;  // the adjustment does not waste the level
    EXPECT_GT(found_main, c.a > 0 ? 0.95 * n : 0.0);
    EXPECT_GT(found_both, c.both > 0 ? 0.7 * n : 0.0);
  }
}

/// Each cell's value on every seed, with small noise of a fixed size.
FactorialResult effects_of_means(Experiment e, const std::vector<double>& means) {
  CellValues values;
  for (std::size_t cell = 0; cell < means.size(); ++cell) {
    values.emplace_back();
    for (std::size_t s = 0; s < e.seeds.size(); ++s)
      values.back().push_back(means[cell] + 0.1 * static_cast<double>(s) +
                              0.01 * testing::normal_deviate(s, cell));
  }
  return effects(e, values);
}

TEST(Factorial, OneFactorAtATimeMisleadsWhereLevelsDependOnEachOther) {
  const Experiment e = experiment_with({2, 2}, 8);
  // Worse alone, better with the other: b has no main effect, a is worse at b's first level and better over
  // both.
  const FactorialResult crossed = effects_of_means(e, {2.0, 2.0, 2.1, 1.6});
  EXPECT_EQ(crossed.main[0].contrast.verdict.outcome, Outcome::kBetter);
  EXPECT_EQ(crossed.main[0].one_at_a_time.verdict.outcome, Outcome::kWorse);
  EXPECT_TRUE(crossed.main[0].misleads);
  EXPECT_THAT(
      crossed.main[0].sentence,
      HasSubstr(
          "One factor at a time misleads here: with every other factor at its first level the effect is "
          "+0.09"));
  EXPECT_THAT(crossed.main[0].sentence, HasSubstr("the effect itself depends on the other factors"));
  EXPECT_EQ(crossed.interactions[0].reading, InteractionReading::kPresent);
  EXPECT_THAT(
      crossed.interactions[0].sentence,
      HasSubstr("a=1 \u00d7 b=1: present. The effect of a=1 is +0.098 at b=0 and \u22120.407 at b=1"));
  EXPECT_NEAR(crossed.interactions[0].contrast.primary.difference.mean, -0.5, 0.03);
  EXPECT_THAT(
      crossed.main[0].caution,
      HasSubstr("The average hides an interaction: the effect is +0.0975 at b=0 and \u22120.4066 at b=1."));
  EXPECT_THAT(crossed.main[1].caution, HasSubstr(" at a=0 and "));
  EXPECT_EQ(crossed.verdict.outcome, Outcome::kBetter);
  EXPECT_THAT(crossed.verdict.sentences,
              Contains(HasSubstr("would have misled on 2 of 2 main effects: a=1, b=1")));

  const FactorialResult additive = effects_of_means(e, {2.0, 2.3, 2.1, 2.4});
  for (const MainEffect& effect : additive.main) {
    EXPECT_EQ(effect.contrast.verdict.outcome, Outcome::kWorse);
    EXPECT_FALSE(effect.misleads);
    EXPECT_EQ(effect.caution, "");
    EXPECT_THAT(effect.sentence, HasSubstr("One factor at a time does not mislead here"));
  }
  EXPECT_EQ(additive.interactions[0].reading, InteractionReading::kNoneShown);
  EXPECT_EQ(additive.verdict.outcome, Outcome::kWorse);
  EXPECT_THAT(
      additive.verdict.headline,
      HasSubstr(
          "2 of 2 main effects and 0 of 1 interactions on val/loss are shown, with 4 cells and 8 seeds"));

  // The same sign, but beside b=0 too little to be seen.
  const FactorialResult hidden = effects_of_means(e, {2.0, 2.0, 2.006, 2.3});
  EXPECT_EQ(hidden.main[0].contrast.verdict.outcome, Outcome::kWorse);
  EXPECT_GT(hidden.main[0].one_at_a_time.primary.difference.mean, 0);
  EXPECT_EQ(hidden.main[0].one_at_a_time.verdict.outcome, Outcome::kInconclusive);
  EXPECT_TRUE(hidden.main[0].misleads);

  Experiment tolerant = e;
  tolerant.margin = 0.2;
  const FactorialResult same = effects_of_means(tolerant, {2.0, 2.01, 2.0, 2.01});
  EXPECT_EQ(same.main[0].contrast.verdict.outcome, Outcome::kEquivalent);
  EXPECT_EQ(same.interactions[0].reading, InteractionReading::kWithinMargin);
  EXPECT_THAT(same.verdict.headline, HasSubstr("4 cells and 8 seeds; 2 and 1 are within the margin of 0.2."));
}

TEST(Factorial, AnExactTestThatCannotShowAnythingSaysSo) {
  Experiment e = experiment_with({2, 2, 2}, 5);
  e.test = DecidingTest::kSignFlip;
  const FactorialResult f = effects_of_means(e, {2.0, 2.3, 2.1, 2.4, 2.5, 2.8, 2.6, 2.9});
  EXPECT_THAT(f.verdict.sentences,
              Contains(HasSubstr("With 5 seeds and 6 contrasts the exact test cannot fall below "
                                 "p = 0.375, so it can show none")));
  for (const MainEffect& effect : f.main) EXPECT_FALSE(shown(effect));
}

TEST(Factorial, OneSeedHasNoInterval) {
  const Experiment e = experiment_with({2, 2}, 1);
  const FactorialResult f = effects(e, {{2.0}, {2.1}, {2.5}, {2.4}});
  for (const MainEffect& effect : f.main) EXPECT_EQ(effect.contrast.verdict.outcome, Outcome::kInconclusive);
  EXPECT_EQ(f.interactions[0].reading, InteractionReading::kNoneShown);
}

// A page for a person to look at; it stays in the build tree.
TEST(Factorial, SamplePage) {
  Experiment e = experiment_with({2, 3, 2}, 8);
  const char* const names[3][4] = {{"rounding", "stochastic", "nearest", ""},
                                   {"rotation", "hadamard", "random", "none"},
                                   {"weights", "2d", "1d", ""}};
  for (std::size_t f = 0; f < 3; ++f) {
    e.factors[f].name = names[f][0];
    for (std::size_t l = 0; l < e.factors[f].levels.size(); ++l)
      e.factors[f].levels[l].name = names[f][l + 1];
  }
  for (std::size_t cell = 0; cell < e.arms.size(); ++cell) e.arms[cell].name = cell_name(e.factors, cell);
  e.margin = 0.02;
  const std::string folder = testing::fresh_folder("sample_page");
  testing::write_runs(e, folder, [&](std::size_t cell, std::int64_t seed) {
    const std::vector<std::size_t> levels = levels_of_cell(e.factors, cell);
    const auto s = static_cast<std::uint64_t>(seed);
    SyntheticRun run;
    run.seed = seed;
    run.final_loss = 1.98 + 0.03 * testing::normal_deviate(s, 90) + 0.005 * testing::normal_deviate(s, cell) +
                     (levels[0] ? 0.02 : 0) + (levels[1] == 2 ? -0.03 : 0) +
                     (levels[0] && levels[1] == 2 ? 0.06 : 0);
    for (std::size_t f = 0; f < 3; ++f)
      run.config.emplace_back(fmt::format("x.f{}", f), fmt::format("{}", levels[f]));
    return run;
  });
  const StudyResult result = analyse(load_study(e, folder, 1, false));
  ASSERT_TRUE(result.factorial) << result.study.refusals.front();
  const std::string page = report_html(result);
  testing::write_text(TENON_BINARY_DIR "/tests/ab_samples/factorial.html", page);
  EXPECT_THAT(page, HasSubstr("2 \u00d7 3 \u00d7 2 = 12"));
  EXPECT_THAT(page, HasSubstr("rounding=nearest \u00d7 rotation=none"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

/// A 2 x 2 study whose runs are stored, or made by a stand-in for the program that copies them.
class FactorialStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::fresh_folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
    experiment_ = experiment_with({2, 2}, 6);
    experiment_.base = folder_ + "/base.toml";
    testing::write_text(experiment_.base, "[run]\nsteps = 400\n");
  }

  static SyntheticRun run_of(std::size_t cell, std::int64_t seed) {
    const auto s = static_cast<std::uint64_t>(seed);
    SyntheticRun run;
    run.seed = seed;
    run.final_loss = 2.0 + 0.05 * testing::normal_deviate(s, 77) + 0.004 * testing::normal_deviate(s, cell) +
                     (cell >= 2 ? 0.05 : 0.0) - (cell == 3 ? 0.08 : 0.0);
    run.config = {{"x.f0", cell >= 2 ? "1" : "0"}, {"x.f1", cell % 2 ? "1" : "0"}};
    return run;
  }

  std::string attempt(std::size_t cell, std::int64_t seed) const {
    return run_parent(folder_, experiment_.arms[cell].name, seed) + "/1";
  }

  StudyResult analysed() const { return analyse(load_study(experiment_, folder_, 1, false)); }

  std::string folder_;
  Experiment experiment_;
};

TEST_F(FactorialStudy, SeedsWithAFailedCellAreInNoContrastAndNamed) {
  testing::write_runs(experiment_, folder_, run_of);
  const StudyResult whole = analysed();
  ASSERT_TRUE(whole.factorial) << whole.refusal.headline;
  EXPECT_EQ(whole.factorial->values[0].size(), 6u);

  SyntheticRun stopped = run_of(2, 3);
  stopped.status = "failed";
  testing::write_run(attempt(2, 3), stopped);
  fs::remove_all(fs::path(attempt(1, 5)).parent_path());
  const StudyResult result = analysed();
  ASSERT_TRUE(result.factorial);
  EXPECT_THAT(result.study.experiment.seeds, ElementsAre(1, 2, 4, 6));
  ASSERT_THAT(result.study.left_out, SizeIs(2));
  EXPECT_EQ(result.study.left_out[0].seed, 3);
  EXPECT_THAT(result.factorial->verdict.sentences,
              Contains(HasSubstr("Seed 3 is in no contrast: arm 'a-1_b-0', seed 3: the run is 'failed'")));
  EXPECT_THAT(result.factorial->verdict.sentences,
              Contains(HasSubstr("Seed 5 is in no contrast: arm 'a-0_b-1', seed 5: ")));
  // The seeds that are left give what a study of them alone gives.
  const std::size_t kept[] = {0, 1, 3, 5};
  for (std::size_t cell = 0; cell < 4; ++cell) {
    for (std::size_t s = 0; s < 4; ++s)
      EXPECT_EQ(result.factorial->values[cell][s], whole.factorial->values[cell][kept[s]]);
  }
  EXPECT_THAT(report_html(result), HasSubstr("Seed 3 is in no contrast"));
  const json report = json::parse(report_json(result));
  EXPECT_EQ(report["effects"]["left_out"][0]["seed"], 3);

  for (const std::int64_t seed : experiment_.seeds) fs::remove_all(fs::path(attempt(0, seed)).parent_path());
  const StudyResult none = analysed();
  EXPECT_FALSE(none.factorial);
  EXPECT_THAT(none.study.refusals, Contains(HasSubstr("arm 'a-0_b-0', seed 1")));
}

TEST_F(FactorialStudy, ADivergedCellIsRefusedAsInEveryStudy) {
  testing::write_runs(experiment_, folder_, [&](std::size_t cell, std::int64_t seed) {
    SyntheticRun run = run_of(cell, seed);
    if (cell == 3 && seed == 2) run.final_loss = NAN;
    return run;
  });
  const StudyResult result = analysed();
  EXPECT_FALSE(result.factorial);
  EXPECT_THAT(result.study.refusals, Contains(HasSubstr("arm 'a-1_b-1', seed 2: the run diverged")));
}

TEST_F(FactorialStudy, ALevelThatChangesNothingIsIdentical) {
  testing::write_runs(experiment_, folder_, [&](std::size_t cell, std::int64_t seed) {
    SyntheticRun run = run_of(cell >= 2 ? 2 : 0, seed);
    run.config.back().second = cell % 2 ? "1" : "0";
    return run;
  });
  const StudyResult result = analysed();
  ASSERT_TRUE(result.factorial);
  EXPECT_EQ(result.factorial->main[1].contrast.verdict.outcome, Outcome::kIdentical);
  EXPECT_FALSE(result.factorial->main[1].misleads);
  EXPECT_EQ(result.factorial->main[0].contrast.verdict.outcome, Outcome::kWorse);
  EXPECT_EQ(result.factorial->interactions[0].reading, InteractionReading::kNoneShown);
}

TEST_F(FactorialStudy, RunsFromTheFileToTheReports) {
  testing::write_runs(experiment_, folder_ + "/prepared", run_of);
  StudyOptions options;
  options.folder = folder_ + "/study";
  options.jobs = 4;
  options.program =
      testing::stand_in(folder_,
                        "arm=$(basename $2 .toml)\n[ $arm.$seed != a-1_b-1.4 ] || exit 3\nmkdir "
                        "-p \"$dir\"\ncp -r \"" +
                            folder_ + "/prepared/runs/$arm/$seed/1\" \"$dir/1\"");
  const StudyOutcome out = run_study(experiment_, options);
  EXPECT_EQ(out.exit_status, 0) << closing_text(out);
  ASSERT_THAT(out.runs.failed, SizeIs(1));
  const std::string text = closing_text(out);
  EXPECT_THAT(text, HasSubstr("a-1_b-1 seed 4 failed: "));
  EXPECT_THAT(
      text,
      HasSubstr("main effects and 1 of 1 interactions on val/loss are shown, with 4 cells and 5 seeds."));
  EXPECT_THAT(text, HasSubstr("Seed 4 is in no contrast"));
  EXPECT_THAT(text, HasSubstr("a: 1 \u2212 0"));
  EXPECT_THAT(text, HasSubstr(" at a=1. One factor at a time misleads here"));
  // Written again, the reports are the same but for the runs that failed, whose logs no file records.
  const std::string first = testing::read_text_file(out.report_json_path);
  const StudyOutcome again = report_study(folder_ + "/study");
  EXPECT_EQ(testing::read_text_file(again.report_json_path), first);
  EXPECT_TRUE(text.ends_with(closing_text(again)));

  const json line = json::parse(verdict_line(out));
  ASSERT_THAT(line.at("effects"), SizeIs(3));
  EXPECT_EQ(line["effects"][0]["name"], "a=1");
  EXPECT_EQ(line["effects"][2]["verdict"], "present");
  EXPECT_EQ(line["verdict"], outcome_name(out.result.factorial->verdict.outcome));
  EXPECT_EQ(line["pairs"], 5);
  EXPECT_TRUE(line["effects"][1]["one_at_a_time"]["misleads"].get<bool>());

  const json report = json::parse(first);
  EXPECT_EQ(report["verdict"], report["effects"]["verdict"]);
  EXPECT_EQ(report["effects"]["cells"][3]["levels"]["b"], "1");
  EXPECT_EQ(report["effects"]["adjusted_over"], 3);
  const FactorialResult& f = *out.result.factorial;
  EXPECT_EQ(report["effects"]["main"][1]["contrast"]["difference"]["mean"].get<double>(),
            f.main[1].contrast.primary.difference.mean);
  EXPECT_EQ(report["effects"]["interactions"][0]["sentence"], f.interactions[0].sentence);
  const std::string page = testing::read_text_file(out.report_html_path);
  for (const char* part : {"Means of the cells", "Interaction present", "One factor at a time", "p, Holm",
                           "Effect of a on val/loss, a line for each level of b"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace tenon::ab
