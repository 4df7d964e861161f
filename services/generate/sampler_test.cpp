// Draws against the distribution that the settings describe, computed by ranking all tokens, and against the
// position in its running sum that the random number names.
#include "generate/sampler.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

namespace tenon::generate::sampler_test {
namespace {

GenerationSpec settings(double temperature, std::int64_t top_k, double top_p, std::uint64_t seed = 1) {
  return {.most = 1, .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed};
}

std::vector<double> shares(const GenerationSpec& spec, const std::vector<double>& logits, int draws) {
  Sampler sampler(spec);
  std::vector<double> counts(logits.size(), 0.0);
  for (int i = 0; i < draws; ++i)
    counts[sampler.next(logits, 0, static_cast<std::uint64_t>(i)).token] += 1.0 / draws;
  return counts;
}

/// Probabilities by id: all tokens ranked, those that remain renormalised.
std::vector<double> by_ranking(const std::vector<double>& logits, const GenerationSpec& spec) {
  std::vector<std::size_t> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (spec.top_k > 0) ranked.resize(std::min<std::size_t>(ranked.size(), spec.top_k));
  const auto total = [&](std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      sum += std::exp((logits[ranked[i]] - logits[ranked[0]]) / spec.temperature);
    return sum;
  };
  std::size_t kept = 1;
  while (kept < ranked.size() && total(kept) < spec.top_p * total(ranked.size())) ++kept;
  std::vector<double> result(logits.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i)
    result[ranked[i]] = std::exp((logits[ranked[i]] - logits[ranked[0]]) / spec.temperature) / total(kept);
  return result;
}

TEST(Sampler, DrawsTheSoftmax) {
  const std::vector<double> logits = {0.0, std::log(2.0), std::log(5.0), -40.0};
  const int draws = 20000;
  const auto found = shares(settings(1, 0, 1, 3), logits, draws);
  const double expected[] = {1.0 / 8, 2.0 / 8, 5.0 / 8, 0};
  // Five standard deviations of a share, at most sqrt(0.25 / draws).
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 5 * std::sqrt(0.25 / draws)) << i;
  const auto cold = shares(settings(0.5, 0, 1, 3), logits, draws);
  EXPECT_NEAR(cold[2], 25.0 / 30, 5 * std::sqrt(0.25 / draws)) << "squares of the shares";
}

TEST(Sampler, FollowsTheRunningSumOfTheTokensThatTopKAndTopPLeave) {
  // Whole numbers, so that there are equal logits; noise, so that there are none.
  std::vector<double> ties(40), noise(40);
  for (std::size_t i = 0; i < 40; ++i) {
    ties[i] = static_cast<double>(random_below(random_key(5, "ties"), 0, i, 4));
    noise[i] = 3 * random_normal(random_key(5, "noise"), 0, i);
  }
  int checked = 0;
  for (const auto& logits : {ties, noise}) {
    for (const double temperature : {0.5, 1.0, 2.0}) {
      for (const std::int64_t top_k : {0, 1, 3, 17, 40, 90}) {
        for (const double top_p : {0.05, 0.3, 0.77, 0.999, 1.0}) {
          const GenerationSpec spec = settings(temperature, top_k, top_p, 11);
          const std::vector<double> probabilities = by_ranking(logits, spec);
          Sampler sampler(spec);
          for (std::uint64_t position = 0; position < 40; ++position) {
            const double drawn = random_uniform(random_key(11, "generate"), 6, position);
            double sum = 0;
            std::int32_t expected = -1;
            bool near_border = false;
            for (std::size_t id = 0; id < logits.size(); ++id) {
              sum += probabilities[id];
              near_border |= std::abs(sum - drawn) < 1e-12;
              if (expected < 0 && drawn < sum) expected = static_cast<std::int32_t>(id);
            }
            if (near_border) continue;
            ++checked;
            ASSERT_EQ(sampler.next(logits, 6, position).token, expected)
                << fmt::format("T {} k {} p {} at {}", temperature, top_k, top_p, position);
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 7000);
}

TEST(Sampler, KeepsTheFewestThatReachTheSumAndRanksEqualsById) {
  const std::vector<double> four(4, 0.0);
  const auto half = shares(settings(1, 0, 0.5), four, 400);
  EXPECT_GT(half[0], 0.3);
  EXPECT_GT(half[1], 0.3);
  EXPECT_EQ(half[2] + half[3], 0) << "two of four reach one half";
  EXPECT_GT(shares(settings(1, 0, 0.500001), four, 400)[2], 0.2) << "and no more than that";
  EXPECT_NEAR(shares(settings(1, 1, 1), {1.0, 3.0, 2.0, 3.0}, 50)[1], 1, 1e-9);
  EXPECT_NEAR(shares(settings(0, 0, 1), {1.0, 3.0, 2.0, 3.0}, 50)[1], 1, 1e-9);
  EXPECT_NEAR(shares(settings(1, 0, 1e-9), {1.0, 3.0, 2.0, 3.0}, 50)[1], 1, 1e-9) << "one always remains";
}

TEST(Sampler, GivesTheLogarithmOfTheModelsOwnProbability) {
  std::vector<double> logits(60);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 5 * random_normal(random_key(2, "l"), 0, i);
  long double sum = 0;
  for (const double logit : logits) sum += std::exp(static_cast<long double>(logit));
  std::set<std::int32_t> tokens;
  for (const GenerationSpec& spec : {settings(0, 0, 1), settings(3, 0, 1), settings(3, 8, 0.9)}) {
    Sampler sampler(spec);
    for (std::uint64_t position = 0; position < 20; ++position) {
      const Drawn drawn = sampler.next(logits, 1, position);
      EXPECT_NEAR(drawn.log_prob, static_cast<double>(logits[drawn.token] - std::log(sum)), 1e-13);
      tokens.insert(drawn.token);
    }
  }
  EXPECT_GT(tokens.size(), 8U);
}

TEST(Sampler, GivesATokenTheProbabilityThatADrawOfItHas) {
  std::vector<double> logits(60);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 5 * random_normal(random_key(2, "l"), 0, i);
  Sampler sampler(settings(3, 0, 1));
  for (std::uint64_t position = 0; position < 20; ++position) {
    const Drawn drawn = sampler.next(logits, 1, position);
    EXPECT_EQ(Sampler::given(logits, drawn.token, 1, position).log_prob, drawn.log_prob);
  }
  logits[5] = std::nan("");
  EXPECT_THROW(Sampler::given(logits, 4, 1, 0), Error);
}

TEST(Sampler, IsAFunctionOfSeedPurposeSequenceAndPosition) {
  const std::vector<double> logits(1000, 0.0);
  const auto drawn = [&](const GenerationSpec& spec, std::uint64_t sequence, std::uint64_t position) {
    return Sampler(spec).next(logits, sequence, position).token;
  };
  GenerationSpec other_purpose = settings(1, 0, 1);
  other_purpose.purpose = "rollouts";
  int same = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::int32_t token = drawn(settings(1, 0, 1), 3, i);
    EXPECT_EQ(drawn(settings(1, 0, 1), 3, i), token);
    same += token == drawn(settings(1, 0, 1, 2), 3, i);
    same += token == drawn(other_purpose, 3, i);
    same += token == drawn(settings(1, 0, 1), 4, i);
    same += token == drawn(settings(1, 0, 1), 3, i + 50);
  }
  EXPECT_LT(same, 5) << "of 200, each with a chance of 1 in 1000";
}

TEST(Sampler, RefusesWhatIsNoDistribution) {
  const double none = std::nan("");
  const struct {
    GenerationSpec spec;
    const char* says;
  } cases[] = {
      {settings(-1, 0, 1), "generate: temperature is -1, expected 0 or more"},
      {settings(none, 0, 1), "generate: temperature is nan, expected 0 or more"},
      {settings(1, -1, 1), "generate: top_k is -1, expected 0 (all tokens) or more"},
      {settings(1, 0, 0), "generate: top_p is 0, expected more than 0 and at most 1 (all tokens)"},
      {settings(1, 0, 1.5), "generate: top_p is 1.5, expected more than 0 and at most 1 (all tokens)"},
      {settings(1, 0, none), "generate: top_p is nan, expected more than 0 and at most 1 (all tokens)"},
      {{.most = -2}, "generate: most is -2, expected 0 or more"},
      {{.thinking = {5, -1, {3}}}, "generate: thinking.grace is -1, expected 0 or more"},
      {{.thinking = {5, 1}},
       "generate: thinking.tokens is 5, and thinking.close has no token; give the closing tag"},
  };
  for (const auto& c : cases) {
    try {
      Sampler{c.spec};
      ADD_FAILURE() << c.says;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), c.says);
    }
  }
  try {
    Sampler({}).next(std::vector<double>{0, std::numeric_limits<double>::infinity()}, 7, 4);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_STREQ(
        error.what(),
        "generate: the logit of token 1 at position 4 of sequence 7 is inf; the weights are not usable");
  }
}

}  // namespace
}  // namespace tenon::generate::sampler_test
