// Sliding windows against loops over coordinates: copies, their adjoint, pools, in 1 to 3 dimensions.
#include "device_test.hpp"

#include <tenon/ops/convolution.hpp>

#include <array>
#include <functional>

namespace tenon::testing::window_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};
using Point = std::array<std::int64_t, 3>;

struct Case {
  const char* name;
  WindowSpec spec;
};
const Case kCases[] = {
    {"point", {.spatial = 1, .extent = {7}}},
    {"line", {.spatial = 1, .extent = {70}, .kernel = {3}, .stride = {2}, .pad_low = {1}, .pad_high = {0}}},
    {"image", {.extent = {5, 7}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
    {"wide", {.extent = {3, 67}, .kernel = {2, 5}, .stride = {1, 1}, .pad_low = {1, 2}, .pad_high = {0, 2}}},
    {"strided",
     {.extent = {9, 8}, .kernel = {3, 2}, .stride = {2, 3}, .pad_low = {1, 0}, .pad_high = {1, 1}}},
    {"dilated",
     {.extent = {9, 11}, .kernel = {3, 2}, .stride = {1, 2}, .dilation = {2, 3}, .pad_low = {1, 1}}},
    {"apart", {.extent = {8, 8}, .kernel = {2, 2}, .stride = {2, 2}}},
    {"gaps",
     {.extent = {9, 70}, .kernel = {1, 2}, .stride = {4, 3}, .pad_low = {-2, -1}, .pad_high = {-1, -2}}},
    {"whole", {.extent = {4, 5}, .kernel = {4, 5}}},
    {"volume",
     {.spatial = 3,
      .extent = {4, 3, 5},
      .kernel = {2, 3, 2},
      .stride = {1, 2, 2},
      .dilation = {2, 1, 1},
      .pad_low = {1, 1, 0},
      .pad_high = {0, 1, 1}}},
};

Point point_at(std::int64_t flat, const std::int64_t (&extents)[3], int dims) {
  Point point{};
  for (int d = dims - 1; d >= 0; --d) {
    point[d] = flat % extents[d];
    flat /= extents[d];
  }
  return point;
}

/// Calls fn(place, offset, element) for every element inside its window.
void for_windows(const WindowSpec& w,
                 const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& fn) {
  std::int64_t out[3] = {1, 1, 1};
  for (int d = 0; d < w.spatial; ++d) out[d] = w.places(d);
  for (std::int64_t place = 0; place < w.places(); ++place)
    for (std::int64_t offset = 0; offset < w.offsets(); ++offset) {
      const Point p = point_at(place, out, w.spatial), o = point_at(offset, w.kernel, w.spatial);
      std::int64_t element = 0;
      bool inside = true;
      for (int d = 0; d < w.spatial; ++d) {
        const std::size_t i = d;
        const std::int64_t at = p[i] * w.stride[d] + o[i] * w.dilation[d] - w.pad_low[d];
        inside &= at >= 0 && at < w.extent[d];
        element = element * w.extent[d] + at;
      }
      if (inside) fn(place, offset, element);
    }
}

Shape image(const WindowSpec& w, std::int64_t batch, std::int64_t channels, bool places) {
  std::vector<std::int64_t> extents{batch, channels};
  for (int d = 0; d < w.spatial; ++d) extents.push_back(places ? w.places(d) : w.extent[d]);
  return Shape(extents);
}

class Windows : public OnEveryChoice {
 protected:
  WindowOps& ops() { return device_.family<WindowOps>(); }
};

constexpr std::int64_t kBatch = 2, kChannels = 5, kFirst = 1, kUsed = 3;  // channels 1 to 3 of 5

TEST_P(Windows, UnfoldCopiesAndFoldAddsBack) {
  for (const Case& c : kCases)
    for (const DType dtype : kActivations) {
      const auto* name = c.name;
      const WindowSpec& w = c.spec;
      const std::int64_t width = kUsed * w.offsets(), rows = kBatch * w.places();
      const Shape shape = image(w, kBatch, kChannels, false);
      // Small integers: every sum is exact in every dtype.
      const auto x = integers(shape.elements(), 15, "x"), old = integers(shape.elements(), 7, "old");
      const auto values = integers(rows * width, 15, "c");
      std::vector<double> columns(values.size(), 0.0), folded(x.size(), 0.0), added = old;
      for (std::int64_t b = 0; b < kBatch; ++b)
        for (std::int64_t channel = 0; channel < kUsed; ++channel)
          for_windows(w, [&](std::int64_t place, std::int64_t offset, std::int64_t element) {
            const std::size_t at = (b * w.places() + place) * width + channel * w.offsets() + offset;
            const std::size_t from = (b * kChannels + kFirst + channel) * w.elements() + element;
            columns[at] = x[from];
            folded[from] += values[at];
            added[from] += values[at];
          });
      // Channels outside the range stay unchanged.
      for (std::size_t i = 0; i < folded.size(); ++i) {
        const std::int64_t channel = static_cast<std::int64_t>(i) / w.elements() % kChannels;
        if (channel < kFirst || channel >= kFirst + kUsed) folded[i] = old[i];
      }
      Owned x_t(device_, shape, dtype, x), columns_t(device_, Shape{rows, width}, dtype),
          c_t(device_, Shape{rows, width}, dtype, values), out(device_, shape, dtype, old);
      ops().unfold(w, x_t, kFirst, columns_t);
      EXPECT_EQ(columns_t.values(), columns) << name << " " << dtype_name(dtype);
      ops().fold(w, c_t, kFirst, out, false);
      EXPECT_EQ(out.values(), folded) << name << " " << dtype_name(dtype);
      out.fill(old);
      ops().fold(w, c_t, kFirst, out, true);
      EXPECT_EQ(out.values(), added) << name << " " << dtype_name(dtype);
    }
}

TEST_P(Windows, MaximaGoBackToTheFirstGreatest) {
  for (const Case& c : kCases)
    for (const DType dtype : kActivations) {
      const auto* name = c.name;
      const WindowSpec& w = c.spec;
      const Shape in = image(w, kBatch, kChannels, false), out = image(w, kBatch, kChannels, true);
      const auto x = integers(in.elements(), 4, "x"), dy = integers(out.elements(), 15, "dy");  // many ties
      std::vector<double> y(dy.size(), -1.0), index(dy.size(), -1.0), dx(x.size(), 0.0);
      for (std::int64_t plane = 0; plane < kBatch * kChannels; ++plane)
        for_windows(w, [&](std::int64_t place, std::int64_t, std::int64_t element) {
          const std::size_t at = plane * w.places() + place;
          const double value = x[plane * w.elements() + element];
          if (value > y[at]) y[at] = value, index[at] = static_cast<double>(element);
        });
      for (std::size_t i = 0; i < dy.size(); ++i)
        dx[i / static_cast<std::size_t>(w.places()) * static_cast<std::size_t>(w.elements()) +
           static_cast<std::size_t>(index[i])] += dy[i];
      Owned x_t(device_, in, dtype, x), y_t(device_, out, dtype), index_t(device_, out, DType::kI32),
          dy_t(device_, out, dtype, dy), dx_t(device_, in, dtype, x);
      ops().max_pool(w, x_t, y_t, index_t);
      EXPECT_EQ(y_t.values(), y) << name << " " << dtype_name(dtype);
      EXPECT_EQ(index_t.values(), index) << name << " " << dtype_name(dtype);
      ops().max_pool_backward(w, index_t, dy_t, dx_t, false);
      EXPECT_EQ(dx_t.values(), dx) << name << " " << dtype_name(dtype);
      ops().max_pool_backward(w, index_t, dy_t, dx_t, true);
      for (double& value : dx) value *= 2;
      EXPECT_EQ(dx_t.values(), dx) << name << " " << dtype_name(dtype);
    }
}

TEST_P(Windows, AMaximumKeepsANaN) {
  const double nan = std::nan("");
  for (const std::int64_t stride : {1, 2})  // kernels may have loops of their own for windows side by side
    for (const DType dtype : kActivations) {
      const WindowSpec w{.extent = {2, 2}, .kernel = {2, 2}, .stride = {stride, stride}};
      Owned x(device_, Shape{1, 1, 2, 2}, dtype, {1, nan, 7, nan}), y(device_, Shape{1, 1, 1, 1}, dtype),
          index(device_, Shape{1, 1, 1, 1}, DType::kI32);
      ops().max_pool(w, x, y, index);
      EXPECT_TRUE(std::isnan(y.values()[0])) << dtype_name(dtype) << " stride " << stride;
      EXPECT_EQ(index.values()[0], 1) << dtype_name(dtype) << " stride " << stride;
    }
}

TEST_P(Windows, AveragesDivideByWhatTheyCount) {
  for (const Case& c : kCases)
    for (const DType dtype : kActivations)
      for (const bool count_padding : {true, false}) {
        const auto* name = c.name;
        const WindowSpec& w = c.spec;
        const Shape in = image(w, kBatch, kChannels, false), out = image(w, kBatch, kChannels, true);
        const auto x = numbers(in.elements(), "x", dtype), dy = numbers(out.elements(), "dy", dtype);
        std::vector<double> counts(w.places(), 0.0), y(dy.size(), 0.0), dx(x.size(), 0.0);
        for_windows(w, [&](std::int64_t place, std::int64_t, std::int64_t) { counts[place]++; });
        if (count_padding) std::fill(counts.begin(), counts.end(), static_cast<double>(w.offsets()));
        for (std::int64_t plane = 0; plane < kBatch * kChannels; ++plane)
          for_windows(w, [&](std::int64_t place, std::int64_t, std::int64_t element) {
            const auto at = static_cast<std::size_t>(plane * w.places() + place),
                       from = static_cast<std::size_t>(plane * w.elements() + element);
            y[at] += x[from] / counts[place];
            dx[from] += dy[at] / counts[place];
          });
        Owned x_t(device_, in, dtype, x), y_t(device_, out, dtype), dy_t(device_, out, dtype, dy),
            dx_t(device_, in, dtype, x);
        // A chain of at most 20 additions and a division, then one rounding to the stored dtype.
        const double bound = 32 * unit(arithmetic(dtype)) + 1.01 * unit(dtype);
        ops().average_pool(w, x_t, count_padding, y_t);
        EXPECT_LE(relative_error(y_t.values(), y), bound) << name << " " << dtype_name(dtype);
        ops().average_pool_backward(w, dy_t, count_padding, dx_t, false);
        EXPECT_LE(relative_error(dx_t.values(), dx), bound) << name << " " << dtype_name(dtype);
      }
}

/// 37 points: chains side by side, and what is left over. A sum of n terms is off by at most n half units of
/// the sum of magnitudes, in any order (Higham, Accuracy and Stability, 3.1).
TEST_P(Windows, BiasesAreTheirChannels) {
  constexpr std::int64_t kSamples = 5, kPoints = 37;
  for (const DType dtype : kActivations) {
    const Shape shape{kSamples, kChannels, kPoints};
    const auto x = numbers(shape.elements(), "x", dtype), values = numbers(kChannels, "values", dtype);
    Owned x_t(device_, shape, dtype, x), filled(device_, shape, dtype),
        bias(device_, Shape{kChannels}, arithmetic(dtype), values);
    ops().fill_channels(bias, filled);
    const auto found = filled.values();
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], values[i / kPoints % kChannels]) << dtype_name(dtype) << ", element " << i;
    for (const bool accumulate : {false, true}) {
      std::vector<double> sums(kChannels), magnitudes(kChannels);
      for (std::size_t i = 0; i < x.size(); ++i) {
        sums[i / kPoints % kChannels] += x[i];
        magnitudes[i / kPoints % kChannels] += std::abs(x[i]);
      }
      bias.fill(values);
      ops().sum_channels(x_t, bias, accumulate);
      const auto totals = bias.values();
      for (std::size_t c = 0; c < sums.size(); ++c) {
        const double expected = sums[c] + (accumulate ? values[c] : 0),
                     size = magnitudes[c] + std::abs(values[c]);
        EXPECT_LE(std::abs(totals[c] - expected), (kPoints + 3) * unit(arithmetic(dtype)) * size)
            << dtype_name(dtype) << ", channel " << c << (accumulate ? ", added" : "");
      }
    }
  }
}

TEST_P(Windows, NotDependOnThreads) {
  const WindowSpec w{
      .extent = {33, 35}, .kernel = {3, 3}, .stride = {2, 1}, .pad_low = {1, 1}, .pad_high = {1, 1}};
  const Shape in = image(w, 3, 20, false), out = image(w, 3, 20, true);
  for (const DType dtype : kActivations) {
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Owned x(device_, in, dtype, numbers(in.elements(), "x", dtype)), y(device_, out, dtype),
          dx(device_, in, dtype), averaged(device_, in, dtype), index(device_, out, DType::kI32),
          columns(device_, Shape{3 * w.places(), 20 * w.offsets()}, dtype), folded(device_, in, dtype),
          sums(device_, Shape{20}, arithmetic(dtype));
      ops().sum_channels(x, sums, false);
      ops().unfold(w, x, 0, columns);
      ops().fold(w, columns, 0, folded, false);
      ops().max_pool(w, x, y, index);
      ops().max_pool_backward(w, index, y, dx, false);
      ops().average_pool(w, x, false, y);
      ops().average_pool_backward(w, y, false, averaged, false);
      const std::vector<std::vector<std::byte>> found = {columns.bytes(), folded.bytes(),   dx.bytes(),
                                                         y.bytes(),       averaged.bytes(), sums.bytes()};
      if (threads == 1) first = found;
      EXPECT_EQ(found, first) << dtype_name(dtype) << " with " << threads << " threads";
    }
  }
}

TEST_P(Windows, RefuseViewsThatDoNotFit) {
  const WindowSpec w{.extent = {4, 4}, .kernel = {2, 2}};
  Owned x(device_, Shape{1, 2, 4, 4}, DType::kF32), columns(device_, Shape{9, 8}, DType::kF32),
      odd(device_, Shape{9, 7}, DType::kF32), flat(device_, Shape{2, 15}, DType::kF32);
  ops().unfold(w, x, 0, columns);
  EXPECT_THROW(ops().unfold(w, x, 1, columns), Error) << "channels 1 and 2 of 2";
  EXPECT_THROW(ops().unfold(w, x, 0, odd), Error);
  EXPECT_THROW(ops().unfold(w, flat, 0, columns), Error);
  EXPECT_THROW(ops().average_pool(w, x, true, x), Error);
  Owned three(device_, Shape{3}, DType::kF32), wide(device_, Shape{2}, DType::kF64);
  EXPECT_THROW(ops().fill_channels(three, x), Error);
  EXPECT_THROW(ops().sum_channels(x, three, false), Error);
  EXPECT_THROW(ops().sum_channels(x, wide, false), Error);
}

INSTANTIATE_TEST_SUITE_P(Device, Windows, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::window_test
