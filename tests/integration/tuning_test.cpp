// Pairs of optimizers whose order flips between the baseline's rate and a rate of their own, on real short
// runs: a tuned study must find the true order. Rates are measured first, on seeds that no study sees, and
// every pair that flips there is planted. One pair; 20 with TENON_MATRIX=all (scripts/soak).
#include "run_program.hpp"
#include "test_paths.hpp"

#include "ab/statistics.hpp"

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>

namespace tenon::integration::tuning_test {
namespace {

constexpr std::size_t kRates = 12;       // half decades from 1e-4 on
constexpr std::int64_t kTruthSeeds = 8;  // from 201 on; half of them without TENON_MATRIX
constexpr double kClear = 1.5;           // paired standard deviations
constexpr std::size_t kPlanted = 20;

bool all() {
  const char* wanted = std::getenv("TENON_MATRIX");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

struct Optimizer {
  std::string name, preset;
  std::vector<std::string> sets = {};
};

struct Task {
  std::string name, base;
  std::int64_t steps;
  std::vector<std::string> sets;
  std::vector<Optimizer> optimizers;
};

const Optimizer kAdamW{"adamw", "adamw"};
const Optimizer kSgd{"sgd", "sgd", {"optimizer.momentum=0", "optimizer.nesterov=false"}};
const Optimizer kMomentum{"momentum", "sgd"};
const Optimizer kHeavy{"heavy", "sgd", {"optimizer.momentum=0.99", "optimizer.nesterov=false"}};
const Optimizer kAdagrad{"adagrad", "adagrad"};
const Optimizer kLamb{"lamb", "lamb"};
const Optimizer kMuon{"muon", "muon"};
const Optimizer kRowwise{"rowwise_adagrad", "rowwise_adagrad"};

/// A multilayer perceptron on handwritten digits.
Task digits(const std::string& name, const std::string& batch) {
  return {name,
          "lenet5.toml",
          100,
          {"model.type=\"mlp\"", "model.hidden=[32]", "data.batch=" + batch, "run.eval_batches=16",
           "device.threads=1"},
          {kAdamW, kSgd, kMomentum, kHeavy, kAdagrad, kLamb, kMuon}};
}

std::vector<Task> tasks() {
  const std::vector<std::string> adult{"schedule.warmup=5", "run.eval_batches=8", "device.threads=1"};
  std::vector<std::string> logistic = adult;
  logistic.emplace_back("model.type=\"logistic_regression\"");
  if (!all()) return {{"dlrm_adult", "dlrm_adult.toml", 100, adult, {kSgd, kAdamW}}};
  return {{"gpt_micro",
           "gpt_micro.toml",
           60,
           {"schedule.warmup=5", "run.eval_batches=4"},
           {kSgd, kMomentum, kAdamW, kMuon}},
          {"lenet5",
           "lenet5.toml",
           100,
           {"data.batch=32", "run.eval_batches=4", "device.threads=1"},
           {kSgd, kMomentum, kAdamW, kLamb}},
          {"dlrm_adult", "dlrm_adult.toml", 150, adult, {kSgd, kAdamW, kAdagrad}},
          {"logistic", "dlrm_adult.toml", 200, logistic, {kSgd, kAdamW, kAdagrad, kRowwise}},
          digits("mlp_32", "32"),
          digits("mlp_256", "256")};
}

double rate(std::size_t step) {
  return 1e-4 * std::pow(10, 0.5 * static_cast<double>(step));
}

std::string plugins() {
  return std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins";
}

std::string shipped(const std::string& path) {
  return std::string(TENON_SOURCE_DIR) + "/configs/" + path;
}

/// Final values of one optimizer by rate and seed; infinite where the run diverged.
struct Measured {
  Optimizer optimizer;
  std::vector<std::vector<double>> values = {};

  double mean(std::size_t step) const {
    double sum = 0;
    for (const double v : values[step]) sum += v;
    return sum / static_cast<double>(values[step].size());
  }
  std::size_t best() const {
    std::size_t out = 0;
    for (std::size_t step = 1; step < values.size(); ++step) out = mean(step) < mean(out) ? step : out;
    return out;
  }
};

/// Sign of the difference of two lists of values of the same seeds where it is clear, or the other one
/// diverged; else 0.
int clear_order(const std::vector<double>& baseline, const std::vector<double>& other) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < baseline.size(); ++i) {
    if (!std::isfinite(baseline[i])) return 0;
    differences.push_back(other[i] - baseline[i]);
  }
  if (!std::isfinite(differences.front())) return 1;
  const ab::MeanEstimate d = ab::mean_with_interval(differences, 0.05);
  if (!std::isfinite(d.mean) || std::abs(d.mean) < kClear * d.sd) return 0;
  return d.mean < 0 ? -1 : 1;
}

/// Measures every rate of every optimizer of a task.
class Truth {
 public:
  Truth(const Task& task, const Scratch& scratch) : task_(task), scratch_(scratch) {
    runtime_.discover({plugins()});
    for (const Optimizer& optimizer : task.optimizers) {
      Measured measured{optimizer};
      for (std::size_t step = 0; step < kRates; ++step) {
        measured.values.emplace_back();
        for (std::int64_t seed = 0; seed < (all() ? kTruthSeeds : kTruthSeeds / 2); ++seed)
          measured.values.back().push_back(value(optimizer, step, 201 + seed));
      }
      measured_.push_back(std::move(measured));
    }
  }

  const std::vector<Measured>& measured() const { return measured_; }

 private:
  double value(const Optimizer& optimizer, std::size_t step, std::int64_t seed) {
    std::vector<std::string> sets = task_.sets;
    sets.insert(sets.end(), optimizer.sets.begin(), optimizer.sets.end());
    sets.push_back(fmt::format("optimizer.lr={:.4g}", rate(step)));
    sets.push_back(fmt::format("run.seed={}", seed));
    sets.push_back(fmt::format("run.steps={}", task_.steps));
    sets.emplace_back("recovery.type=\"none\"");
    const Config config = Config::load(shipped("base/" + task_.base), sets,
                                       {shipped("presets/optimizer_" + optimizer.preset + ".toml")});
    TrainRequest request;
    request.run_dir = (scratch_ / "truth").string();
    request.quiet = true;
    const RunResult result = runtime_.train(config, request);
    fs::remove_all(scratch_ / "truth");
    const auto found = result.metrics.find("val/loss");
    const double loss = found == result.metrics.end() ? NAN : found->second;
    return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
  }

  Task task_;
  const Scratch& scratch_;
  Runtime runtime_;
  std::vector<Measured> measured_;
};

void print(const Task& task, const Measured& measured) {
  std::vector<std::string> means;
  for (std::size_t step = 0; step < kRates; ++step)
    means.push_back(fmt::format("{}{:.3f}", step == measured.best() ? "*" : "", measured.mean(step)));
  std::cout << fmt::format("{} {} from {:.0e} on: {}\n", task.name, measured.optimizer.name, rate(0),
                           fmt::join(means, " "))
            << std::flush;
}

struct Pair {
  Task task;
  Measured baseline, other;
  int at_own = 0;  ///< sign of other minus baseline, each at its best rate

  std::string name() const {
    return task.name + ": " + other.optimizer.name + " against " + baseline.optimizer.name;
  }
};

/// Pairs whose order is clear with the baseline's rate and the other way round with rates of their own, both
/// of them away from the ends of the grid. At most `most` of each task, as different ones as there are.
std::vector<Pair> flipping_pairs(const Task& task, const std::vector<Measured>& measured, std::size_t most) {
  std::vector<Pair> out;
  for (std::size_t apart = 1; apart < measured.size(); ++apart) {
    for (std::size_t i = 0; i < measured.size() && out.size() < most; ++i) {
      const Measured& a = measured[i];
      const Measured& b = measured[(i + apart) % measured.size()];
      const auto inside = [](const Measured& m) { return m.best() > 1 && m.best() < kRates - 2; };
      if (!inside(a) || !inside(b)) continue;
      const int shared = clear_order(a.values[a.best()], b.values[a.best()]);
      const int own = clear_order(a.values[a.best()], b.values[b.best()]);
      if (shared * own < 0) out.push_back({task, a, b, own});
    }
  }
  return out;
}

/// A study of a pair, in one folder whatever the range is.
class PairStudy {
 public:
  PairStudy(const Pair& pair, const Scratch& scratch) : pair_(pair), scratch_(scratch) {
    std::string base =
        fmt::format("extends = [\"{}\"]\nrecovery.type = \"none\"\n", shipped("base/" + pair.task.base));
    for (const std::string& set : pair.task.sets) base += set + "\n";
    write_file(scratch / "base.toml", base);
  }
  ~PairStudy() { fs::remove_all(scratch_ / "out"); }
  PairStudy(const PairStudy&) = delete;
  PairStudy& operator=(const PairStudy&) = delete;

  /// The report with rates `first` to `last` of the grid.
  nlohmann::json report(std::size_t first, std::size_t last) const {
    std::string text = fmt::format(R"(base = "base.toml"
seeds = {{ from = 1 }}
metric = "val/loss"
lower_is_better = true
[budget]
steps = {}
[sequential]
max_seeds = 24
method = "normal"
[tune]
trials = {}
seeds = [101, 102]
[[tune.key]]
name = "optimizer.lr"
from = {:.4g}
to = {:.4g}
)",
                                   pair_.task.steps, last - first + 1, rate(first), rate(last));
    for (const Optimizer* optimizer : {&pair_.baseline.optimizer, &pair_.other.optimizer}) {
      text += fmt::format("[[arm]]\nname = \"{}\"\nextends = [\"{}\"]\n", optimizer->name,
                          shipped("presets/optimizer_" + optimizer->preset + ".toml"));
      if (!optimizer->sets.empty())
        text += fmt::format("set = [\"{}\"]\n", fmt::join(optimizer->sets, "\", \""));
    }
    write_file(scratch_ / "pair.toml", text);
    const Ended ended = Child({{"ab", "pair.toml", "--jobs", "2", "--out", "out"},
                               scratch_.folder(),
                               {{"TENON_PLUGIN_PATH", plugins()}}})
                            .wait(300);
    EXPECT_TRUE(ended.status == 0 || ended.status == 1) << ended.out << ended.err;
    return nlohmann::json::parse(read_file(scratch_ / "out/report.json"));
  }

  /// As the runs have recorded it: one number if every try of every arm consumed the same.
  std::set<double> samples_of_completed_tries() const {
    std::set<double> out;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "out/tuning")) {
      if (entry.path().filename() != "summary.json") continue;
      const auto run = nlohmann::json::parse(read_file(entry.path()));
      if (run.at("status") == "completed") out.insert(run.at("samples").get<double>());
    }
    return out;
  }

 private:
  const Pair& pair_;
  const Scratch& scratch_;
};

/// Ends that the study saw for an arm.
std::vector<std::string> edges(const nlohmann::json& report, const std::string& arm) {
  std::vector<std::string> out;
  for (const auto& basin : report.at("tuning").at("arms")) {
    if (basin.at("name") != arm) continue;
    for (const auto& edge : basin.at("edges")) out.push_back(edge.at("end"));
  }
  return out;
}

struct Score {
  std::size_t pairs = 0, right = 0, edges = 0, edges_seen = 0;
};

/// Whether the best of the rates `first` to `last` is clearly the one at `end`, beside every other one.
bool planted_edge(const Measured& m, std::size_t first, std::size_t last, std::size_t end) {
  for (std::size_t step = first; step <= last; ++step) {
    if (step != end && clear_order(m.values[end], m.values[step]) != 1) return false;
  }
  return std::isfinite(m.mean(end));
}

void try_edges(const Pair& pair, const PairStudy& study, Score& score) {
  struct Case {
    std::size_t first, last, end;
    const char* name;
  };
  const std::size_t best = pair.other.best();
  for (const Case& tried :
       {Case{0, best - 1, best - 1, "high"}, Case{best + 1, kRates - 1, best + 1, "low"}}) {
    if (tried.last < tried.first + 2 || !planted_edge(pair.other, tried.first, tried.last, tried.end))
      continue;
    ++score.edges;
    const nlohmann::json report = study.report(tried.first, tried.last);
    const bool seen = edges(report, pair.other.optimizer.name) == std::vector<std::string>{tried.name};
    score.edges_seen += seen;
    EXPECT_TRUE(seen) << pair.name() << ", rates " << rate(tried.first) << " to " << rate(tried.last);
    EXPECT_TRUE(report.at("comparisons").empty())
        << pair.name() << " has a verdict from the edge of the range";
    EXPECT_FALSE(report.at("refusals").empty());
  }
}

void judge(const Pair& pair, const PairStudy& study, Score& score) {
  const nlohmann::json report = study.report(0, kRates - 1);
  ++score.pairs;
  for (const auto& arm : report.at("tuning").at("arms"))
    EXPECT_EQ(arm.at("cost").at("runs"), 2 * kRates) << pair.name() << ": " << arm.at("trials").dump();
  EXPECT_THAT(study.samples_of_completed_tries(), ::testing::SizeIs(1)) << pair.name();
  std::string verdict = "none", pairs = "0";
  if (!report.at("comparisons").empty()) {
    const auto& comparison = report.at("comparisons")[0];
    verdict = comparison.at("verdict").at("outcome");
    pairs = std::to_string(comparison.at("primary").at("differences").size());
  }
  const bool right = verdict == (pair.at_own < 0 ? "better" : "worse");
  score.right += right;
  const double own = pair.other.mean(pair.other.best()) - pair.baseline.mean(pair.baseline.best());
  const double shared = pair.other.mean(pair.baseline.best()) - pair.baseline.mean(pair.baseline.best());
  std::cout << fmt::format("{}: {:+.3f} at {:.3g}, {:+.3f} at {:.3g}; verdict {} after {} pairs{}\n",
                           pair.name(), shared, rate(pair.baseline.best()), own, rate(pair.other.best()),
                           verdict, pairs, right ? "" : " (WRONG)")
            << std::flush;
}

TEST(TunedPairs, AreJudgedByTheirOwnRates) {
  const Scratch scratch;
  std::vector<Pair> pairs;
  const std::vector<Task> chosen = tasks();
  for (std::size_t t = 0; t < chosen.size(); ++t) {
    const Truth truth(chosen[t], scratch);
    const std::size_t most =
        all() ? (kPlanted - pairs.size() + chosen.size() - t - 1) / (chosen.size() - t) : 1;
    for (const Measured& measured : truth.measured()) print(chosen[t], measured);
    for (Pair& pair : flipping_pairs(chosen[t], truth.measured(), most)) pairs.push_back(std::move(pair));
  }
  ASSERT_GE(pairs.size(), all() ? kPlanted : 1) << "too few pairs flip";

  Score score;
  for (const Pair& pair : pairs) {
    const PairStudy study(pair, scratch);
    try_edges(pair, study, score);
    judge(pair, study, score);
  }
  std::cout << fmt::format("right {} of {}; edges {} of {}\n", score.right, score.pairs, score.edges_seen,
                           score.edges);
  EXPECT_GE(score.right + (all() ? 1 : 0), score.pairs);
  EXPECT_GT(score.edges, 0U);
}

}  // namespace
}  // namespace tenon::integration::tuning_test
