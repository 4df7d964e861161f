// Layer normalisation, pointwise maps, dropout and softmax cross-entropy against formulas in double.
#include "device_test.hpp"

#include <tenon/ops/norm.hpp>

#include <cmath>

namespace tenon::testing::nn_test {
namespace {

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kBF16 = DType::kBF16;
constexpr DType kActivations[] = {kF32, kF64, kBF16};

double& at(std::vector<double>& values, std::int64_t i) {
  return values[i];
}
double at(const std::vector<double>& values, std::int64_t i) {
  return values[i];
}

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

class NeuralFamily : public OnEveryChoice {
 protected:
  NeuralOps& ops() { return device_.family<NeuralOps>(); }
};

/// A few roundings of the arithmetic, then one to the stored dtype.
double bound(DType stored, DType activation, double roundings) {
  return roundings * unit(arithmetic(activation)) + 1.01 * unit(stored);
}

TEST_P(NeuralFamily, NormaliseRows) {
  constexpr double kEps = 1e-5;
  for (const auto& size : {std::pair{1, 1}, std::pair{5, 3}, std::pair{67, 129}, std::pair{33, 768}})
    for (const DType dtype : kActivations) {
      const int rows = size.first, columns = size.second;
      const DType wide = arithmetic(dtype);
      const std::string name =
          std::string(dtype_name(dtype)) + " " + std::to_string(rows) + " x " + std::to_string(columns);
      const Shape matrix{rows, columns}, column{columns}, row{rows};
      const auto x = numbers(rows * columns, "x", dtype), dy = numbers(rows * columns, "dy", dtype),
                 gain = numbers(columns, "gain", wide), bias = numbers(columns, "bias", wide),
                 old_dx = numbers(rows * columns, "dx", dtype), old_gain = numbers(columns, "dg", wide),
                 old_bias = numbers(columns, "db", wide);
      std::vector<double> y(x.size()), dx(x.size()), dgain(gain.size()), dbias(gain.size());
      for (int r = 0; r < rows; ++r) {
        double mean = 0, variance = 0, mean_g = 0, mean_gh = 0;
        for (int c = 0; c < columns; ++c) mean += at(x, r * columns + c) / columns;
        for (int c = 0; c < columns; ++c) variance += std::pow(at(x, r * columns + c) - mean, 2) / columns;
        const double rstd = 1 / std::sqrt(variance + kEps);
        const auto h = [&](int c) { return (at(x, r * columns + c) - mean) * rstd; };
        for (int c = 0; c < columns; ++c) {
          const double g = at(dy, r * columns + c) * at(gain, c);
          mean_g += g / columns;
          mean_gh += g * h(c) / columns;
          at(y, r * columns + c) = h(c) * at(gain, c) + at(bias, c);
          at(dgain, c) += at(dy, r * columns + c) * h(c);
          at(dbias, c) += at(dy, r * columns + c);
        }
        for (int c = 0; c < columns; ++c)
          at(dx, r * columns + c) = rstd * (at(dy, r * columns + c) * at(gain, c) - mean_g - h(c) * mean_gh);
      }
      Owned x_t(device_, matrix, dtype, x), dy_t(device_, matrix, dtype, dy), y_t(device_, matrix, dtype),
          gain_t(device_, column, wide, gain), bias_t(device_, column, wide, bias),
          mean_t(device_, row, wide), rstd_t(device_, row, wide), dx_t(device_, matrix, dtype, old_dx),
          dgain_t(device_, column, wide, old_gain), dbias_t(device_, column, wide, old_bias);
      Owned scratch(device_, Shape{static_cast<std::int64_t>(ops().layer_norm_scratch(rows, columns, dtype))},
                    DType::kU8);
      ops().layer_norm(x_t, gain_t, bias_t, kEps, y_t, mean_t, rstd_t);
      EXPECT_LE(relative_error(y_t.values(), y), bound(dtype, dtype, 32)) << name;

      const auto backward = [&](bool accumulate, bool accumulate_parameters) {
        dx_t.fill(old_dx);
        dgain_t.fill(old_gain);
        dbias_t.fill(old_bias);
        ops().layer_norm_backward(x_t, gain_t, mean_t, rstd_t, dy_t, dx_t, accumulate, dgain_t, dbias_t,
                                  accumulate_parameters, scratch);
        const auto want_dx = accumulate ? sum(old_dx, dx) : dx;
        const auto want_gain = accumulate_parameters ? sum(old_gain, dgain) : dgain;
        const auto want_bias = accumulate_parameters ? sum(old_bias, dbias) : dbias;
        // With one column, dx is only the residue of cancellation.
        if (columns > 1) {
          EXPECT_LE(relative_error(dx_t.values(), want_dx), bound(dtype, dtype, 64)) << name;
        }
        EXPECT_LE(relative_error(dgain_t.values(), want_gain), bound(wide, dtype, 4.0 * rows + 16)) << name;
        EXPECT_LE(relative_error(dbias_t.values(), want_bias), bound(wide, dtype, 4.0 * rows + 16)) << name;
      };
      for (const bool accumulate : {false, true})
        for (const bool parameters : {false, true}) backward(accumulate, parameters);
    }
}

double gelu_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_exact(double x) {
  return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
}
double relu(double x) {
  return x > 0 ? x : 0;
}
double silu(double x) {
  return x / (1 + std::exp(-x));
}
double squared_relu(double x) {
  return relu(x) * relu(x);
}
double slope(double (*map)(double), double x) {
  constexpr double kStep = 1e-5;
  return (map(x + kStep) - map(x - kStep)) / (2 * kStep);
}

TEST_P(NeuralFamily, MapPointwise) {
  const struct {
    Epilogue epilogue;
    double (*map)(double);
  } cases[] = {{Epilogue::kNone, [](double x) { return x; }},
               {Epilogue::kGeluTanh, gelu_tanh},
               {Epilogue::kGeluExact, gelu_exact},
               {Epilogue::kRelu, relu},
               {Epilogue::kSilu, silu},
               {Epilogue::kSquaredRelu, squared_relu}};
  for (const auto& c : cases)
    for (const DType dtype : kActivations)
      for (const std::int64_t n : {3, 1000, 40001}) {
        const std::string name =
            std::string(dtype_name(dtype)) + " map " + std::to_string(static_cast<int>(c.epilogue));
        const auto x = numbers(n, "x", dtype), dy = numbers(n, "dy", dtype), old = numbers(n, "old", dtype);
        std::vector<double> y(x.size()), dx(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          y[i] = c.map(x[i]);
          dx[i] = dy[i] * slope(c.map, x[i]);
        }
        Owned x_t(device_, Shape{n}, dtype, x), dy_t(device_, Shape{n}, dtype, dy),
            y_t(device_, Shape{n}, dtype);
        ops().activation(c.epilogue, x_t, y_t);
        EXPECT_LE(relative_error(y_t.values(), y), bound(dtype, dtype, 8)) << name;
        // The slope is a central difference, good to 1e-9.
        y_t.fill(old);
        ops().activation_backward(c.epilogue, x_t, dy_t, y_t, false);
        EXPECT_LE(relative_error(y_t.values(), dx), bound(dtype, dtype, 16) + 1e-9) << name;
        y_t.fill(old);
        ops().activation_backward(c.epilogue, x_t, dy_t, y_t, true);
        EXPECT_LE(relative_error(y_t.values(), sum(old, dx)), bound(dtype, dtype, 16) + 1e-9) << name;
      }
}

TEST_P(NeuralFamily, KeepNaNs) {
  const double nan = std::nan("");
  for (const DType dtype : kActivations)
    for (const Epilogue map : {Epilogue::kNone, Epilogue::kGeluTanh, Epilogue::kGeluExact, Epilogue::kRelu,
                               Epilogue::kSilu, Epilogue::kSquaredRelu}) {
      Owned x(device_, Shape{3}, dtype, {nan, -1, -nan}), y(device_, Shape{3}, dtype);
      ops().activation(map, x, y);
      EXPECT_TRUE(std::isnan(y.values()[0])) << dtype_name(dtype) << static_cast<int>(map);
      EXPECT_TRUE(std::isnan(y.values()[2])) << dtype_name(dtype) << static_cast<int>(map);
    }
}

TEST_P(NeuralFamily, DropByKeyStepAndIndexAlone) {
  constexpr double kP = 0.3;
  constexpr std::int64_t kCount = 50000;
  const RandomKey key = random_key(7, "dropout"), other = random_key(8, "dropout");
  std::vector<double> kept_by_f64;
  for (const DType dtype : {kF64, kF32, kBF16}) {
    const std::vector<double> ones(kCount, 1.0);
    Owned x(device_, Shape{kCount}, dtype, ones), y(device_, Shape{kCount}, dtype);
    const auto drop = [&](RandomKey k, std::uint64_t step, std::uint64_t first) {
      ops().dropout(x, y, kP, k, step, first, false);
      return y.values();
    };
    const auto values = drop(key, 3, 11);
    if (kept_by_f64.empty()) kept_by_f64 = values;
    std::int64_t kept = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      kept += values[i] != 0;
      ASSERT_EQ(values[i] != 0, kept_by_f64[i] != 0) << dtype_name(dtype) << " " << i;
      ASSERT_NEAR(values[i], values[i] == 0 ? 0 : 1 / (1 - kP), 4 * unit(dtype));
    }
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(static_cast<double>(kept), kCount * (1 - kP), 5 * std::sqrt(kCount * kP * (1 - kP)));
    EXPECT_EQ(drop(key, 3, 11), values);
    EXPECT_NE(drop(key, 4, 11), values);
    EXPECT_NE(drop(other, 3, 11), values);
    // Element i of a slice that begins at `first` is element first + i of the whole.
    const auto later = drop(key, 3, 11 + 1001);
    EXPECT_TRUE(std::equal(values.begin() + 1001, values.end(), later.begin()));

    y.fill(std::vector<double>(kCount, 2.0));
    ops().dropout(x, y, kP, key, 3, 11, true);
    const auto added = y.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(added[i], values[i] == 0 ? 2 : 2 + 1 / (1 - kP), 4 * unit(dtype))
          << dtype_name(dtype) << " " << i;
  }
  Owned x(device_, Shape{1}, kF32), y(device_, Shape{1}, kF32);
  EXPECT_THROW(ops().dropout(x, y, 1.0, key, 0, 0, false), Error);
  EXPECT_THROW(ops().dropout(x, y, std::nan(""), key, 0, 0, false), Error);
}

TEST_P(NeuralFamily, TakeTheLossOfRows) {
  for (const auto& [rows, columns, smoothing] :
       {std::tuple{1, 1, 0.0}, std::tuple{7, 5, 0.0}, std::tuple{37, 1000, 0.0}, std::tuple{3, 5003, 0.0},
        std::tuple{7, 5, 0.1}, std::tuple{3, 5003, 0.25}})
    for (const DType dtype : kActivations) {
      const DType wide = arithmetic(dtype);
      const std::string name = std::string(dtype_name(dtype)) + " " + std::to_string(rows) + " x " +
                               std::to_string(columns) + " smoothing " + std::to_string(smoothing);
      const auto logits = numbers(rows * columns, "logits", dtype);
      auto targets = integers(rows, static_cast<std::uint64_t>(columns), "targets");
      if (rows > 2) targets[1] = -1, targets[2] = -100;
      constexpr double kScale = 0.25;
      std::vector<double> loss(targets.size()), lse(targets.size()), dlogits(logits.size());
      for (int r = 0; r < rows; ++r) {
        double total = 0;
        for (int c = 0; c < columns; ++c) total += std::exp(at(logits, r * columns + c));
        at(lse, r) = std::log(total);
        const auto target = static_cast<std::int64_t>(at(targets, r));
        if (target < 0) continue;
        for (int c = 0; c < columns; ++c) {
          const double wanted = smoothing / columns + (c == target ? 1 - smoothing : 0);
          at(loss, r) += wanted * (at(lse, r) - at(logits, r * columns + c));
          at(dlogits, r * columns + c) = kScale * (std::exp(at(logits, r * columns + c)) / total - wanted);
        }
      }
      Owned logits_t(device_, Shape{rows, columns}, dtype, logits),
          targets_t(device_, Shape{rows}, DType::kI32, targets), loss_t(device_, Shape{rows}, wide),
          lse_t(device_, Shape{rows}, wide);
      ops().softmax_cross_entropy(logits_t, targets_t, smoothing, loss_t, lse_t);
      // A smoothed loss is expected as a sum of `columns` terms, which has roundings of its own.
      EXPECT_LE(relative_error(loss_t.values(), loss), 16 * unit(wide) + smoothing * columns * unit(kF64))
          << name;
      EXPECT_LE(relative_error(lse_t.values(), lse), 16 * unit(wide)) << name;

      Owned same(device_, Shape{rows, columns}, dtype), narrow(device_, Shape{rows, columns}, kBF16);
      ops().softmax_cross_entropy_backward(logits_t, targets_t, smoothing, lse_t, kScale, same);
      EXPECT_LE(relative_error(same.values(), dlogits), bound(dtype, dtype, 32)) << name;
      ops().softmax_cross_entropy_backward(logits_t, targets_t, smoothing, lse_t, kScale, narrow);
      EXPECT_LE(relative_error(narrow.values(), dlogits), bound(kBF16, dtype, 32)) << name;
      ops().softmax_cross_entropy_backward(logits_t, targets_t, smoothing, lse_t, kScale, logits_t);
      EXPECT_EQ(logits_t.bytes(), same.bytes()) << name << ", in place";

      targets_t.fill(std::vector<double>(targets.size(), columns));
      EXPECT_THROW(ops().softmax_cross_entropy(logits_t, targets_t, smoothing, loss_t, lse_t), Error);
    }
}

TEST_P(NeuralFamily, NotDependOnThreads) {
  constexpr int kRows = 150, kColumns = 700;
  for (const DType dtype : kActivations) {
    const DType wide = arithmetic(dtype);
    const Shape matrix{kRows, kColumns}, column{kColumns}, row{kRows};
    const auto x = numbers(kRows * kColumns, "x", dtype), dy = numbers(kRows * kColumns, "dy", dtype);
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Owned x_t(device_, matrix, dtype, x), dy_t(device_, matrix, dtype, dy), y(device_, matrix, dtype),
          gain(device_, column, wide, std::vector<double>(kColumns, 1.5)), bias(device_, column, wide),
          mean(device_, row, wide), rstd(device_, row, wide), dx(device_, matrix, dtype),
          dgain(device_, column, wide), dbias(device_, column, wide),
          targets(device_, row, DType::kI32, integers(kRows, kColumns, "t")), loss(device_, row, wide),
          lse(device_, row, wide), dropped(device_, matrix, dtype), mapped(device_, matrix, dtype);
      ops().layer_norm(x_t, gain, bias, 1e-5, y, mean, rstd);
      ops().layer_norm_backward(x_t, gain, mean, rstd, dy_t, dx, true, dgain, dbias, true, {});
      ops().dropout(x_t, dropped, 0.1, random_key(1, "d"), 5, 3, true);
      ops().activation_backward(Epilogue::kGeluTanh, x_t, dy_t, mapped, true);
      ops().softmax_cross_entropy(x_t, targets, 0.1, loss, lse);
      std::vector<std::vector<std::byte>> found = {y.bytes(),      dx.bytes(),   dgain.bytes(),
                                                   dbias.bytes(),  loss.bytes(), dropped.bytes(),
                                                   mapped.bytes(), lse.bytes()};
      ops().softmax_cross_entropy_backward(x_t, targets, 0.1, lse, 1, x_t);
      found.push_back(x_t.bytes());
      if (threads == 1) first = found;
      EXPECT_EQ(found, first) << dtype_name(dtype) << " with " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Device, NeuralFamily, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::nn_test
