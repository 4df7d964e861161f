// Sequential evidence: values against tests/reference/ab_sequential.json (NumPy and SciPy), the rule of
// stopping, and simulated streams of pairs in which somebody looks after every pair.
#include "ab/sequential.hpp"

#include "test_paths.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>

namespace tenon::ab {
namespace {

using nlohmann::json;

Evidence evidence_of(const std::vector<double>& d, SequentialMethod method, std::optional<double> margin = {},
                     double alpha = 0.05) {
  EvidenceProcess process(method, margin, alpha);
  for (const double x : d) process.add(x);
  return process.now();
}

void expect_close(double got, const json& want, const std::string& what) {
  EXPECT_NEAR(got, want.get<double>(), 1e-7 * std::max(1.0, std::abs(want.get<double>()))) << what;
}

TEST(SequentialReference, EvidenceAndConfidenceSequence) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/ab_sequential.json");
  const json record = json::parse(in);
  ASSERT_GE(record["cases"].size(), 5u);
  for (const json& c : record["cases"]) {
    const std::string name = c["name"];
    const auto d = c["differences"].get<std::vector<double>>();
    SignEvidence sign;
    for (const double x : d) sign.add(x);
    expect_close(sign.log_greater(), c["sign_greater"], name + " greater");
    expect_close(sign.log_less(), c["sign_less"], name + " less");
    const Evidence by_sign = evidence_of(d, SequentialMethod::kSign, c["margin"].get<double>());
    expect_close(*by_sign.log_e_above, c["sign_above"], name + " sign above");
    expect_close(*by_sign.log_e_below, c["sign_below"], name + " sign below");
    const Evidence normal = evidence_of(d, SequentialMethod::kNormal, c["margin"].get<double>());
    expect_close(normal.log_e, c["normal"], name + " normal");
    expect_close(*normal.log_e_above, c["normal_above"], name + " above");
    expect_close(*normal.log_e_below, c["normal_below"], name + " below");
    if (!c.contains("low")) continue;
    expect_close(normal.interval.low, c["low"], name + " low");
    expect_close(normal.interval.high, c["high"], name + " high");
  }
}

TEST(Sequential, APairIsMeasuredByEarlierPairsAlone) {
  SignEvidence sign;
  sign.add(5);  // nothing is earlier
  EXPECT_EQ(sign.log_greater(), 0);
  SignEvidence wide, narrow;
  for (const double x : {2.0, 1.0}) wide.add(x);
  for (const double x : {1.0, 0.5}) narrow.add(x);
  EXPECT_DOUBLE_EQ(wide.log_greater(), narrow.log_greater());
  // 100 beside a scale of 1 is as clear as a pair can be: close to a factor of two for every lambda.
  sign = {};
  for (const double x : {1.0, 100.0}) sign.add(x);
  EXPECT_NEAR(sign.log_greater(), std::log(2.0), 1e-3);
}

TEST(Sequential, DegenerateDifferencesAreOrdinaryInput) {
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    const Evidence zero = evidence_of({0, 0, 0, 0, 0, 0}, method, 0.1);
    EXPECT_EQ(zero.log_e, method == SequentialMethod::kSign ? -std::log(2.0) : 0);
    EXPECT_GT(*zero.log_e_above, 0);
    EXPECT_EQ(*zero.log_e_above, *zero.log_e_below);
    const Evidence equal = evidence_of(std::vector<double>(40, 0.25), method);
    EXPECT_EQ(conclusion_of(equal, 0.05), Conclusion::kGreater);
    EXPECT_TRUE(std::isfinite(equal.log_e));
    // Sizes that overflow when they are exponentiated.
    const Evidence huge = evidence_of({1e-9, 1e9, -1e9, 1e9, 1e9, 1e9, 1e9, 1e9}, method);
    EXPECT_FALSE(std::isnan(huge.log_e));
  }
  const Evidence many = evidence_of(std::vector<double>(5000, 1.0), SequentialMethod::kSign);
  EXPECT_NEAR(many.log_e, 4999 * std::log(2.0) - std::log(2.0), 5000 * std::log1p(std::exp(-8)) + 2);
  EXPECT_TRUE(std::isinf(evidence_of({1, 2}, SequentialMethod::kNormal).interval.low));
}

TEST(Sequential, LooksBeginAndEndWhereTheRuleSays) {
  const SequentialRule rule{.max_seeds = 12, .first_look = 4, .block = 3};
  std::vector<std::size_t> looks;
  for (std::size_t at = next_look(rule, 0);; at = next_look(rule, at)) {
    looks.push_back(at);
    if (at == 12) break;
  }
  EXPECT_EQ(looks, (std::vector<std::size_t>{4, 7, 10, 12}));
  const std::vector<double> clear(12, 1.0);
  const SequentialCourse course = follow(clear, rule, {}, 0.05);
  EXPECT_EQ(course.conclusion, Conclusion::kGreater);
  EXPECT_EQ(course.pairs, 7u + 3);  // seven pairs reach 2^6 in the first place, less the mixture's price
  EXPECT_EQ(course.looks.size(), 3u);
  EXPECT_FALSE(follow(std::span(clear).first(4), rule, {}, 0.05).ended(rule));
  EXPECT_EQ(alpha_of_arm(0.05, 2), 0.05);
  EXPECT_EQ(alpha_of_arm(0.05, 5), 0.0125);
}

TEST(Sequential, FutilityStopsWhereNoConclusionIsInSight) {
  SequentialRule rule{.max_seeds = 12, .first_look = 6, .block = 1, .futility = 0.1};
  const std::vector<double> nothing{1, -1, 1.1, -0.9, 1, -1.05, 1, -1, 1, -1, 1, -1};
  const SequentialCourse stopped = follow(nothing, rule, {}, 0.05);
  EXPECT_TRUE(stopped.futile);
  EXPECT_EQ(stopped.pairs, 6u);
  ASSERT_TRUE(stopped.chance);
  EXPECT_LT(*stopped.chance, 0.1);
  EXPECT_EQ(follow(nothing, rule, {}, 0.05, 8).pairs, 8u);  // earlier looks are known not to be
  rule.futility.reset();
  EXPECT_EQ(follow(nothing, rule, {}, 0.05).pairs, 12u);
  const std::vector<double> promising{1, 1.1, 0.9, 1, 1.05, -0.1};
  EXPECT_GT(chance_of_conclusion(promising, rule, {}, 0.05), 0.5);
}

TEST(Sequential, SaysWhatItWouldHaveTaken) {
  const std::vector<double> weak{1, -0.5, 0.8, -0.4, 0.9};
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    const auto pairs = pairs_to_conclude(weak, method, {}, 0.05, 1000);
    ASSERT_TRUE(pairs);
    std::vector<double> repeated;
    for (std::size_t i = 0; i < *pairs; ++i) repeated.push_back(weak[i % weak.size()]);
    EXPECT_NE(conclusion_of(evidence_of(repeated, method), 0.05), Conclusion::kNone);
    repeated.pop_back();
    EXPECT_EQ(conclusion_of(evidence_of(repeated, method), 0.05), Conclusion::kNone);
  }
  EXPECT_FALSE(pairs_to_conclude(std::vector<double>{1, -1}, SequentialMethod::kNormal, {}, 0.05, 500));
}

// Peeking: streams of pairs, a look after every one.

constexpr int kStreams = 10'000;
constexpr std::size_t kPairs = 60;

using Draw = std::function<double(std::mt19937_64&)>;

struct Rates {
  double better_or_worse = 0, equivalent = 0;
  double pairs = 0;  // mean; streams without conclusion count kPairs
};

Rates rates(SequentialMethod method, const Draw& draw, std::optional<double> margin = {}, double alpha = 0.05,
            int streams = kStreams) {
  const SequentialRule rule{.max_seeds = kPairs, .first_look = 2, .block = 1, .method = method};
  std::mt19937_64 random(7);
  Rates out;
  std::vector<double> d(kPairs);
  for (int stream = 0; stream < streams; ++stream) {
    for (double& x : d) x = draw(random);
    const SequentialCourse course = follow(d, rule, margin, alpha);
    out.equivalent += course.conclusion == Conclusion::kEquivalent;
    out.better_or_worse +=
        course.conclusion == Conclusion::kGreater || course.conclusion == Conclusion::kLess;
    out.pairs += static_cast<double>(course.pairs);
  }
  for (double* rate : {&out.better_or_worse, &out.equivalent, &out.pairs}) *rate /= streams;
  return out;
}

/// "4.10% (3.73 to 4.51)": Wilson's interval of a share of kStreams.
std::string share(double p) {
  constexpr double z = 1.96, n = kStreams;
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  char text[64];
  std::snprintf(text, sizeof text, "%.2f%% (%.2f to %.2f)", 100 * p, 100 * (centre - half),
                100 * (centre + half));
  return text;
}

double normal(std::mt19937_64& random) {
  // Polar method: the same numbers with every standard library.
  double u, v, s;
  do {
    u = std::ldexp(static_cast<double>(random() >> 11), -52) - 1;
    v = std::ldexp(static_cast<double>(random() >> 11), -52) - 1;
    s = u * u + v * v;
  } while (s >= 1 || s == 0);
  return u * std::sqrt(-2 * std::log(s) / s);
}

double student3(std::mt19937_64& random) {
  double squares = 0;
  const double top = normal(random);
  for (int i = 0; i < 3; ++i) {
    const double x = normal(random);
    squares += x * x;
  }
  return top / std::sqrt(squares / 3);
}

double uniform(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 0.5) * std::ldexp(1.0, -53);
}

double exponential(std::mt19937_64& random) {
  return -std::log(uniform(random));
}

/// Each arm is skewed (one run in ten is far off); the difference of two alike arms is symmetric.
double skewed_pair(std::mt19937_64& random) {
  const auto run = [&] { return exponential(random) * (uniform(random) < 0.1 ? 10 : 1); };
  const double a = run();
  return a - run();
}

/// Mean zero, but not symmetric: a control that breaks the assumption.
double skewed_difference(std::mt19937_64& random) {
  return exponential(random) - 1;
}

constexpr struct {
  const char* name;
  double (*draw)(std::mt19937_64&);
} kNoise[] = {{"normal", normal},
              {"Student t(3)", student3},
              {"skewed arms", skewed_pair},
              {"skewed pairs", skewed_difference}};

TEST(Sequential, PeekingKeepsTheLevelUnderNoEffect) {
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    for (const auto& noise : kNoise) {
      const Rates r = rates(method, noise.draw);
      std::printf("%-6s %-12s false better or worse %s\n", kSequentialMethods.name(method), noise.name,
                  share(r.better_or_worse).c_str());
      const bool symmetric = noise.draw != skewed_difference;
      const bool promised = method == SequentialMethod::kSign ? symmetric : noise.draw == normal;
      if (promised) {
        EXPECT_LE(r.better_or_worse, 0.05) << noise.name;
      } else if (!symmetric) {
        EXPECT_GT(r.better_or_worse, 0.05) << "docs/ab.md says that asymmetry breaks it";
      }
    }
  }
}

TEST(Sequential, PeekingAtRealRunsKeepsTheLevel) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/ab_real_runs.json");
  const auto values = json::parse(in)["values"].get<std::vector<double>>();
  ASSERT_GE(values.size(), 60u);
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    const SequentialRule rule{.max_seeds = values.size() / 2, .first_look = 2, .block = 1, .method = method};
    std::mt19937_64 random(5);
    int wrong = 0;
    constexpr int kRealStreams = 400;
    for (int stream = 0; stream < kRealStreams; ++stream) {
      // Runs of one configuration in pairs: whichever is called the other arm, nothing differs but the seed.
      std::vector<double> left = values, d;
      while (left.size() >= 2) {
        const auto draw = [&] {
          const auto at = static_cast<std::size_t>(random() % left.size());
          const double value = left[at];
          left[at] = left.back();
          left.pop_back();
          return value;
        };
        const double baseline = draw();
        d.push_back(draw() - baseline);
      }
      wrong += follow(d, rule, {}, 0.05).conclusion != Conclusion::kNone;
    }
    std::printf("%-6s real runs    false better or worse %.2f%% of %d streams\n",
                kSequentialMethods.name(method), 100.0 * wrong / kRealStreams, kRealStreams);
    EXPECT_LE(wrong, 0.05 * kRealStreams);
  }
}

/// The smallest number of pairs, fixed beforehand, whose t test has this power.
std::size_t fixed_pairs(double effect, double power) {
  std::size_t n = 2;
  while (t_test_power(n, effect, 0.05) < power) ++n;
  return n;
}

TEST(Sequential, PlantedEffectsAreFound) {
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    for (const double effect : {0.5, 1.0, 2.0}) {
      const Rates r = rates(
          method, [&](auto& random) { return effect + normal(random); }, {}, 0.05, 2000);
      const double power = std::min(r.better_or_worse, 0.999);
      std::printf(
          "%-6s effect %.1f: power %.1f%%, mean pairs %.1f; fixed n for 80%%: %zu, for this power: %zu\n",
          kSequentialMethods.name(method), effect, 100 * r.better_or_worse, r.pairs, fixed_pairs(effect, 0.8),
          fixed_pairs(effect, power));
      EXPECT_GE(r.better_or_worse, effect < 1 ? 0.65 : 0.98);
      EXPECT_LE(r.pairs, effect < 1 ? 45 : effect < 2 ? 20 : 12);
    }
  }
}

TEST(Sequential, EquivalenceIsNotDeclaredForTwiceTheMargin) {
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    for (const double margin : {0.2, 0.5, 1.0}) {
      for (const double side : {-2.0, 2.0}) {
        const Rates r = rates(
            method, [&](auto& random) { return side * margin + normal(random); }, margin, 0.05, 4000);
        EXPECT_LE(r.equivalent, 0.05) << margin;
      }
      // On the margin itself, where the level is reached.
      const Rates edge = rates(
          method, [&](auto& random) { return margin + normal(random); }, margin);
      EXPECT_LE(edge.equivalent, 0.05) << margin;
      const Rates none = rates(
          method, [&](auto& random) { return margin * 0.1 * normal(random); }, margin, 0.05, 500);
      std::printf(
          "%-6s margin %.1f: equivalent at the margin %s; arms alike, deviation 0.1 margins: %.1f%% in %.1f "
          "pairs\n",
          kSequentialMethods.name(method), margin, share(edge.equivalent).c_str(), 100 * none.equivalent,
          none.pairs);
      EXPECT_GE(none.equivalent, 0.99);
    }
  }
}

TEST(Sequential, SeveralArmsShareTheLevel) {
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    std::mt19937_64 random(11);
    const SequentialRule rule{.max_seeds = kPairs, .first_look = 2, .block = 1, .method = method};
    int wrong = 0;
    constexpr int kStudies = 4000;
    for (int study = 0; study < kStudies; ++study) {
      std::vector<double> baseline(kPairs), d(kPairs);
      for (double& x : baseline) x = normal(random);
      bool any = false;
      for (int arm = 1; arm < 5; ++arm) {
        for (std::size_t i = 0; i < kPairs; ++i) d[i] = normal(random) - baseline[i];
        any = any || follow(d, rule, {}, alpha_of_arm(0.05, 5)).conclusion != Conclusion::kNone;
      }
      wrong += any;
    }
    std::printf("%-6s five arms alike: any false %.2f%%\n", kSequentialMethods.name(method),
                100.0 * wrong / kStudies);
    EXPECT_LE(wrong, 0.05 * kStudies);
  }
}

TEST(Sequential, TenThousandLooksTakeLessThanASecond) {
  for (const SequentialMethod method : {SequentialMethod::kSign, SequentialMethod::kNormal}) {
    const SequentialRule rule{.max_seeds = 200, .first_look = 1, .block = 1, .method = method};
    std::mt19937_64 random(3);
    std::vector<double> d(200);
    for (double& x : d) x = normal(random);
    const auto begun = std::chrono::steady_clock::now();
    std::size_t looks = 0;
    while (looks < 10'000) {
      for (int arm = 1; arm < 5; ++arm) looks += follow(d, rule, 0.01, 1e-9).looks.size() * (arm == 1);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::printf("%s: %zu looks in %.3f s\n", kSequentialMethods.name(method), looks, took.count());
    EXPECT_LT(took.count(), 1);
  }
}

}  // namespace
}  // namespace tenon::ab
