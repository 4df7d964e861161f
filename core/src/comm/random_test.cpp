// Random numbers: the known answers of Random123, golden draws that must never change, and their
// distributions.
#include <tenon/portable_math.hpp>
#include <tenon/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon {
namespace {

std::uint64_t wide(std::uint32_t lo, std::uint32_t hi) {
  return (std::uint64_t{hi} << 32) | lo;
}

// philox4x32 10 of Random123's tests/kat_vectors.
TEST(Random, MatchesRandom123KnownAnswers) {
  struct Case {
    std::array<std::uint32_t, 4> counter;
    std::array<std::uint32_t, 2> key;
    std::array<std::uint32_t, 4> expected;
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) {
    const auto words = random_words({{c.key[0], c.key[1]}}, wide(c.counter[2], c.counter[3]),
                                    wide(c.counter[0], c.counter[1]));
    EXPECT_EQ(words, c.expected);
  }
}

TEST(Random, KeysDifferBySeedPurposeAndLength) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  const std::string purposes[] = {"",
                                  std::string("\0", 1),
                                  "init",
                                  "init\0",
                                  "order",
                                  "dropout:h.0.drop",
                                  "dropout:h.0.dro",
                                  "dropout:h.0.drop.",
                                  std::string(16, 'a'),
                                  std::string(17, 'a'),
                                  std::string(32, 'a')};
  int expected = 0;
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (const std::string& purpose : std::set<std::string>(std::begin(purposes), std::end(purposes))) {
      const RandomKey key = random_key(seed, purpose);
      seen.emplace(key.words[0], key.words[1]);
      ++expected;
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), expected);
}

TEST(Random, NormalAgreesWithTheFormulaInLibm) {
  const RandomKey key = random_key(7, "normal");
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto w = random_words(key, 3, i);
    const double u1 = (static_cast<double>(wide(w[1], w[0]) >> 11) + 1) * 0x1p-53;
    const double u2 = static_cast<double>(wide(w[3], w[2]) >> 11) * 0x1p-53;
    const double expected = std::sqrt(-2 * std::log(u1)) * std::cos(2 * M_PI * u2);
    ASSERT_NEAR(random_normal(key, 3, i), expected, 5e-15) << i;
  }
}

TEST(Random, LogarithmicDrawsAgreeWithTheFormulasInLibm) {
  const RandomKey key = random_key(7, "logarithms");
  for (const auto& [low, high] : {std::pair{1.0, 16.0}, {1e-3, 0.1}, {1e-4, 90.0}, {0.25, 0.25}}) {
    for (std::uint64_t i = 0; i < 5000; ++i) {
      const double f = random_uniform(key, 0, i);
      ASSERT_NEAR(random_log_of_uniform(key, 0, i, low, high), std::log(low + (high - low) * f), 1e-14) << i;
      const double u = std::exp(std::log(low) + (std::log(high) - std::log(low)) * f);
      const double x = random_inverse_softplus(key, 0, i, low, high);
      ASSERT_NEAR(x, std::log(std::expm1(u)), 1e-13) << u;
      ASSERT_NEAR(std::log1p(std::exp(x)), u, 1e-12) << "softplus of the draw";
    }
  }
}

TEST(Random, MomentsAreThoseOfTheDistributions) {
  constexpr int kDraws = 200000;
  const RandomKey key = random_key(1, "moments");
  double uniform = 0, uniform2 = 0, normal = 0, normal2 = 0, normal4 = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random_uniform(key, 0, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    const double z = random_normal(key, 1, static_cast<std::uint64_t>(i));
    uniform += u;
    uniform2 += u * u;
    normal += z;
    normal2 += z * z;
    normal4 += z * z * z * z;
  }
  // Five standard errors of each mean: sigma / sqrt(draws), sigma^2 = 1/12, 4/45, 1, 2, 96.
  const double root = std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(uniform / kDraws, 0.5, 5 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(uniform2 / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45) / root);
  EXPECT_NEAR(normal / kDraws, 0, 5 / root);
  EXPECT_NEAR(normal2 / kDraws, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(normal4 / kDraws, 3, 5 * std::sqrt(96.0) / root);
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  const RandomKey key = random_key(5, "below");
  for (const std::uint64_t bound : {1ull, 2ull, 3ull, 10ull, (1ull << 63) + 1, ~0ull}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::uint64_t x = random_below(key, bound, i, bound);
      ASSERT_LT(x, bound);
      seen.insert(x);
    }
    EXPECT_EQ(seen.size(), bound <= 10 ? bound : 500u) << bound;
  }
}

TEST(PortableMath, AgreesWithTheLibraryToAFewUnits) {
  constexpr double kTurn = 6.28318530717958647692;
  const RandomKey key = random_key(3, "portable");
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double u = random_uniform(key, 0, i), x = 1200 * u - 600;
    ASSERT_NEAR(portable_exp(x) / std::exp(x), 1, 8 * 0x1p-53) << x;
    const double y = std::exp(x);
    ASSERT_NEAR(portable_log(y), std::log(y), 2 * 0x1p-53 * std::max(1.0, std::abs(x))) << y;
    ASSERT_NEAR(portable_expm1(2 * u - 1), std::expm1(2 * u - 1), 4 * 0x1p-53) << u;
    const TurnPoint point = portable_turn(u);  // the product with 2 pi rounds the angle, below 6.3
    ASSERT_NEAR(point.cosine, std::cos(kTurn * u), 12 * 0x1p-53) << u;
    ASSERT_NEAR(point.sine, std::sin(kTurn * u), 12 * 0x1p-53) << u;
  }
  for (const auto& [turns, cosine, sine] : {std::tuple{0.0, 1.0, 0.0}, std::tuple{0.25, 0.0, 1.0},
                                            std::tuple{0.5, -1.0, 0.0}, std::tuple{0.75, 0.0, -1.0}}) {
    EXPECT_EQ(portable_turn(turns).cosine, cosine) << turns;
    EXPECT_EQ(portable_turn(turns).sine, sine) << turns;
  }
}

// Rotations of stored models rest on these bits, as draws do on those below. They agree with libm's to 2
// units in the last place.
TEST(PortableMath, NeverChanges) {
  EXPECT_EQ(portable_exp(-2.25), 0x1.afb718e8457f8p-4);
  EXPECT_EQ(portable_turn(0.3).sine, 0x1.e6f0e134455p-1);
}

// Checkpoints, golden curves and papers' tables rest on these bits. Keys, uniforms and integers were computed
// by an independent implementation of Philox in exact integers; the normals agree with libm's to 2 units in
// the last place.
TEST(Random, DrawsNeverChange) {
  const RandomKey key = random_key(1, "init");
  EXPECT_EQ(key.words[0], 0xd003fe56u);
  EXPECT_EQ(key.words[1], 0x5375ff52u);
  EXPECT_EQ(random_key(~0ull, "dropout:h.0.attention.drop").words[1], 0x9ecca478u);
  EXPECT_EQ(random_uniform(key, 2, 3), 0x1.465c5c9884d25p-1);
  EXPECT_EQ(random_below(key, 2, 3, 1000003), 637425u);
  EXPECT_EQ(random_normal(key, 2, 3), -0x1.6d357afd96ce4p-1);
  EXPECT_EQ(random_normal(key, 2, 4), -0x1.267503f5f9cb5p+0);
}

}  // namespace
}  // namespace tenon
