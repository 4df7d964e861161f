// Packing of lines for a library's transforms on the host launcher: the layout of plain loops, for either
// order of threads, in batches that end within the lines and beyond them.
#include "testing.hpp"

#include <tenon/kernels/cuda/fft_lines.hpp>

namespace tenon::kernels::cuda::fft_lines_test {
namespace {

using testing::random_values;
using testing::same_bits;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
constexpr Grid kGrids[] = {{1, 256}, {5, 64}};

struct Case {
  std::int64_t length, low, high;
  bool real;
  std::int64_t outer, inner;
  bool complex = false;

  std::int64_t kept() const { return low + high; }
  std::int64_t lines() const { return outer * inner; }
  std::int64_t spectrum() const { return real && !complex ? length / 2 + 1 : length; }
  FftSide points() const { return {length, inner, real ? 1 : 2}; }
  FftSide modes() const { return {kept(), inner, 2}; }
  FftModes counted(bool inverse) const { return {length, low, kept(), real, inverse}; }
};
constexpr Case kCases[] = {{8, 5, 0, true, 3, 1},      {7, 3, 0, true, 2, 3}, {6, 3, 3, false, 1, 5},
                           {9, 2, 4, false, 2, 2},     {1, 1, 0, true, 2, 1}, {7, 3, 0, true, 2, 3, true},
                           {9, 5, 0, true, 5, 1, true}};
constexpr std::int64_t kTogether = 4;

std::size_t size(std::int64_t n) {
  return n;
}

template <class Launch>
void for_each_launch(Launch launch) {
  for (const Grid& grid : kGrids)
    for (const LaunchOrder order : kOrders) launch(grid, order);
}

template <class S>
struct CudaFftLinesTest : ::testing::Test {};
using Storages = ::testing::Types<float, Bf16, double>;
TYPED_TEST_SUITE(CudaFftLinesTest, Storages);

TYPED_TEST(CudaFftLinesTest, PointsComeAndGoLineByLine) {
  using S = TypeParam;
  using T = Arith<S>;
  for (const Case& c : kCases)
    for_each_launch([&](const Grid& grid, LaunchOrder order) {
      const FftSide side = c.points();
      const auto points = random_values<S>(size(c.lines() * side.reals()), 1);
      std::vector<S> back(points.size()), sum = points, twice = points;
      for (S& value : twice) value = put<S>(get(value) + get(value));
      for (std::int64_t first = 0; first < c.lines(); first += kTogether) {
        const FftBatch batch{first, kTogether, c.lines(), c.complex};
        const std::int64_t step = c.complex ? 2 : 1;
        auto packed = random_values<T>(size(kTogether * side.reals() * step), 2);
        launch_on_host(grid, PackPoints<S, T>{points.data(), packed.data(), side, batch}, order);
        for (std::int64_t i = 0; i < kTogether * side.reals(); ++i) {
          if (c.complex) {
            ASSERT_EQ(packed[size(2 * i + 1)], T{0});
          }
          const std::int64_t line = first + i / side.reals(), element = i % side.reals() / side.pair,
                             part = i % side.pair,
                             at = ((line / c.inner * c.length + element) * c.inner + line % c.inner) *
                                      side.pair +
                                  part;
          ASSERT_EQ(packed[size(i * step)], line < c.lines() ? get(points[size(at)]) : T{0});
        }
        launch_on_host(grid, UnpackPoints<S, T>{packed.data(), back.data(), side, batch, false}, order);
        launch_on_host(grid, UnpackPoints<S, T>{packed.data(), sum.data(), side, batch, true}, order);
      }
      EXPECT_TRUE(same_bits(back, points));
      EXPECT_TRUE(same_bits(sum, twice));
    });
}

TYPED_TEST(CudaFftLinesTest, ModesLieWhereTheSpectrumHasThem) {
  using T = Arith<TypeParam>;
  for (const Case& c : kCases)
    for (const bool inverse : {false, true})
      for_each_launch([&](const Grid& grid, LaunchOrder order) {
        const FftSide side = c.modes();
        const FftModes modes = c.counted(inverse);
        const auto z = random_values<T>(size(c.lines() * side.reals()), 1);
        auto back = z;
        for (std::int64_t first = 0; first < c.lines(); first += kTogether) {
          const FftBatch batch{first, kTogether, c.lines(), c.complex};
          auto spectrum = random_values<T>(size(kTogether * 2 * c.spectrum()), 2);
          launch_on_host(grid, PackModes<T>{z.data(), spectrum.data(), side, modes, batch}, order);
          std::vector<T> expected(spectrum.size());
          for (std::int64_t own = 0; own < kTogether && first + own < c.lines(); ++own)
            for (std::int64_t j = 0; j < c.kept(); ++j) {
              const std::int64_t k = j < c.low ? j : c.length - c.kept() + j;
              const bool self = c.real && (k == 0 || 2 * k == c.length);
              const double terms = c.real && !self ? 2 : 1;
              const auto factor = static_cast<T>(inverse ? 1.0 / static_cast<double>(c.length) : 1.0 / terms);
              for (const std::int64_t part : {0, 1})
                if (part == 0 || !self) {
                  const T value = factor * z[size(side.place(first + own, 2 * j + part))];
                  expected[size(2 * (own * c.spectrum() + k) + part)] = value;
                  // The conjugate, which is a mode of its own there.
                  if (c.complex && k > 0)
                    expected[size(2 * (own * c.spectrum() + c.length - k) + part)] =
                        part == 0 ? value : -value;
                }
            }
          EXPECT_TRUE(same_bits(spectrum, expected)) << "length " << c.length;
          launch_on_host(grid, UnpackModes<T>{spectrum.data(), back.data(), side, modes, batch, true}, order);
        }
        for (std::int64_t line = 0; line < c.lines(); ++line)
          for (std::int64_t real = 0; real < side.reals(); ++real) {
            const std::int64_t j = real / 2;
            const bool self = c.real && (j == 0 || 2 * j == c.length);
            const double n = static_cast<double>(c.length), terms = c.real && !self ? 2 : 1;
            const T packed = static_cast<T>(inverse ? 1.0 / n : 1.0 / terms),
                    unpacked = static_cast<T>(inverse ? terms / n : 1.0),
                    before = z[size(side.place(line, real))];
            const T added = self && real % 2 == 1 ? T{0} : unpacked * (packed * before);
            ASSERT_EQ(back[size(side.place(line, real))], before + added) << "length " << c.length;
          }
      });
}

}  // namespace
}  // namespace tenon::kernels::cuda::fft_lines_test
