// The randomised Hadamard transform of 16 elements.
#include <tenon/kernels/hadamard.hpp>

#include <array>

#include "testing.hpp"

namespace tenon::kernels::hadamard_test {
namespace {

using Vector = std::array<float, 16>;

/// Row i is the transform of unit vector i.
std::array<Vector, 16> matrix() {
  std::array<Vector, 16> h = {};
  for (std::size_t i = 0; i < 16; ++i) {
    h[i][i] = 1.0f;
    rotate16(h[i].data());
  }
  return h;
}

Vector random_bf16(std::mt19937& generator) {
  std::normal_distribution<float> draw;
  Vector v;
  for (float& x : v) x = to_float(to_bf16(draw(generator)));
  return v;
}

double norm(const Vector& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

TEST(Hadamard, P17_IsOrthogonalWithEntriesOfAQuarter) {
  const auto h = matrix();
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j) {
      EXPECT_EQ(std::abs(h[i][j]), 0.25f);
      float product = 0;
      for (std::size_t k = 0; k < 16; ++k) product += h[i][k] * h[j][k];
      EXPECT_EQ(product, i == j ? 1.0f : 0.0f) << i << " " << j;
    }
}

TEST(Hadamard, P17_SignsAndOrderAreThePublishedOnes) {
  constexpr std::array<int, 16> signs = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  const auto h = matrix();
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j) {
      const int sylvester = std::popcount(i & j) % 2 == 0 ? 1 : -1;
      EXPECT_EQ(h[i][j], 0.25f * static_cast<float>(signs[i] * sylvester)) << i << " " << j;
    }
  EXPECT_EQ(kHadamardSigns, 0xD7E8u);
}

// Small integers: every sum and quotient is exact, also in bfloat16.
TEST(Hadamard, P18_ProductsAreKeptExactly) {
  std::mt19937 generator(18);
  std::uniform_int_distribution<int> draw(-8, 8);
  for (int trial = 0; trial < 1000; ++trial) {
    Vector a, b;
    for (std::size_t i = 0; i < 16; ++i) {
      a[i] = static_cast<float>(draw(generator));
      b[i] = static_cast<float>(draw(generator));
    }
    float plain = 0, rotated = 0;
    for (std::size_t i = 0; i < 16; ++i) plain += a[i] * b[i];
    rotate16(a.data());
    rotate16(b.data());
    for (std::size_t i = 0; i < 16; ++i) rotated += a[i] * b[i];
    ASSERT_EQ(rotated, plain);
  }
}

TEST(Hadamard, P18_NormsAreKeptWithinBf16Rounding) {
  std::mt19937 generator(19);
  for (int trial = 0; trial < 1000; ++trial) {
    Vector v = random_bf16(generator);
    const double before = norm(v);
    rotate16(v.data());
    ASSERT_NEAR(norm(v), before, before * testing::kBf16Roundoff);
    for (const float x : v) ASSERT_EQ(to_float(to_bf16(x)), x);
  }
}

TEST(Hadamard, P19_SpreadsOutliersAndCollapsesItsOwnSigns) {
  for (std::size_t i = 0; i < 16; ++i) {
    Vector one = {};
    one[i] = 96.0f;
    rotate16(one.data());
    for (const float x : one) EXPECT_EQ(std::abs(x), 24.0f);
  }
  Vector signs, ones;
  for (std::size_t i = 0; i < 16; ++i) {
    signs[i] = (kHadamardSigns >> i & 1u) != 0 ? -3.0f : 3.0f;
    ones[i] = 3.0f;
  }
  rotate16(signs.data());
  rotate16(ones.data());
  for (std::size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(signs[j], j == 0 ? 12.0f : 0.0f) << j;
    EXPECT_LE(std::abs(ones[j]), 6.0f) << j;  // without the signs, 12 in lane 0
  }
}

}  // namespace
}  // namespace tenon::kernels::hadamard_test
