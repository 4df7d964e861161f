// Element-by-element operators: the bits of the formulas, the stated bounds of the functions, any split of
// the range.
#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/philox.hpp>

#include <bit>
#include <limits>

#include "testing.hpp"

namespace tenon::kernels::elementwise_test {
namespace {

using namespace testing;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Distance from the exact value in units in the last place of the float nearest to it.
double ulps(float value, double exact) {
  const float nearest = std::abs(static_cast<float>(exact));
  if (nearest == kInf) return value == static_cast<float>(exact) ? 0.0 : 1e9;
  const double unit = std::nextafter(nearest, kInf) - static_cast<double>(nearest);
  return std::abs(static_cast<double>(value) - exact) / unit;
}

struct FunctionCase {
  const char* name;
  void (*ElementwiseOps<float>::*kernel)(const float*, float*, std::int64_t);
  double (*exact)(double);
  double bound;
  float low, high;  ///< range that is walked through the float bit patterns
};

const FunctionCase kFunctions[] = {
    {"exp", &ElementwiseOps<float>::exp, std::exp, kExpUlp, 0x1p-30f, 88.7f},
    {"exp", &ElementwiseOps<float>::exp, std::exp, kExpUlp, -87.3f, -0x1p-30f},
    {"log", &ElementwiseOps<float>::log, std::log, kLogUlp, 0x1p-149f, std::numeric_limits<float>::max()},
    {"log near 1", &ElementwiseOps<float>::log, std::log, kLogUlp, 0.9f, 1.1f},
    {"tanh", &ElementwiseOps<float>::tanh, std::tanh, kTanhUlp, 0x1p-126f, 50.0f},
    {"tanh", &ElementwiseOps<float>::tanh, std::tanh, kTanhUlp, -50.0f, -0x1p-126f},
    {"erf", &ElementwiseOps<float>::erf, std::erf, kErfUlp, 0x1p-120f, 50.0f},
    {"erf", &ElementwiseOps<float>::erf, std::erf, kErfUlp, -50.0f, -0x1p-120f},
};

// About 200000 floats per function, evenly spread over bit patterns, so that each exponent occurs equally
// often.
TEST(Functions, StayWithinTheirBounds) {
  for (const FunctionCase& c : kFunctions) {
    std::uint32_t from = std::bit_cast<std::uint32_t>(c.low), to = std::bit_cast<std::uint32_t>(c.high);
    if (from > to) std::swap(from, to);
    const std::uint32_t stride = std::max(1u, (to - from) / 200003u);
    std::vector<float> x;
    for (std::uint64_t bits = from; bits <= to; bits += stride)
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    SameAcrossFusingSets<float> same;
    for (const KernelTable* set : all_sets()) {
      std::vector<float> y(x.size());
      (set->f32.elementwise.*c.kernel)(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
      double worst = 0.0;
      float at = 0.0f;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = ulps(y[i], c.exact(static_cast<double>(x[i])));
        if (!(error <= worst)) worst = error, at = x[i];
      }
      EXPECT_LE(worst, c.bound) << set->name << " " << c.name << " at " << at;
      RecordProperty(std::string(set->name) + "_" + c.name, std::to_string(worst));
      same.see(*set, y);
    }
  }
}

TEST(Functions, ExpIsGradualBelowTheSmallestNormal) {
  std::vector<float> x;
  for (float v = -87.0f; v > -110.0f; v -= 0.01f) x.push_back(v);
  for (const KernelTable* set : all_sets()) {
    std::vector<float> y(x.size());
    set->f32.elementwise.exp(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      EXPECT_LE(std::abs(static_cast<double>(y[i]) - exact), std::max(0x1p-149, exact * 0x1p-22))
          << set->name << " " << x[i];
    }
  }
}

TEST(Functions, SpecialValues) {
  const struct {
    void (*ElementwiseOps<float>::*kernel)(const float*, float*, std::int64_t);
    float x, y;
  } cases[] = {
      {&ElementwiseOps<float>::exp, kInf, kInf},    {&ElementwiseOps<float>::exp, -kInf, 0.0f},
      {&ElementwiseOps<float>::exp, 0.0f, 1.0f},    {&ElementwiseOps<float>::exp, 200.0f, kInf},
      {&ElementwiseOps<float>::exp, -3e38f, 0.0f},  {&ElementwiseOps<float>::exp, kNan, kNan},
      {&ElementwiseOps<float>::log, kInf, kInf},    {&ElementwiseOps<float>::log, 0.0f, -kInf},
      {&ElementwiseOps<float>::log, -0.0f, -kInf},  {&ElementwiseOps<float>::log, -1.0f, kNan},
      {&ElementwiseOps<float>::log, -kInf, kNan},   {&ElementwiseOps<float>::log, 1.0f, 0.0f},
      {&ElementwiseOps<float>::log, kNan, kNan},    {&ElementwiseOps<float>::tanh, kInf, 1.0f},
      {&ElementwiseOps<float>::tanh, -kInf, -1.0f}, {&ElementwiseOps<float>::tanh, kNan, kNan},
      {&ElementwiseOps<float>::tanh, 0.0f, 0.0f},   {&ElementwiseOps<float>::erf, kInf, 1.0f},
      {&ElementwiseOps<float>::erf, -kInf, -1.0f},  {&ElementwiseOps<float>::erf, kNan, kNan},
      {&ElementwiseOps<float>::erf, 0.0f, 0.0f},
  };
  for (const KernelTable* set : all_sets())
    for (const auto& c : cases) {
      float y = 7.0f;
      (set->f32.elementwise.*c.kernel)(&c.x, &y, 1);
      if (std::isnan(c.y))
        EXPECT_TRUE(std::isnan(y)) << set->name << " " << c.x << " gave " << y;
      else
        EXPECT_EQ(y, c.y) << set->name << " " << c.x;
    }
}

template <class S>
struct ElementwiseTest : ::testing::Test {};
TYPED_TEST_SUITE(ElementwiseTest, Storages);

// Where the formula fixes each rounding, every set has the bits of the reference, at every length and offset.
TYPED_TEST(ElementwiseTest, FormulasGiveTheSameBitsInEverySet) {
  using S = TypeParam;
  for (const std::size_t n : {0, 1, 15, 16, 17, 63, 130}) {
    const auto a = random_values<S>(n, 1, -3, 3), b = random_values<S>(n, 2, -3, 3);
    const auto bias = random_values<float>(n, 3);
    const auto run = [&](const KernelTable& set) {
      const auto& e = ops<S>(set).elementwise;
      const auto count = static_cast<std::int64_t>(n);
      std::vector<S> all;
      const auto keep = [&](auto call) {
        std::vector<S> y = b;
        call(y.data());
        all.insert(all.end(), y.begin(), y.end());
      };
      keep([&](S* y) { e.add(a.data(), b.data(), y, count); });
      keep([&](S* y) { e.scale(0.3f, a.data(), y, count); });
      keep([&](S* y) { e.axpy(-1.7f, a.data(), y, count); });
      keep([&](S* y) { e.lerp(0.2f, a.data(), b.data(), y, count); });
      keep([&](S* y) { e.fill(0.1f, y, count); });
      keep([&](S* y) { e.add_bias(a.data(), bias.data(), y, 1, count); });
      for (const std::uint64_t first : {0ull, 1ull, 62ull, (1ull << 34) - 3})
        keep([&](S* y) {
          e.dropout(0x1234567890abcdefull, first, dropout_threshold(0.3), 1.0f / 0.7f, a.data(), y, count);
        });
      return all;
    };
    const auto expected = run(reference_kernels());
    for (const KernelTable* set : all_sets())
      EXPECT_TRUE(same_bits(run(*set), expected)) << set->name << " n " << n;
  }
}

TYPED_TEST(ElementwiseTest, BiasIsAddedToEachRow) {
  using S = TypeParam;
  const auto x = random_values<S>(5 * 37, 4);
  const auto bias = random_values<float>(37, 5);
  for (const KernelTable* set : all_sets()) {
    std::vector<S> y(x.size());
    ops<S>(*set).elementwise.add_bias(x.data(), bias.data(), y.data(), 5, 37);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(reference::get(y[i]), reference::get(reference::put<S>(reference::get(x[i]) + bias[i % 37])));
  }
}

struct GeluCase {
  const char* name;
  bool backward, exact;
};

// Forward: 0.5 a (1 + f(u)) cancels for negative a, so the bound is absolute in |a|: error of f (bound in ulp
// of 1, plus that of its argument, whose effect f' |u| u_r is below 1 ulp) and three roundings. Backward adds
// the bell, below 1.2.
TYPED_TEST(ElementwiseTest, GeluStaysWithinItsBound) {
  using S = TypeParam;
  std::vector<S> x = random_values<S>(4000, 6, -12, 12), small = random_values<S>(100, 7, -1e-3, 1e-3);
  x.insert(x.end(), small.begin(), small.end());
  const auto dy = random_values<S>(x.size(), 8);
  const auto xd = to_double(x), dyd = to_double(dy);
  const auto n = static_cast<std::int64_t>(x.size());
  const auto& wide = reference_double_kernels().f64.elementwise;
  for (const GeluCase& c :
       {GeluCase{"tanh", false, false}, {"tanh'", true, false}, {"erf", false, true}, {"erf'", true, true}}) {
    std::vector<double> exact(x.size());
    if (c.backward)
      (c.exact ? wide.gelu_erf_backward : wide.gelu_tanh_backward)(xd.data(), dyd.data(), exact.data(), n);
    else
      (c.exact ? wide.gelu_erf_forward : wide.gelu_tanh_forward)(xd.data(), exact.data(), n);
    SameAcrossFusingSets<S> same;
    for (const KernelTable* set : all_sets()) {
      const auto& e = ops<S>(*set).elementwise;
      std::vector<S> y(x.size());
      if (c.backward)
        (c.exact ? e.gelu_erf_backward : e.gelu_tanh_backward)(x.data(), dy.data(), y.data(), n);
      else
        (c.exact ? e.gelu_erf_forward : e.gelu_tanh_forward)(x.data(), y.data(), n);
      EXPECT_TRUE(within(
          y, exact,
          [&](std::size_t i) {
            const double size = c.backward ? std::abs(dyd[i]) * (1.0 + std::abs(xd[i])) : std::abs(xd[i]);
            return 8 * kFloatRoundoff * size + (sizeof(S) == 2 ? kBf16Roundoff * std::abs(exact[i]) : 0.0);
          }))
          << set->name << " " << c.name;
      same.see(*set, y);
    }
  }
}

// One exponential (2 ulp, as is its effect on the quotient), a sum and a quotient: 8 roundings cover them,
// and the factor 1 + |x| of the slope.
TYPED_TEST(ElementwiseTest, SiluStaysWithinItsBound) {
  using S = TypeParam;
  const std::vector<S> x = random_values<S>(4000, 6, -30, 30), dy = random_values<S>(x.size(), 8);
  const auto xd = to_double(x), dyd = to_double(dy);
  const auto n = static_cast<std::int64_t>(x.size());
  const auto& wide = reference_double_kernels().f64.elementwise;
  for (const bool backward : {false, true}) {
    std::vector<double> exact(x.size());
    if (backward)
      wide.silu_backward(xd.data(), dyd.data(), exact.data(), n);
    else
      wide.silu_forward(xd.data(), exact.data(), n);
    SameAcrossFusingSets<S> same;
    for (const KernelTable* set : all_sets()) {
      const auto& e = ops<S>(*set).elementwise;
      std::vector<S> y(x.size());
      if (backward)
        e.silu_backward(x.data(), dy.data(), y.data(), n);
      else
        e.silu_forward(x.data(), y.data(), n);
      EXPECT_TRUE(within(
          y, exact,
          [&](std::size_t i) {
            const double size = backward ? std::abs(dyd[i]) * (1 + std::abs(xd[i])) : std::abs(exact[i]);
            return 8 * kFloatRoundoff * size + (sizeof(S) == 2 ? kBf16Roundoff * std::abs(exact[i]) : 0.0);
          }))
          << set->name << (backward ? " backward" : " forward");
      same.see(*set, y);
    }
  }
}

TEST(Gelu, HugeInputsHaveFiniteSlopes) {
  const std::vector<float> x = {1e20f, -1e20f, 3e38f, -3e38f}, dy = {1, 1, 1, 1};
  for (const KernelTable* set : all_sets()) {
    if (std::string_view(set->name) == "reference") continue;  // the plain formula overflows there
    std::vector<float> dx(4);
    set->f32.elementwise.gelu_tanh_backward(x.data(), dy.data(), dx.data(), 4);
    EXPECT_EQ(dx, (std::vector<float>{1, 0, 1, 0})) << set->name;
    set->f32.elementwise.gelu_erf_backward(x.data(), dy.data(), dx.data(), 4);
    EXPECT_EQ(dx, (std::vector<float>{1, 0, 1, 0})) << set->name;
  }
}

TEST(Dropout, MaskDependsOnTheGlobalIndexAlone) {
  const std::vector<float> ones(1000, 1.0f);
  for (const KernelTable* set : all_sets()) {
    std::vector<float> whole(1000), pieces(1000);
    const auto& e = set->f32.elementwise;
    e.dropout(99, 5, dropout_threshold(0.25), 4.0f / 3.0f, ones.data(), whole.data(), 1000);
    for (std::int64_t begin = 0, length = 1; begin < 1000; begin += length, length = length % 97 + 6) {
      length = std::min<std::int64_t>(length, 1000 - begin);
      e.dropout(99, 5 + static_cast<std::uint64_t>(begin), dropout_threshold(0.25), 4.0f / 3.0f,
                ones.data() + begin, pieces.data() + begin, length);
    }
    EXPECT_TRUE(same_bits(pieces, whole)) << set->name;
    for (std::size_t i = 0; i < 1000; ++i)
      EXPECT_EQ(whole[i] != 0.0f, philox_word(99, 5 + i) >= 0x40000000u) << set->name << " " << i;
  }
}

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, KnownAnswers) {
  const std::uint32_t zero[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(philox_word(0, i), zero[i]);
}

TEST(Bf16, ConversionRoundsToNearestEven) {
  const struct {
    std::uint32_t f32;
    std::uint16_t bf16;
  } cases[] = {
      {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
      {0x3f817fff, 0x3f81}, {0x7f7fffff, 0x7f80}, {0xff7f8000, 0xff80}, {0x7f800000, 0x7f80},
      {0x7f800001, 0x7fc0}, {0xff812345, 0xffc1}, {0x7fffffff, 0x7fff}, {0x00000001, 0x0000},
      {0x80008000, 0x8000}, {0x80018000, 0x8002}, {0x00008001, 0x0001},
  };
  for (const auto& c : cases)
    EXPECT_EQ(to_bf16(std::bit_cast<float>(c.f32)).bits, c.bf16) << std::hex << c.f32;
}

TEST(Bf16, VectorConversionGivesTheSameBits) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 16411)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  const auto n = static_cast<std::int64_t>(x.size());
  for (const KernelTable* set : all_sets()) {
    std::vector<Bf16> y(x.size());
    set->convert.f32_to_bf16(x.data(), y.data(), n);
    std::vector<float> back(x.size());
    set->convert.bf16_to_f32(y.data(), back.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i].bits, to_bf16(x[i]).bits) << set->name << " " << std::hexfloat << x[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::uint32_t{y[i].bits} << 16) << set->name;
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::elementwise_test
