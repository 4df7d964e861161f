// Tuning: the table, the points, the choice on planted basins, and the runs with a stand-in for the program.
#include "ab/ab.hpp"
#include "ab/tune_stage.hpp"
#include "ab/verdict_line.hpp"
#include "base/digests.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;

using ab::testing::replaced;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The table.

constexpr const char* kTuned = R"(base = "base.toml"
seeds = [1, 2, 3]
budget = { steps = 400 }
[tune]
trials = 5
seeds = [11, 12]
on_failure = "drop"
budget = { steps = 200 }
[[tune.key]]
name = "optimizer.lr"
from = 1e-4
to = 1e-2
[[tune.key]]
name = "optimizer.beta"
values = [0.99, 0.9, 0.95]
only = ["b"]
[[arm]]
name = "a"
[[arm]]
name = "b"
set = ["optimizer.type=muon"]
)";

Experiment experiment_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  const std::string folder = testing::fresh_folder("tuned");
  testing::write_text(folder + "/study.toml", text);
  testing::write_text(folder + "/base.toml", "");
  return read_experiment(folder + "/study.toml", sets);
}

std::string error_of(const std::string& text) {
  try {
    experiment_of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(TuneTable, IsReadWholeAndStored) {
  const Experiment read = experiment_of(kTuned);
  const Experiment stored = parse_study_record(study_record_json({read, 1, false}), "record").experiment;
  for (const Experiment& e : {read, stored}) {
    ASSERT_TRUE(e.tune);
    EXPECT_EQ(e.tune->trials, 5u);
    EXPECT_THAT(e.tune->seeds, ElementsAre(11, 12));
    EXPECT_EQ(e.tune->arms, TuneArms::kEach);
    EXPECT_EQ(e.tune->failure, TuneFailure::kDrop);
    EXPECT_EQ(e.tune->budget->amount, 200);
    ASSERT_THAT(e.tune->keys, SizeIs(2));
    EXPECT_EQ(e.tune->keys[0].name, "optimizer.lr");
    EXPECT_EQ(e.tune->keys[0].to, 1e-2);
    EXPECT_THAT(e.tune->keys[1].values, ElementsAre(0.9, 0.95, 0.99));  // sorted: a range has a direction
    EXPECT_FALSE(e.tune->keys[1].belongs_to("a"));
    EXPECT_TRUE(e.tune->keys[1].belongs_to("b"));
  }
  EXPECT_EQ(experiment_of(replaced(kTuned, "trials = 5\n", "")).tune->trials, 18u);
}

TEST(TuneTable, MistakesAreNamed) {
  const struct {
    const char* what;
    const char* with;
    const char* message;
  } cases[] = {
      {"seeds = [11, 12]", "seeds = [11, 2]", "seed 2 is also a seed of the verdict"},
      {"seeds = [11, 12]", "seeds = [11]", "1 seed; the spread between at least two"},
      {"seeds = [11, 12]", "seeds = [11, 11]", "seeds repeats a seed"},
      {"seeds = [11, 12]", "", "seeds"},
      {"trials = 5", "trials = 1", "trials"},
      {"from = 1e-4\n", "", "needs a range (from and to), or values, or choices"},
      {"from = 1e-4\n", "from = 1e-4\nvalues = [1, 2]\n", "one of these alone"},
      {"from = 1e-4\n", "from = 1\n", "goes from 1 to 0.01; expected from below to"},
      {"from = 1e-4\n", "from = 0\n", "logarithmic"},
      {"values = [0.99, 0.9, 0.95]", "values = [0.9]", "one setting to try"},
      {"values = [0.99, 0.9, 0.95]", "choices = [\"x\", \"x\"]", "lists a setting twice"},
      {"name = \"optimizer.beta\"", "name = \"optimizer.lr\"", "'optimizer.lr' is there twice"},
      {"only = [\"b\"]", "only = [\"c\"]", "for arm 'c', which is not there"},
      {"optimizer.type=muon", "optimizer.lr=0.1", "arm 'b' sets it (optimizer.lr=0.1)"},
      {"budget = { steps = 200 }", "budget = { steps = 0 }", "budget is not positive"},
      {"name = \"optimizer.lr\"", "name = \"optimizer.lr\"\nonly = [\"b\"]", "arm 'a' has no key to tune"},
      {"on_failure = \"drop\"", "on_failure = \"panic\"", "on_failure"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of(replaced(kTuned, c.what, c.with)), HasSubstr(c.message)) << c.with;
}

// The points.

TuneRule rule_of(std::vector<TunedKey> keys, std::size_t trials) {
  TuneRule rule;
  rule.keys = std::move(keys);
  rule.trials = trials;
  rule.seeds = {11, 12, 13};
  return rule;
}

TunedKey range_key(const std::string& name, double from, double to) {
  TunedKey key;
  key.name = name;
  key.from = from;
  key.to = to;
  return key;
}

std::vector<std::string> settings_of(const TuneRule& rule) {
  std::vector<std::string> out;
  for (const auto& point : tune_points(rule)) out.push_back(settings_text(rule, "any", point));
  return out;
}

TEST(TunePoints, OneKeyIsAGridThatKeepsItsPointsWhenItIsWidenedByWholeSteps) {
  TuneRule rule = rule_of({range_key("lr", 1e-4, 1e-1)}, 7);
  const std::vector<std::string> narrow = settings_of(rule);
  EXPECT_THAT(narrow, ElementsAre("lr = 0.0001", "lr = 0.0003162", "lr = 0.001", "lr = 0.003162", "lr = 0.01",
                                  "lr = 0.03162", "lr = 0.1"));
  rule = rule_of({range_key("lr", 1e-4, 1)}, 9);
  const std::vector<std::string> wide = settings_of(rule);
  for (const std::string& setting : narrow) EXPECT_THAT(wide, Contains(setting));
  rule.keys[0].scale = TuneScale::kLinear;
  rule.keys[0].from = 0;
  rule.trials = 3;
  EXPECT_THAT(settings_of(rule), ElementsAre("lr = 0", "lr = 0.5", "lr = 1"));
}

TEST(TunePoints, WholeNumbersAreDifferentOnes) {
  TunedKey key = range_key("period", 1, 64);
  key.whole = true;
  EXPECT_THAT(settings_of(rule_of({key}, 7)),
              ElementsAre("period = 1", "period = 2", "period = 4", "period = 8", "period = 16",
                          "period = 32", "period = 64"));
  key.to = 4;
  try {
    tune_points(rule_of({key}, 9));
    FAIL() << "nine different whole numbers between 1 and 4";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("9 trials, but the keys have only 4 settings"));
  }
}

TEST(TunePoints, ListsAreCombined) {
  TunedKey a, b;
  a.name = "beta";
  a.values = {0.9, 0.99};
  b.name = "kind";
  b.choices = {"x", "y", "z"};
  const std::vector<std::string> all = settings_of(rule_of({a, b}, 6));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 6u);
  EXPECT_THAT(all, Contains("beta = 0.99, kind = z"));
}

// A Halton sequence of 2^a 3^b points has one in each of the boxes of that size, whatever the permutation.
TEST(TunePoints, SeveralKeysAreFilledEvenlyAndAlwaysAlike) {
  const TuneRule rule = rule_of({range_key("x", 1, 10), range_key("y", 1, 10)}, 36);
  const auto points = tune_points(rule);
  EXPECT_EQ(points, tune_points(rule));
  std::map<std::pair<int, int>, int> boxes;
  for (const auto& p : points) ++boxes[{static_cast<int>(p[0] * 4), static_cast<int>(p[1] * 9)}];
  EXPECT_EQ(boxes.size(), 36u);
  const auto fewer = tune_points(rule_of(rule.keys, 10));
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), points.begin()));  // more trials add points
  // Unpermuted, the first points of bases 2 and 3 rise together.
  EXPECT_NE(points[0], (std::vector<double>{0, 0}));
}

// The choice.

Basin basin_of(const TuneRule& rule, const std::function<double(const std::vector<double>&)>& truth,
               double noise, std::uint64_t draw) {
  Basin basin;
  basin.arm = "any";
  for (const std::vector<double>& point : tune_points(rule)) {
    Trial trial;
    trial.position = point;
    for (std::size_t s = 0; s < rule.seeds.size(); ++s) {
      // All trials of a seed share a shift; it says nothing about which of them is best.
      const double shared = 5 * noise * testing::normal_deviate(draw, 700 + s);
      const double value =
          truth(point) + shared + noise * testing::normal_deviate(draw * 64 + basin.trials.size(), 40 + s);
      trial.values.push_back(value);
      if (!std::isfinite(value) && trial.failure.empty()) trial.failure = "diverged";
    }
    basin.trials.push_back(std::move(trial));
  }
  return basin;
}

struct Regret {
  double smoothed = 0, raw = 0;
};

/// What the choices cost over planted basins of one shape: the mean of what is lost against the best trial.
Regret regret_of(const std::string& shape, std::size_t keys, double noise, int draws) {
  std::vector<TunedKey> ranges;
  for (std::size_t k = 0; k < keys; ++k) ranges.push_back(range_key("k" + std::to_string(k), 1e-4, 1));
  const TuneRule rule = rule_of(ranges, keys == 1 ? 9 : 20);
  Regret out;
  for (int draw = 1; draw <= draws; ++draw) {
    const auto u = [&](std::uint64_t stream) {
      return 0.5 *
             std::erfc(-testing::normal_deviate(static_cast<std::uint64_t>(draw), stream) / std::sqrt(2));
    };
    const double centre = 0.2 + 0.6 * u(1), curvature = 1 + 7 * u(2), cliff = 0.02 + 0.2 * u(3);
    const auto truth = [&](const std::vector<double>& p) {
      double value = 2 + curvature * (p[0] - centre) * (p[0] - centre);
      for (std::size_t k = 1; k < p.size(); ++k) value += (p[k] - u(3 + k)) * (p[k] - u(3 + k));
      if (shape == "cliff" && p[0] > centre + cliff) value += 1 + 9 * u(5);
      if (shape == "diverging" && p[0] > centre + cliff) value = NAN;
      if (shape == "slope" && p[0] < centre) value = 2 + 0.5 * curvature * (centre - p[0]);
      return value;
    };
    Basin basin = basin_of(rule, truth, noise, static_cast<std::uint64_t>(draw));
    choose(basin, rule, true, 0.05);
    std::size_t raw = basin.trials.size();
    double best = INFINITY;
    for (std::size_t i = 0; i < basin.trials.size(); ++i) {
      if (!basin.trials[i].usable()) continue;
      best = std::min(best, truth(basin.trials[i].position));
      if (raw == basin.trials.size() || basin.trials[i].mean < basin.trials[raw].mean) raw = i;
    }
    out.smoothed += (truth(basin.trials[*basin.chosen].position) - best) / draws;
    out.raw += (truth(basin.trials[raw].position) - best) / draws;
  }
  return out;
}

TEST(TuneChoice, IsNoWorseThanTheRawMinimumOnPlantedBasinsAndBetterUnderNoise) {
  for (const char* shape : {"bowl", "cliff", "diverging", "slope"}) {
    const Regret quiet = regret_of(shape, 1, 0, 300);
    EXPECT_EQ(quiet.smoothed, 0) << shape;
    EXPECT_EQ(quiet.raw, 0) << shape;
    for (const double noise : {0.05, 0.2, 0.4}) {
      const Regret r = regret_of(shape, 1, noise, 1500);
      std::printf("%-10s noise %.2f: smoothed loses %.4f, raw %.4f\n", shape, noise, r.smoothed, r.raw);
      EXPECT_LT(r.smoothed, 1.03 * r.raw) << shape << " " << noise;
      if (std::string(shape) == "bowl") {
        EXPECT_LT(r.smoothed, 0.9 * r.raw) << noise;
      }
    }
  }
  const Regret two = regret_of("bowl", 2, 0.3, 1000);
  std::printf("two keys: smoothed loses %.4f, raw %.4f\n", two.smoothed, two.raw);
  EXPECT_LT(two.smoothed, 0.9 * two.raw);
}

TEST(TuneChoice, SharedShiftsOfSeedsAreNoNoise) {
  const TuneRule rule = rule_of({range_key("lr", 1e-4, 1)}, 9);
  Basin basin = basin_of(
      rule, [](const std::vector<double>& p) { return 2 + p[0] * p[0] - p[0]; }, 0, 1);
  for (Trial& trial : basin.trials) {
    for (std::size_t s = 0; s < 3; ++s) trial.values[s] += static_cast<double>(s);
  }
  choose(basin, rule, true, 0.05);
  EXPECT_LT(basin.noise, 1e-12);
  EXPECT_EQ(basin.trials[*basin.chosen].position[0], 0.5);
  EXPECT_GT(basin.trials[0].interval.high - basin.trials[0].interval.low, 1);  // the intervals know of it
}

TEST(TuneChoice, SpreadBesideACliffIsNoReasonToLeaveTheBestSetting) {
  // Final losses of a perceptron (configs/base/lenet5.toml, model.type = "mlp", model.hidden = [32],
  // data.batch = 256, run.steps = 100) with momentum, rates from 1e-4 on by half decades, two seeds.
  const std::vector<std::vector<double>> values = {{2.2196, 2.1654}, {1.9997, 1.9086}, {1.2792, 1.1883},
                                                   {0.5247, 0.5005}, {0.3344, 0.3264}, {0.2818, 0.2575},
                                                   {0.2297, 0.2071}, {1.1802, 0.6682}, {2.2850, 2.2983},
                                                   {2.3389, 2.3226}, {2.6494, 2.3719}, {29.892, 34.372}};
  TuneRule rule = rule_of({range_key("lr", 1e-4, 31.62)}, values.size());
  rule.seeds = {101, 102};
  Basin basin;
  basin.arm = "any";
  for (const std::vector<double>& position : tune_points(rule))
    basin.trials.push_back({position, values[basin.trials.size()]});
  choose(basin, rule, true, 0.05);
  EXPECT_EQ(basin.chosen, 6u);
  EXPECT_LT(basin.noise, 0.02);
}

TEST(TuneChoice, TakesTheGreatestWhereMoreIsBetterAndNeverADivergedSetting) {
  const TuneRule rule = rule_of({range_key("lr", 1e-4, 1)}, 5);
  Basin basin = basin_of(
      rule, [](const std::vector<double>& p) { return p[0] == 1      ? NAN
                                                      : p[0] == 0.75 ? 0.9
                                                                     : 0.5; }, 0, 1);
  choose(basin, rule, false, 0.05);
  EXPECT_EQ(*basin.chosen, 3u);
  EXPECT_TRUE(basin.edges.empty());  // the setting beyond was tried: it diverges
  Basin none = basin_of(
      rule, [](const std::vector<double>&) { return NAN; }, 0, 1);
  choose(none, rule, true, 0.05);
  EXPECT_FALSE(none.chosen);
}

TEST(TuneEdges, AreTheFirstAndTheLastSettingThatWasTried) {
  TuneRule rule = rule_of({range_key("lr", 1e-4, 1)}, 9);
  for (int best = 0; best < 9; ++best) {
    Basin basin = basin_of(
        rule, [&](const std::vector<double>& p) { return std::abs(p[0] - best / 8.0); }, 0, 1);
    choose(basin, rule, true, 0.05);
    ASSERT_EQ(*basin.chosen, static_cast<std::size_t>(best));
    EXPECT_EQ(basin.edges.size(), best == 0 || best == 8 ? 1u : 0u) << best;
    if (best == 8) {
      EXPECT_THAT(edge_refusals(basin, rule),
                  ElementsAre(HasSubstr("its best lr is 1, the greatest that was tried")));
      EXPECT_THAT(edge_refusals(basin, rule), ElementsAre(HasSubstr("write to = 10 and trials = 11")));
    }
    if (best == 0) {
      EXPECT_THAT(edge_refusals(basin, rule), ElementsAre(HasSubstr("write from = 1e-05 and trials = 11")));
    }
    TuneRule hard = rule;
    hard.keys[0].hard = best == 0 ? HardEnds::kLow : HardEnds::kHigh;
    choose(basin, hard, true, 0.05);
    EXPECT_TRUE(basin.edges.empty());
  }
}

TEST(TuneEdges, AreThoseOfNumbersAlone) {
  TunedKey numbers, names;
  numbers.name = "beta";
  numbers.values = {0.9, 0.95, 0.99};
  names.name = "kind";
  names.choices = {"x", "y", "z"};
  const TuneRule rule = rule_of({numbers, names}, 9);
  Basin basin = basin_of(
      rule, [](const std::vector<double>& p) { return p[0] + p[1]; }, 0, 1);
  choose(basin, rule, true, 0.05);
  EXPECT_EQ(settings_text(rule, "any", basin.trials[*basin.chosen].position), "beta = 0.9, kind = x");
  ASSERT_THAT(basin.edges, SizeIs(1));
  EXPECT_EQ(basin.edges[0].key, 0u);
  EXPECT_THAT(edge_refusals(basin, rule), ElementsAre(HasSubstr("add smaller numbers to values")));
}

// The runs.

class TuneStage : public ::testing::Test {
 protected:
  /// Final loss by arm, logarithm of the rate and seed; NAN: the run diverges, infinite: it fails.
  using Losses = std::function<double(std::size_t arm, double log_rate, std::int64_t seed)>;

  void prepare(const Losses& losses, std::size_t arms = 2) {
    folder_ = testing::fresh_folder("stage");
    plugin_ = folder_ + "/adamw.so";
    testing::write_text(plugin_, "a plugin");
    testing::write_text(folder_ + "/base.toml", "[run]\nsteps = 16\n");
    experiment_ = testing::sample_experiment(4);
    experiment_.base = folder_ + "/base.toml";
    while (experiment_.arms.size() < arms)
      experiment_.arms.push_back({"arm" + std::to_string(experiment_.arms.size())});
    for (std::size_t a = 0; a < arms; ++a)  // arms of one configuration would share their runs
      experiment_.arms[a].set = {"model.kind=arm" + std::to_string(a)};
    losses_ = losses;
    TuneRule rule = rule_of({range_key("optimizer.lr", 1e-4, 1)}, 9);
    rule.seeds = {101, 102};
    rule.budget = Budget{Axis::kSteps, 8};
    experiment_.budget.amount = 16;
    experiment_.tune = rule;
  }

  /// Writes every run that the experiment may ask for.
  void write_runs() {
    for (std::size_t a = 0; a < experiment_.arms.size(); ++a) {
      for (const std::vector<double>& point : tune_points(*experiment_.tune)) {
        const std::string rate = experiment_.tune->keys[0].setting(point[0]);
        for (const std::int64_t seed : {101, 102}) write_run(a, rate, seed, 8);
        if (rate != "0.001" && rate != "0.01" && rate != "0.1") continue;  // none else is anybody's best
        for (const std::int64_t seed : experiment_.seeds) write_run(a, rate, seed, 16);
      }
    }
  }

  void write_run(std::size_t arm, const std::string& rate, std::int64_t seed, int steps) {
    const double loss = losses_(arm, std::log10(std::stod(rate)), seed);
    const std::string folder =
        fmt::format("{}/prepared/{}/{}/{}", folder_, experiment_.arms[arm].name, rate, seed);
    if (std::isinf(loss) || fs::exists(folder)) return;
    testing::SyntheticRun run;
    run.seed = seed;
    run.steps = steps;
    run.eval_every = 4;
    run.final_loss = loss;
    if (arm == 1) run.batch = batch_of_second_;
    run.config = {{"optimizer.lr", rate}};
    testing::write_run(folder, run);
    testing::write_text(
        folder + "/plugins.lock",
        fmt::format("[[plugin]]\nid = \"tenon.adamw\"\nversion = \"1\"\nfile = \"{}\"\nsha256 = "
                    "\"{}\"\nabi = \"0\"\n",
                    plugin_, plugin::file_sha256(plugin_)));
  }

  StudyOptions options(const std::string& before = "") {
    write_runs();
    StudyOptions o;
    o.folder = folder_ + "/study";
    o.jobs = 4;
    o.program = testing::stand_in(
        folder_,
        "arm=$(basename $2 .toml)\nfor a in \"$@\"; do case \"$a\" in "
        "optimizer.lr=*) rate=\"${a#optimizer.lr=}\";; esac; done\necho $arm $rate $seed >>" +
            folder_ + "/made\n" + before +
            "\nn=1; while [ -e \"$dir/$n\" ]; do n=$((n+1)); done\nmkdir -p \"$dir\"\ncp -r \"" + folder_ +
            "/prepared/$arm/$rate/$seed\" \"$dir/$n\"");
    return o;
  }

  /// Runs made since the last call.
  std::vector<std::string> made() {
    std::vector<std::string> out;
    std::ifstream in(folder_ + "/made");
    for (std::string line; std::getline(in, line);) out.push_back(line);
    fs::remove(folder_ + "/made");
    return out;
  }

  std::string folder_, plugin_;
  Experiment experiment_;
  Losses losses_;
  int batch_of_second_ = 16;
};

/// The second arm is better at its own rate, 1e-1, and worse at the baseline's, 1e-3.
double flipped(std::size_t arm, double log_rate, std::int64_t seed) {
  const double best[] = {-3, -1, -2}, floor[] = {2.00, 1.95, 1.97};
  const double off = log_rate - best[arm];
  return floor[arm] + 0.1 * off * off +
         0.002 * testing::normal_deviate(static_cast<std::uint64_t>(seed),
                                         arm * 1000 + static_cast<std::uint64_t>(100 * (log_rate + 7)));
}

TEST_F(TuneStage, GivesEveryArmItsBestRateAtEqualCost) {
  prepare(flipped);
  const StudyOutcome out = run_study(experiment_, options());
  ASSERT_EQ(out.exit_status, 0) << closing_text(out);
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kBetter) << closing_text(out);
  const Tuning& tuning = *out.result.study.tuning;
  ASSERT_THAT(tuning.basins, SizeIs(2));
  EXPECT_THAT(out.result.study.arms[0].arm.set, Contains("optimizer.lr=0.001"));
  EXPECT_THAT(out.result.study.arms[1].arm.set, Contains("optimizer.lr=0.1"));
  for (const Basin& basin : tuning.basins) {
    EXPECT_EQ(basin.cost.runs, 18u);
    EXPECT_EQ(basin.cost.samples, tuning.basins[0].cost.samples);
    EXPECT_EQ(basin.cost.samples, 18 * 8 * 16);
  }
  EXPECT_THAT(made(), SizeIs(2 * 18 + 2 * 4));
  const std::string text = closing_text(out);
  EXPECT_THAT(text,
              HasSubstr("Each arm was tuned over 9 settings on seeds 101, 102: bf16 with optimizer.lr = "
                        "0.001, nvfp4 with optimizer.lr = 0.1."));
  EXPECT_THAT(text, HasSubstr("With bf16's setting for nvfp4, too, it would be worse"));
  const auto line = nlohmann::json::parse(verdict_line(out));
  EXPECT_EQ(line.at("tuned").at("nvfp4").at(0), "optimizer.lr=0.1");
  // No seed of the tuning is a pair of the verdict.
  EXPECT_THAT(out.result.comparisons[0].seeds, ElementsAre(1, 2, 3, 4));
  for (const auto& run : out.result.study.arms[0].runs) EXPECT_EQ(run->steps, 16);
}

TEST_F(TuneStage, ArmsThatConsumeOtherAmountsAreNotTunedAtEqualCost) {
  prepare(flipped);
  batch_of_second_ = 32;
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_THAT(
      out.result.study.refusals,
      ElementsAre("arm 'nvfp4', optimizer.lr = 0.0001, seed 101: its tuning run used 256 samples, that of "
                  "'bf16' 128, so the arms are not tuned at equal cost; give [tune] a budget that both "
                  "share, such as samples"));
  EXPECT_THAT(made(), SizeIs(2 * 18)) << "runs of the verdict were made";
}

TEST_F(TuneStage, IsReportedAgainAndMadeOnce) {
  prepare(flipped);
  const StudyOptions o = options();
  const StudyOutcome first = run_study(experiment_, o);
  const std::string json = testing::read_text_file(first.report_json_path);
  const std::string html = testing::read_text_file(first.report_html_path);
  EXPECT_THAT(html, HasSubstr(">Tuning<"));
  made();
  const StudyOutcome again = report_study(o.folder);
  EXPECT_EQ(testing::read_text_file(again.report_json_path), json);
  EXPECT_EQ(testing::read_text_file(again.report_html_path), html);
  EXPECT_THAT(made(), SizeIs(0));
  // A fixed study makes its own runs anew; those of the tuning stay.
  run_study(experiment_, o);
  EXPECT_THAT(made(), SizeIs(8));
  // Another plugin file is another run.
  testing::write_text(plugin_, "another plugin");
  fs::remove_all(folder_ + "/prepared");
  run_study(experiment_, options());
  EXPECT_THAT(made(), SizeIs(36 + 8));
}

TEST_F(TuneStage, AWiderRangeAndAFurtherArmRepeatNothing) {
  prepare(flipped);
  experiment_.tune->keys[0] = range_key("optimizer.lr", 1e-4, 1e-1);
  experiment_.tune->trials = 7;
  const StudyOutcome edge = run_study(experiment_, options());
  EXPECT_EQ(edge.exit_status, 1);
  EXPECT_THAT(closing_text(edge), HasSubstr("write to = 1 and trials = 9, which keeps the runs"));
  EXPECT_THAT(testing::read_text_file(edge.report_html_path), HasSubstr(">Tuning<"));
  EXPECT_THAT(made(), SizeIs(28));  // and no run of a verdict
  const StudyOutcome stored = report_study(folder_ + "/study");
  EXPECT_EQ(closing_text(stored), closing_text(edge));
  experiment_.tune->keys[0] = range_key("optimizer.lr", 1e-4, 1);
  experiment_.tune->trials = 9;
  EXPECT_EQ(run_study(experiment_, options()).exit_status, 0);
  EXPECT_THAT(made(), SizeIs(2 * 2 * 2 + 8));
  experiment_.arms.push_back({.name = "arm2", .set = {"model.kind=arm2"}});
  EXPECT_EQ(run_study(experiment_, options()).exit_status, 0);
  EXPECT_THAT(made(), SizeIs(18 + 12));
}

TEST_F(TuneStage, TheBaselinesChoiceForAllIsSaid) {
  prepare(flipped);
  experiment_.tune->arms = TuneArms::kShared;
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kWorse);
  EXPECT_THAT(out.result.verdict().headline, HasSubstr("Only bf16 was tuned."));
  EXPECT_THAT(out.result.study.arms[1].arm.set, Contains("optimizer.lr=0.001"));
  EXPECT_THAT(made(), SizeIs(18 + 8));
}

TEST_F(TuneStage, AnArmThatNeverTrainsIsNamedAndDroppedOnlyIfTheFileSaysSo) {
  for (const double end : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    prepare([&](std::size_t arm, double log_rate,
                std::int64_t seed) { return arm == 1 ? end : flipped(arm, log_rate, seed); },
            3);
    const StudyOutcome refused = run_study(experiment_, options());
    EXPECT_EQ(refused.exit_status, 1);
    EXPECT_THAT(closing_text(refused), HasSubstr("arm 'nvfp4': none of its 9 settings trained"));
    EXPECT_THAT(closing_text(refused),
                HasSubstr(std::isnan(end) ? "the run diverged, val/loss ended as" : "exit status 1, see"));
    EXPECT_THAT(closing_text(refused), HasSubstr("on_failure = \"drop\""));
    experiment_.tune->failure = TuneFailure::kDrop;
    const StudyOutcome out = run_study(experiment_, options());
    EXPECT_EQ(out.exit_status, 0) << closing_text(out);
    ASSERT_THAT(out.result.comparisons, SizeIs(1));
    EXPECT_EQ(out.result.study.arms[1].arm.name, "arm2");
    EXPECT_THAT(out.result.study.notes, Contains(HasSubstr("Not in the study is arm nvfp4")));
  }
  prepare([&](std::size_t arm, double log_rate, std::int64_t seed) {
    return arm == 0 ? NAN : flipped(arm, log_rate, seed);
  });
  experiment_.tune->failure = TuneFailure::kDrop;
  EXPECT_THAT(closing_text(run_study(experiment_, options())), HasSubstr("arm 'bf16': none of its 9"));
}

TEST_F(TuneStage, RefusesWhatAnArmDoesNotHaveBeforeAnyRun) {
  prepare(flipped);
  StudyOptions o = options();
  o.resolve = [](const Config& config) {
    if (config.find("optimizer.type") != nullptr && config.find("optimizer.lr") != nullptr)
      fail_config("optimizer.plain has no option 'lr'");
    return config;
  };
  experiment_.arms[1].set = {"optimizer.type=plain"};
  try {
    run_study(experiment_, o);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("arm 'nvfp4' cannot run with"));
    EXPECT_THAT(error.what(), HasSubstr("optimizer.plain has no option 'lr'"));
    EXPECT_THAT(error.what(), HasSubstr("takes only = [...]"));
  }
  EXPECT_THAT(made(), SizeIs(0));
  o.self_check = true;
  EXPECT_THROW(run_study(experiment_, o), Error);
}

TEST_F(TuneStage, GoesOnWhereItWasInterrupted) {
  prepare(flipped);
  const StudyOutcome cut = run_study(experiment_, options("[ $(wc -l <" + folder_ +
                                                          "/made) -lt 12 ] || kill -INT "
                                                          "$PPID\n"));
  EXPECT_TRUE(cut.runs.interrupted);
  EXPECT_EQ(cut.exit_status, 1);
  EXPECT_THAT(closing_text(cut), HasSubstr("interrupted"));
  const std::size_t before = made().size();
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.exit_status, 0) << closing_text(out);
  // Those that the signal ended are made again, and no other.
  const std::size_t all = before + made().size();
  EXPECT_GE(all, 36u + 8u);
  EXPECT_LE(all, 36u + 8u + 4u);
}

TEST_F(TuneStage, PrecedesASequentialStudyWhosePlanItBelongsTo) {
  prepare(flipped);
  for (std::int64_t seed = 5; seed <= 12; ++seed) experiment_.seeds.push_back(seed);
  experiment_.sequential =
      SequentialRule{.max_seeds = 12, .first_look = 5, .method = SequentialMethod::kNormal};
  experiment_.tune->keys[0] = range_key("optimizer.lr", 1e-4, 1e-1);
  experiment_.tune->trials = 7;
  EXPECT_EQ(run_study(experiment_, options()).exit_status, 1);  // an edge: no look was made yet
  experiment_.tune->keys[0] = range_key("optimizer.lr", 1e-4, 1);
  experiment_.tune->trials = 9;
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.result.verdict().outcome, Outcome::kBetter) << closing_text(out);
  const std::string text = closing_text(out);
  EXPECT_EQ(closing_text(report_study(folder_ + "/study")), text);
  experiment_.tune->trials = 5;
  EXPECT_THROW(run_study(experiment_, options()), Error);  // the plan was edited after a look
}

TEST_F(TuneStage, ADamagedRecordIsNamed) {
  prepare(flipped);
  run_study(experiment_, options());
  for (const char* text : {"", "{}", "[1", "{\"format\":\"tenon.ab.tuning/2\",\"arms\":[]}"}) {
    testing::write_text(folder_ + "/study/tuning.json", text);
    try {
      report_study(folder_ + "/study");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tuning.json: not the tuning of this study"));
    }
  }
  fs::remove(folder_ + "/study/tuning.json");
  EXPECT_THROW(report_study(folder_ + "/study"), Error);
}

}  // namespace
}  // namespace tenon::ab
