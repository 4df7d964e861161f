// RMS and batch normalisation against formulas in double.
#include "device_test.hpp"

#include <tenon/ops/norm.hpp>

#include <cmath>

namespace tenon::testing::normalisation_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// A few roundings of the arithmetic, then one to the stored dtype.
double bound(DType stored, DType activation, double roundings) {
  return roundings * unit(arithmetic(activation)) + 1.01 * unit(stored);
}

class Normalisation : public OnEveryChoice {
 protected:
  NormalisationOps& ops() { return device_.family<NormalisationOps>(); }
};

TEST_P(Normalisation, DividesRowsByTheirRootMeanSquare) {
  constexpr double kEps = 1e-3;
  for (const auto& [rows, columns] : {std::pair{1, 1}, std::pair{5, 3}, std::pair{67, 129}})
    for (const DType dtype : kActivations) {
      const DType wide = arithmetic(dtype);
      const auto count = static_cast<std::size_t>(rows * columns), w = static_cast<std::size_t>(columns);
      const auto x = numbers(rows * columns, "x", dtype), dy = numbers(rows * columns, "dy", dtype),
                 gain = numbers(columns, "gain", wide), old_dx = numbers(rows * columns, "dx", dtype),
                 old_gain = numbers(columns, "dg", wide);
      std::vector<double> y(count), dx(count), dgain(w);
      for (std::size_t r = 0; r < count; r += w) {
        double squares = 0, dot = 0;
        for (std::size_t c = 0; c < w; ++c) squares += x[r + c] * x[r + c];
        const double rstd = 1 / std::sqrt(squares / columns + kEps);
        for (std::size_t c = 0; c < w; ++c) dot += dy[r + c] * gain[c] * x[r + c] * rstd;
        for (std::size_t c = 0; c < w; ++c) {
          const double h = x[r + c] * rstd;
          y[r + c] = h * gain[c];
          dgain[c] += dy[r + c] * h;
          dx[r + c] = rstd * (dy[r + c] * gain[c] - h * dot / columns);
        }
      }
      const Shape matrix{rows, columns};
      Owned x_t(device_, matrix, dtype, x), dy_t(device_, matrix, dtype, dy), y_t(device_, matrix, dtype),
          gain_t(device_, Shape{columns}, wide, gain), rstd_t(device_, Shape{rows}, wide),
          dx_t(device_, matrix, dtype), dgain_t(device_, Shape{columns}, wide);
      ops().rms_norm(x_t, gain_t, kEps, y_t, rstd_t);
      EXPECT_LE(relative_error(y_t.values(), y), bound(dtype, dtype, 32)) << dtype_name(dtype) << columns;
      for (const bool accumulate : {false, true}) {
        dx_t.fill(old_dx);
        dgain_t.fill(old_gain);
        ops().rms_norm_backward(x_t, gain_t, rstd_t, dy_t, dx_t, accumulate, dgain_t, accumulate);
        // With one column, dx is only the residue of cancellation.
        if (columns > 1) {
          EXPECT_LE(relative_error(dx_t.values(), accumulate ? sum(old_dx, dx) : dx),
                    bound(dtype, dtype, 64));
        }
        EXPECT_LE(relative_error(dgain_t.values(), accumulate ? sum(old_gain, dgain) : dgain),
                  bound(wide, dtype, 4.0 * rows + 16));
      }
    }
}

struct BatchCase {
  Shape shape;
  double centre;
};

TEST_P(Normalisation, CentresChannelsOverTheBatch) {
  constexpr BatchNormSpec kSpec{.eps = 1e-3, .momentum = 0.3};
  const BatchCase cases[] = {{{3, 2, 4, 5}, 0}, {{2, 5, 1, 1}, 0}, {{7, 3}, 0}, {{5, 17, 3, 33}, 4}};
  for (const auto& [shape, centre] : cases)
    for (const DType dtype : kActivations) {
      const std::string name = shape.text() + " " + std::string(dtype_name(dtype));
      const DType wide = arithmetic(dtype);
      const std::int64_t channels = shape[1], places = shape.elements() / shape[0] / channels;
      const auto n = static_cast<double>(shape[0] * places);
      std::vector<double> x = numbers(shape.elements(), "x", dtype);
      for (double& value : x) value += centre;
      x = rounded(x, dtype);
      const auto dy = numbers(shape.elements(), "dy", dtype), gain = numbers(channels, "gain", wide),
                 bias = numbers(channels, "bias", wide), old_dx = numbers(shape.elements(), "dx", dtype),
                 old = numbers(channels, "old", wide);
      const auto channel_of = [&](std::size_t i) {
        return static_cast<std::size_t>(static_cast<std::int64_t>(i) / places % channels);
      };
      const std::size_t c = channels;
      std::vector<double> mean(c), squares(c), sum_dy(c), dot(c), rstd(c), y(x.size()), dx(x.size()),
          fixed(x.size()), running_mean(c), running_variance(c);
      for (std::size_t i = 0; i < x.size(); ++i) mean[channel_of(i)] += x[i] / n;
      for (std::size_t i = 0; i < x.size(); ++i)
        squares[channel_of(i)] += std::pow(x[i] - mean[channel_of(i)], 2);
      for (std::size_t k = 0; k < c; ++k) {
        rstd[k] = 1 / std::sqrt(squares[k] / n + kSpec.eps);
        running_mean[k] = 0.7 * old[k] + 0.3 * mean[k];
        running_variance[k] = 0.7 * (1 + std::abs(old[k])) + 0.3 * squares[k] / (n - 1);
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t k = channel_of(i);
        const double h = (x[i] - mean[k]) * rstd[k];
        y[i] = h * gain[k] + bias[k];
        fixed[i] = (x[i] - mean[k]) / std::sqrt(squares[k] / n + kSpec.eps) * gain[k] + bias[k];
        sum_dy[k] += dy[i];
        dot[k] += dy[i] * h;
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t k = channel_of(i);
        const double h = (x[i] - mean[k]) * rstd[k];
        dx[i] = rstd[k] * gain[k] * (dy[i] - sum_dy[k] / n - h * dot[k] / n);
      }
      std::vector<double> old_variance = old;
      for (double& value : old_variance) value = 1 + std::abs(value);
      const Shape column{channels};
      Owned x_t(device_, shape, dtype, x), dy_t(device_, shape, dtype, dy), y_t(device_, shape, dtype),
          gain_t(device_, column, wide, gain), bias_t(device_, column, wide, bias),
          running_mean_t(device_, column, wide, old), running_variance_t(device_, column, wide, old_variance),
          mean_t(device_, column, wide), rstd_t(device_, column, wide), dx_t(device_, shape, dtype),
          dgain_t(device_, column, wide), dbias_t(device_, column, wide);
      // The mean's rounding shifts every element by a unit of the centre: hence centre + 1. Sums over a
      // sample are chains of places / 16 and 4 folds.
      const double roundings = (32 + static_cast<double>(places)) * (1 + centre);
      ops().batch_norm(kSpec, x_t, gain_t, bias_t, running_mean_t, running_variance_t, y_t, mean_t, rstd_t);
      EXPECT_LE(relative_error(y_t.values(), y), bound(dtype, dtype, roundings)) << name;
      EXPECT_LE(relative_error(running_mean_t.values(), running_mean), bound(wide, dtype, roundings)) << name;
      EXPECT_LE(relative_error(running_variance_t.values(), running_variance), bound(wide, dtype, roundings))
          << name;
      for (const bool accumulate : {false, true}) {
        dx_t.fill(old_dx);
        dgain_t.fill(old);
        dbias_t.fill(old);
        ops().batch_norm_backward(x_t, gain_t, mean_t, rstd_t, dy_t, dx_t, accumulate, dgain_t, dbias_t,
                                  accumulate);
        EXPECT_LE(relative_error(dx_t.values(), accumulate ? sum(old_dx, dx) : dx),
                  bound(dtype, dtype, 4 * roundings))
            << name;
        EXPECT_LE(relative_error(dgain_t.values(), accumulate ? sum(old, dot) : dot),
                  bound(wide, dtype, 4 * roundings + 4 * n))
            << name;
        EXPECT_LE(relative_error(dbias_t.values(), accumulate ? sum(old, sum_dy) : sum_dy),
                  bound(wide, dtype, roundings + 4 * n))
            << name;
      }
      std::vector<double> variance = squares;
      for (double& value : variance) value /= n;
      running_mean_t.fill(mean);
      running_variance_t.fill(variance);
      ops().batch_norm_fixed(kSpec, x_t, gain_t, bias_t, running_mean_t, running_variance_t, y_t);
      EXPECT_LE(relative_error(y_t.values(), fixed), bound(dtype, dtype, roundings)) << name;
    }
}

TEST_P(Normalisation, DoesNotDependOnThreads) {
  const Shape shape{4, 37, 9, 11}, matrix{150, 40};
  for (const DType dtype : kActivations) {
    const DType wide = arithmetic(dtype);
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Owned x(device_, shape, dtype, numbers(shape.elements(), "x", dtype)), y(device_, shape, dtype),
          mean(device_, Shape{37}, wide), rstd(device_, Shape{37}, wide), dgain(device_, Shape{37}, wide),
          rows(device_, matrix, dtype, numbers(matrix.elements(), "r", dtype)), out(device_, matrix, dtype),
          row_rstd(device_, Shape{150}, wide), row_gain(device_, Shape{40}, wide);
      ops().batch_norm({}, x, {}, {}, {}, {}, y, mean, rstd);
      ops().batch_norm_backward(x, {}, mean, rstd, y, x, true, dgain, {}, false);
      ops().rms_norm(rows, {}, 1e-5, out, row_rstd);
      ops().rms_norm_backward(rows, {}, row_rstd, out, rows, true, row_gain, false);
      const std::vector<std::vector<std::byte>> found = {x.bytes(),    y.bytes(),   dgain.bytes(),
                                                         rows.bytes(), out.bytes(), row_gain.bytes()};
      if (threads == 1) first = found;
      EXPECT_EQ(found, first) << dtype_name(dtype) << " with " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Device, Normalisation, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::normalisation_test
