// Choosing a token: the frequencies are the softmax, and a position always draws the same.
#include "generate_sampler.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tenon::cli {
namespace {

std::vector<double> shares(const Sampler& sampler, const std::vector<double>& logits, int draws) {
  std::vector<double> counts(logits.size(), 0.0);
  for (int i = 0; i < draws; ++i) counts[sampler.next(logits, static_cast<std::uint64_t>(i))] += 1.0 / draws;
  return counts;
}

TEST(Sampler, DrawsTheSoftmax) {
  const std::vector<double> logits = {0.0, std::log(2.0), std::log(5.0), -40.0};
  const int draws = 20000;
  const auto found = shares(Sampler({.seed = 3}), logits, draws);
  const double expected[] = {1.0 / 8, 2.0 / 8, 5.0 / 8, 0};
  // Five standard deviations of a share, at most sqrt(0.25 / draws).
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 5 * std::sqrt(0.25 / draws)) << i;
  const auto cold = shares(Sampler({.temperature = 0.5, .seed = 3}), logits, draws);
  EXPECT_NEAR(cold[2], 25.0 / 30, 5 * std::sqrt(0.25 / draws)) << "squares of the shares";
}

TEST(Sampler, KeepsTheLargest) {
  const std::vector<double> logits = {1.0, 3.0, 2.0, 3.0};
  const auto two = shares(Sampler({.top_k = 2}), logits, 2000);
  EXPECT_EQ(two[0] + two[2], 0);
  EXPECT_NEAR(two[1], 0.5, 5 * std::sqrt(0.25 / 2000));
  EXPECT_EQ(Sampler({.temperature = 0}).next(logits, 5), 1) << "of equal ones the first";
  EXPECT_EQ(Sampler({.top_k = 1}).next(logits, 5), 1);
}

TEST(Sampler, IsAFunctionOfSeedAndPosition) {
  const std::vector<double> logits(100, 0.0);
  int same = 0;
  for (std::uint64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(Sampler({.seed = 1}).next(logits, position), Sampler({.seed = 1}).next(logits, position));
    same += Sampler({.seed = 1}).next(logits, position) == Sampler({.seed = 2}).next(logits, position);
  }
  EXPECT_LT(same, 10);
}

TEST(Sampler, RefusesWhatIsNoDistribution) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = std::nan("")}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  try {
    Sampler({}).next(std::vector<double>{0, std::numeric_limits<double>::infinity()}, 4);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "tenon generate: the logit of token 1 at position 4 is inf; the weights of this run are not usable");
  }
}

}  // namespace
}  // namespace tenon::cli
