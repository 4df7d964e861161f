// Direct transforms on the host launcher: the formulas of the maps, summed plainly in double, within a bound;
// and bits that depend on a line alone, whatever its layout and whether its matrix is stored.
#include "testing.hpp"

#include <tenon/kernels/cuda/fft.hpp>

#include <complex>

namespace tenon::kernels::cuda::fft_test {
namespace {

using testing::random_values;
using testing::same_bits;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
constexpr double kPi = 3.14159265358979323846;

struct Case {
  std::int64_t length, low, high;
  bool real;
  std::int64_t outer = 2, inner = 3;

  std::int64_t kept() const { return low + high; }
  std::int64_t lines() const { return outer * inner; }
  FftSide points() const { return {length, inner, real ? 1 : 2}; }
  FftSide modes() const { return {kept(), inner, 2}; }
};
// Whole spectra and few modes; tiles of lines, terms and results that are partial, filled and several.
constexpr Case kCases[] = {{1, 1, 0, true},           {8, 5, 0, true, 1, 1},    {7, 4, 0, true},
                           {32, 16, 0, true, 64, 1},  {75, 20, 0, true, 1, 70}, {6, 3, 3, false},
                           {131, 2, 3, false, 67, 1}, {40, 17, 4, false, 3, 23}};

std::vector<double> waves_of(std::int64_t length) {
  std::vector<double> waves;
  for (std::int64_t n = 0; n < length; ++n) {
    const double angle = 2 * kPi * static_cast<double>(n) / static_cast<double>(length);
    waves.push_back(std::cos(angle)), waves.push_back(std::sin(angle));
  }
  return waves;
}

/// S: a real of a point. Maps reals of points to those of modes, or back.
template <class S, class From, class To, class T = Arith<S>>
std::vector<To> transform(const Case& c, bool to_modes, bool inverse, const std::vector<From>& in,
                          bool accumulate, std::vector<To> out, LaunchOrder order, bool stored) {
  const std::vector<double> waves = waves_of(c.length);
  const FftModes modes{c.length, c.low, c.kept(), c.real, inverse};
  const FftSide from = to_modes ? c.points() : c.modes(), to = to_modes ? c.modes() : c.points();
  const ComputedMatrix<T> computed{{waves.data(), modes}};
  std::vector<T> elements;
  for (std::int64_t p = 0; p < c.points().reals(); ++p)
    for (std::int64_t q = 0; q < c.modes().reals(); ++q) elements.push_back(computed(p, q));
  const auto launch = [&](const auto& matrix) {
    const DirectFft<From, To, T, std::decay_t<decltype(matrix)>> body{
        in.data(), out.data(), from, to, matrix, modes, c.lines(), to_modes, accumulate};
    launch_on_host(body.mesh(), body, order);
  };
  if (stored) {
    launch(StoredMatrix<T>{elements.data(), c.modes().reals()});
  } else {
    launch(computed);
  }
  return out;
}

/// The maps of the contract, and the sum of the magnitudes of a result's terms.
struct Exact {
  std::vector<double> value, magnitude;
};
Exact exact(const Case& c, bool to_modes, bool inverse, const std::vector<double>& in) {
  const FftSide from = to_modes ? c.points() : c.modes(), to = to_modes ? c.modes() : c.points();
  const std::size_t size = c.lines() * to.reals();
  Exact result{std::vector<double>(size), std::vector<double>(size)};
  const auto part = [](const FftSide& side, std::int64_t line, std::int64_t element, std::int64_t which) {
    return static_cast<std::size_t>(side.place(line, element * side.pair + which));
  };
  for (std::int64_t line = 0; line < c.lines(); ++line)
    for (std::int64_t j = 0; j < c.kept(); ++j)
      for (std::int64_t n = 0; n < c.length; ++n) {
        const std::int64_t k = j < c.low ? j : c.length - c.kept() + j;
        const bool own = c.real && (k == 0 || 2 * k == c.length);
        const double factor = inverse ? (c.real && !own ? 2.0 : 1.0) / static_cast<double>(c.length) : 1.0;
        const std::complex<double> wave =
            std::polar(factor, (to_modes ? -2 : 2) * kPi * static_cast<double>(k * n % c.length) /
                                   static_cast<double>(c.length));
        const std::int64_t source = to_modes ? n : j, target = to_modes ? j : n;
        std::complex<double> x(in[part(from, line, source, 0)],
                               from.pair == 2 ? in[part(from, line, source, 1)] : 0.0);
        if (!to_modes && own) x.imag(0);
        std::complex<double> term = x * wave;
        if (to_modes && own) term.imag(0);
        const double parts[] = {term.real(), term.imag()};
        for (std::int64_t which = 0; which < to.pair; ++which) {
          result.value[part(to, line, target, which)] += parts[which];
          result.magnitude[part(to, line, target, which)] +=
              factor * (std::abs(x.real()) + std::abs(x.imag()));
        }
      }
  return result;
}

template <class S>
struct CudaFftTest : ::testing::Test {
  static constexpr double kUnit = sizeof(Arith<S>) == 8 ? 0x1p-53 : 0x1p-24;
  static constexpr double kStored = sizeof(S) == 8 ? 0x1p-53 : testing::roundoff<S>();
};
using Storages = ::testing::Types<float, Bf16, double>;
TYPED_TEST_SUITE(CudaFftTest, Storages);

template <class S, class From, class To>
void expect_map(const Case& c, bool to_modes, bool inverse, double unit, double stored_unit) {
  const FftSide from = to_modes ? c.points() : c.modes(), to = to_modes ? c.modes() : c.points();
  const auto in = random_values<From>(static_cast<std::size_t>(c.lines() * from.reals()), 1);
  const auto before = random_values<To>(static_cast<std::size_t>(c.lines() * to.reals()), 2);
  const Exact expected = exact(c, to_modes, inverse, testing::to_double(in));
  const auto y = transform<S>(c, to_modes, inverse, in, false, before, LaunchOrder::kAscending, true);
  const std::string where = "length " + std::to_string(c.length) + ", kept " + std::to_string(c.kept()) +
                            (to_modes ? ", to modes" : ", to points") + (inverse ? ", inverse" : "");
  // A term is rounded as an element of the matrix, as a product, in the sum of its piece of at most 32, and
  // in the sum of the pieces. The reference errs likewise, by units of double of at most 2 length terms.
  const double pieces = static_cast<double>((from.reals() + 31) / 32);
  const auto bound = [&](std::size_t i) {
    const double sum = ((2 + 32 + pieces) * unit + static_cast<double>(4 * c.length + 8) * 0x1p-53) * 1.01 *
                       expected.magnitude[i];
    return sum + (std::is_same_v<To, S> ? stored_unit : 0) * (std::abs(expected.value[i]) + sum);
  };
  EXPECT_TRUE(testing::within(y, expected.value, bound)) << where;
  for (const LaunchOrder order : kOrders)
    for (const bool stored : {false, true}) {
      EXPECT_TRUE(same_bits(transform<S>(c, to_modes, inverse, in, false, before, order, stored), y))
          << where;
      const auto sum = transform<S>(c, to_modes, inverse, in, true, before, order, stored);
      if constexpr (std::is_same_v<To, Arith<S>>) {
        for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(sum[i], before[i] + y[i]) << where;
      }
    }
}

TYPED_TEST(CudaFftTest, MapsAreThoseOfTheContract) {
  using S = TypeParam;
  for (const Case& c : kCases) {
    if (!c.real && sizeof(S) == sizeof(Bf16)) continue;
    for (const bool inverse : {false, true}) {
      expect_map<S, S, Arith<S>>(c, true, inverse, this->kUnit, this->kStored);
      expect_map<S, Arith<S>, S>(c, false, inverse, this->kUnit, this->kStored);
    }
  }
}

TYPED_TEST(CudaFftTest, ALineHasTheSameBitsWhereverItLies) {
  using S = TypeParam;
  using T = Arith<S>;
  for (const bool to_modes : {false, true}) {
    const Case many{75, 20, 0, true, 3, 30};
    Case one = many;
    one.outer = one.inner = 1;
    const auto check = [&]<class From, class To>(From, To) {
      const FftSide from = to_modes ? many.points() : many.modes(),
                    to = to_modes ? many.modes() : many.points();
      const auto in = random_values<From>(static_cast<std::size_t>(many.lines() * from.reals()), 1);
      const auto all =
          transform<S>(many, to_modes, true, in, false, std::vector<To>(many.lines() * to.reals()),
                       LaunchOrder::kAscending, true);
      for (const std::int64_t line : {0, 31, 63, 64, 89}) {
        std::vector<From> own_in;
        std::vector<To> own_out;
        for (std::int64_t i = 0; i < from.reals(); ++i) own_in.push_back(in[from.place(line, i)]);
        for (std::int64_t i = 0; i < to.reals(); ++i) own_out.push_back(all[to.place(line, i)]);
        EXPECT_TRUE(same_bits(transform<S>(one, to_modes, true, own_in, false,
                                           std::vector<To>(own_out.size()), LaunchOrder::kAscending, true),
                              own_out))
            << "line " << line;
      }
    };
    if (to_modes) {
      check(S{}, T{});
    } else {
      check(T{}, S{});
    }
  }
}

TYPED_TEST(CudaFftTest, ImaginaryPartsOfOwnConjugatesAreNeitherReadNorWritten) {
  using S = TypeParam;
  using T = Arith<S>;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const Case c{8, 5, 0, true, 1, 1};
  auto modes = random_values<T>(10, 1);
  const std::vector<S> none(8);
  const auto expected = transform<S>(c, false, true, modes, false, none, LaunchOrder::kAscending, true);
  modes[1] = modes[9] = nan;
  EXPECT_TRUE(
      same_bits(transform<S>(c, false, true, modes, false, none, LaunchOrder::kAscending, true), expected));
  std::vector<S> points = none;
  points[3] = put<S>(nan);
  const auto z =
      transform<S>(c, true, false, points, false, std::vector<T>(10), LaunchOrder::kAscending, true);
  EXPECT_EQ(z[1], T{0});
  EXPECT_EQ(z[9], T{0});
  EXPECT_NE(z[3], z[3]);
}

}  // namespace
}  // namespace tenon::kernels::cuda::fft_test
