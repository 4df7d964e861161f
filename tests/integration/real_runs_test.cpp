// Frequency with which a study of two equal arms reports a difference, on the noise of real training: pairs
// are drawn and labelled at random from many short runs of one arm, so that only chance can reject. Synthetic
// noise is tested beside the statistics themselves.
#include "run_program.hpp"
#include "test_paths.hpp"

#include "ab/statistics.hpp"

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <algorithm>
#include <random>

namespace tenon::integration::real_runs_test {
namespace {

constexpr int kRuns = 40;
constexpr int kStudies = 400;
constexpr std::size_t kPairs = 8;
constexpr double kLevel = 0.05;

/// Validation loss of kRuns runs that differ in their seed alone: initial weights, order, dropout.
std::vector<double> losses_of_one_arm() {
  const Scratch scratch;
  Runtime runtime;
  runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  const std::string text = replaced(replaced(Scratch::kRun, "text.txt", (scratch / "text.txt").string()),
                                    "heads = 2", "heads = 2\ndropout = 0.1");
  std::vector<double> losses;
  for (int seed = 1; seed <= kRuns; ++seed) {
    const Config config = Config::parse(
        text, "run.toml", {"run.steps=20", "run.seed=" + std::to_string(seed), "recovery.type=\"none\""});
    TrainRequest request;
    request.run_dir = (scratch / ("run" + std::to_string(seed))).string();
    request.quiet = true;
    const RunResult result = runtime.train(config, request);
    EXPECT_EQ(result.error, "");
    losses.push_back(result.metrics.at("val/loss"));
  }
  return losses;
}

struct Rates {
  double t_test = 0;
  double sign_flip = 0;
};

/// Share of studies that reject; `shift` is added to every second member of a pair.
Rates rejections(std::vector<double> losses, double shift) {
  std::mt19937_64 draw(20);
  Rates rates;
  for (int study = 0; study < kStudies; ++study) {
    std::shuffle(losses.begin(), losses.end(), draw);
    std::vector<double> differences;
    for (std::size_t pair = 0; pair < kPairs; ++pair)
      differences.push_back(losses[2 * pair + 1] + shift - losses[2 * pair]);
    rates.t_test += ab::paired_t_test(differences).p <= kLevel;
    rates.sign_flip += ab::sign_flip_test(differences).p <= kLevel;
  }
  rates.t_test /= kStudies;
  rates.sign_flip /= kStudies;
  return rates;
}

TEST(RealRuns, EqualArmsAreRejectedAsRarelyAsTheLevelSays) {
  const std::vector<double> losses = losses_of_one_arm();
  const double spread = ab::mean_with_interval(losses, kLevel).sd;
  ASSERT_EQ(std::set<double>(losses.begin(), losses.end()).size(), losses.size()) << "runs repeat each other";
  ASSERT_GT(spread, 0);

  const Rates equal = rejections(losses, 0);
  RecordProperty("t_test", std::to_string(equal.t_test));
  RecordProperty("sign_flip", std::to_string(equal.sign_flip));
  std::cout << "rejected: t test " << equal.t_test << ", sign flips " << equal.sign_flip << ", of "
            << kStudies << " studies; sd of one run " << spread << '\n';
  // Four standard errors of a share of 0.05 over the studies would be 0.044; these are the stricter bounds.
  EXPECT_GE(equal.t_test, 0.02);
  EXPECT_LE(equal.t_test, 0.08);
  EXPECT_LE(equal.sign_flip, 0.08);
  EXPECT_GT(equal.sign_flip, 0);

  // The same draws with a difference of two standard deviations of a run: a study that never rejects fails
  // here.
  const Rates shifted = rejections(losses, 2 * spread);
  EXPECT_GT(shifted.t_test, 0.9);
  EXPECT_GT(shifted.sign_flip, 0.9);
}

}  // namespace
}  // namespace tenon::integration::real_runs_test
