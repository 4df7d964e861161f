// Elementwise maps, embedding, reductions and updates against loops in double.
#include "device_test.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <cmath>
#include <limits>

namespace tenon::testing::flat_test {
namespace {

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kBF16 = DType::kBF16;
constexpr DType kActivations[] = {kF32, kF64, kBF16};
constexpr std::int64_t kCount = 40003;  // several blocks and a rest

template <class Value>
std::vector<double> each(std::size_t n, Value value) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = value(i);
  return values;
}

class FlatFamilies : public OnEveryChoice {};

TEST_P(FlatFamilies, MapElementwise) {
  auto& ops = device_.family<Elementwise>();
  for (const DType dtype : kActivations) {
    const double once = unit(dtype) * 1.01 + 3 * unit(arithmetic(dtype));
    const auto a = numbers(kCount, "a", dtype), b = numbers(kCount, "b", dtype);
    const std::size_t n = a.size();
    Owned x(device_, Shape{kCount}, dtype, a), y(device_, Shape{kCount}, dtype, b),
        z(device_, Shape{kCount}, dtype);
    ops.add(x, y, z);
    EXPECT_LE(relative_error(z.values(), each(n, [&](auto i) { return a[i] + b[i]; })), once)
        << dtype_name(dtype);
    ops.subtract(x, y, z);
    EXPECT_LE(relative_error(z.values(), each(n, [&](auto i) { return a[i] - b[i]; })), once)
        << dtype_name(dtype);
    ops.axpy(-0.75, x, y);
    EXPECT_LE(relative_error(y.values(), each(n, [&](auto i) { return b[i] - 0.75 * a[i]; })), once)
        << dtype_name(dtype);
    y.fill(b);
    ops.lerp(y, x, 0.125);
    EXPECT_LE(relative_error(y.values(), each(n, [&](auto i) { return b[i] + 0.125 * (a[i] - b[i]); })),
              once);
    y.fill(b);
    ops.scale(y, 3);
    EXPECT_LE(relative_error(y.values(), each(n, [&](auto i) { return 3 * b[i]; })), once)
        << dtype_name(dtype);
    ops.fill(y, 0.5);
    EXPECT_EQ(y.values(), std::vector<double>(n, 0.5));
    ops.fill(y, 0);
    EXPECT_EQ(y.values(), std::vector<double>(n, 0.0));
    auto gaps = b;
    for (std::size_t i = 0; i < n; i += 7) gaps[i] = std::numeric_limits<double>::quiet_NaN();
    y.fill(gaps);
    EXPECT_EQ(ops.subtract_targets(x, y, z), static_cast<std::int64_t>(n - (n + 6) / 7));
    EXPECT_LE(relative_error(z.values(), each(n, [&](auto i) { return i % 7 == 0 ? 0.0 : a[i] - b[i]; })),
              once)
        << dtype_name(dtype);
    ops.subtract(x, x, x);
    EXPECT_EQ(x.values(), std::vector<double>(n, 0.0)) << "in place";

    Owned other(device_, Shape{kCount}, dtype == kF32 ? kF64 : kF32),
        short_one(device_, Shape{kCount - 1}, dtype);
    EXPECT_THROW(ops.add(x, other, z), Error);
    EXPECT_THROW(ops.axpy(1, short_one, z), Error);
  }
  Owned integers(device_, Shape{5}, DType::kI32);
  ops.fill(integers, 7);
  EXPECT_EQ(integers.values(), std::vector<double>(5, 7));
  EXPECT_THROW(ops.scale(integers, 2), Error);
}

TEST_P(FlatFamilies, AddABiasToRows) {
  auto& ops = device_.family<Elementwise>();
  for (const DType dtype : kActivations)
    for (const auto& [rows, columns] : {std::pair{1, 1}, std::pair{300, 131}, std::pair{3, 20011}}) {
      const auto x = numbers(rows * columns, "x", dtype), bias = numbers(columns, "bias", arithmetic(dtype));
      Owned x_t(device_, Shape{rows, columns}, dtype, x),
          bias_t(device_, Shape{columns}, arithmetic(dtype), bias);
      const auto want = each(x.size(), [&](auto i) { return x[i] + bias[i % bias.size()]; });
      ops.add_bias(x_t, bias_t, x_t);
      EXPECT_LE(relative_error(x_t.values(), want), 1.01 * unit(dtype) + unit(arithmetic(dtype)))
          << dtype_name(dtype);
    }
}

TEST_P(FlatFamilies, ConvertWithOneRounding) {
  auto& ops = device_.family<Elementwise>();
  const double infinity = std::numeric_limits<double>::infinity();
  // Through f32, 1 + 2^-8 + 2^-40 would be a tie; 2^-140 vanishes in bf16's f32 image only after rounding to
  // odd.
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      1 + 0x1p-8,
                                      1 + 0x1p-8 + 0x1p-40,
                                      -1 - 0x1p-8 - 0x1p-40,
                                      1 + 3 * 0x1p-8,
                                      1 + 3 * 0x1p-8 - 0x1p-40,
                                      0x1p-140,
                                      0x1p-170,
                                      1e39,
                                      -1e39,
                                      infinity,
                                      -infinity,
                                      0x1.fefffffffffp127,
                                      0x1.ffp127};
  const std::vector<double> in_bf16 = {0.0,        -0.0,       1,         1 + 0x1p-7, -1 - 0x1p-7,
                                       1 + 0x1p-6, 1 + 0x1p-7, 0,         0,          infinity,
                                       -infinity,  infinity,   -infinity, 0x1.fep127, infinity};
  const auto n = static_cast<std::int64_t>(values.size());
  Owned f64(device_, Shape{n}, kF64, values), bf16(device_, Shape{n}, kBF16), f32(device_, Shape{n}, kF32);
  ops.convert(f64, bf16);
  EXPECT_EQ(bf16.values(), in_bf16);
  ops.convert(f64, f32);
  EXPECT_EQ(f32.values(), rounded(values, kF32));
  for (const DType from : kActivations)
    for (const DType to : kActivations) {
      const auto x = numbers(kCount, "x", from);
      Owned source(device_, Shape{kCount}, from, x), target(device_, Shape{kCount}, to);
      ops.convert(source, target);
      EXPECT_EQ(target.values(), rounded(x, to)) << dtype_name(from) << " to " << dtype_name(to);
    }
  Owned short_one(device_, Shape{n - 1}, kF32);
  EXPECT_THROW(ops.convert(f64, short_one), Error);

  // binary16: 2^-24 is the smallest, 65504 the largest; ties go to even, and f64 is rounded once.
  const std::vector<double> wide = {0.0,
                                    -0.0,
                                    1 + 0x1p-11,
                                    1 + 0x1p-11 + 0x1p-40,
                                    1 + 3 * 0x1p-11,
                                    0x1p-24,
                                    0x1p-25,
                                    0x1.8p-25,
                                    -0x1.8p-24,
                                    65504,
                                    65519.999,
                                    65520,
                                    -1e9,
                                    infinity,
                                    0x1p-14 - 0x1p-26,
                                    -0x1p-14,
                                    1.0 / 1024};
  const std::vector<double> in_f16 = {0.0,       -0.0,     1,        1 + 0x1p-10, 1 + 0x1p-9, 0x1p-24,
                                      0,         0x1p-24,  -0x1p-23, 65504,       65504,      infinity,
                                      -infinity, infinity, 0x1p-14,  -0x1p-14,    1.0 / 1024};
  const auto m = static_cast<std::int64_t>(wide.size());
  Owned wide64(device_, Shape{m}, kF64, wide), half(device_, Shape{m}, DType::kF16),
      back(device_, Shape{m}, kF64);
  ops.convert(wide64, half);
  ops.convert(half, back);
  EXPECT_EQ(back.values(), in_f16);
  EXPECT_TRUE(std::signbit(back.values()[1]));
  for (const DType dtype : kActivations) {
    const auto x = numbers(kCount, "x", dtype);
    Owned source(device_, Shape{kCount}, dtype, x), narrow(device_, Shape{kCount}, DType::kF16),
        again(device_, Shape{kCount}, dtype), twice(device_, Shape{kCount}, DType::kF16);
    ops.convert(source, narrow);
    ops.convert(narrow, again);
    ops.convert(narrow, twice);
    EXPECT_EQ(narrow.bytes(), twice.bytes());
    const auto values = again.values();
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(std::abs(values[i] - x[i]), 0x1p-25 + (0x1p-11 + unit(dtype)) * std::abs(x[i])) << i;
  }
}

TEST_P(FlatFamilies, GatherAndScatterRows) {
  auto& ops = device_.family<EmbeddingOps>();
  constexpr std::int64_t kRows = 50, kWidth = 131, kIds = 401;  // many duplicates
  for (const DType dtype : kActivations) {
    const DType wide = arithmetic(dtype);
    const auto table = numbers(kRows * kWidth, "table", wide), old = numbers(kIds * kWidth, "old", dtype),
               dy = numbers(kIds * kWidth, "dy", dtype), ids = integers(kIds, kRows, "ids"),
               old_gradient = numbers(kRows * kWidth, "gradient", wide);
    std::vector<double> gathered(old.size()), added(old.size()), gradient = old_gradient;
    for (std::size_t i = 0; i < ids.size(); ++i)
      for (std::size_t c = 0; c < kWidth; ++c) {
        const std::size_t row = static_cast<std::size_t>(ids[i]) * kWidth + c, out = i * kWidth + c;
        gathered[out] = table[row];
        added[out] = old[out] + table[row];
        gradient[row] += dy[out];
      }
    Owned table_t(device_, Shape{kRows, kWidth}, wide, table), ids_t(device_, Shape{kIds}, DType::kI32, ids),
        out(device_, Shape{kIds, kWidth}, dtype, old), dy_t(device_, Shape{kIds, kWidth}, dtype, dy),
        gradient_t(device_, Shape{kRows, kWidth}, wide, old_gradient);
    ops.gather(table_t, ids_t, out, true);
    EXPECT_LE(relative_error(out.values(), added), 1.01 * unit(dtype) + unit(wide)) << dtype_name(dtype);
    ops.gather(table_t, ids_t, out, false);
    EXPECT_EQ(out.values(), rounded(gathered, dtype)) << dtype_name(dtype);

    Owned scratch(device_, Shape{static_cast<std::int64_t>(ops.scatter_scratch(kIds, kRows))}, DType::kU8);
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      gradient_t.fill(old_gradient);
      ops.scatter_add(dy_t, ids_t, gradient_t, scratch);
      if (threads == 1) first = gradient_t.bytes();
      EXPECT_EQ(gradient_t.bytes(), first) << threads << " threads";
    }
    EXPECT_LE(relative_error(gradient_t.values(), gradient), 32 * unit(wide)) << dtype_name(dtype);

    for (const double bad : {-1.0, static_cast<double>(kRows)}) {
      auto wrong = ids;
      wrong[7] = bad;
      ids_t.fill(wrong);
      EXPECT_THAT([&] { ops.gather(table_t, ids_t, out, false); },
                  ::testing::ThrowsMessage<Error>(::testing::HasSubstr("ids[7] is")));
      EXPECT_THROW(ops.scatter_add(dy_t, ids_t, gradient_t, scratch), Error);
    }
  }
}

TEST_P(FlatFamilies, Reduce) {
  auto& ops = device_.family<ReduceOps>();
  constexpr std::int64_t kLong = 9'000'001;  // more than one span of blocks
  for (const DType dtype : kActivations)
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, kCount, kLong}) {
      if (n == kLong && dtype != kF32) continue;
      const std::vector<double> some = numbers(std::min<std::int64_t>(n, 5003), "x", dtype);
      std::vector<double> x(n);
      long double total = 0, squares = 0;
      double most = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = some[i % some.size()];
        total += x[i];
        squares += static_cast<long double>(x[i]) * x[i];
        most = std::max(most, std::abs(x[i]));
      }
      Owned x_t(device_, Shape{n}, dtype, x);
      for (const int threads : {1, 2, 3}) {
        set_parallel_threads(threads);
        const double scale = static_cast<double>(squares) + 1;
        EXPECT_NEAR(ops.sum(x_t), static_cast<double>(total), 1e-12 * scale) << dtype_name(dtype) << " " << n;
        EXPECT_NEAR(ops.sum_of_squares(x_t), static_cast<double>(squares), 1e-12 * scale)
            << dtype_name(dtype) << " " << n;
        EXPECT_EQ(ops.absolute_max(x_t), most) << dtype_name(dtype) << " " << n;
        EXPECT_EQ(ops.first_non_finite(x_t), -1) << dtype_name(dtype) << " " << n;
      }
      set_parallel_threads(1);
      const double sum = ops.sum(x_t), sum_of_squares = ops.sum_of_squares(x_t);
      for (const int threads : {2, 3}) {
        set_parallel_threads(threads);
        EXPECT_EQ(ops.sum(x_t), sum);
        EXPECT_EQ(ops.sum_of_squares(x_t), sum_of_squares);
      }
    }
}

TEST_P(FlatFamilies, FindWhatIsNotFinite) {
  auto& ops = device_.family<ReduceOps>();
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const DType dtype : kActivations)
    for (const double bad : {infinity, -infinity, nan, -nan})
      for (const std::int64_t place : {std::int64_t{0}, std::int64_t{33333}, kCount - 1}) {
        auto x = numbers(kCount, "x", dtype);
        x[place] = bad;
        x.back() = nan;
        Owned x_t(device_, Shape{kCount}, dtype, x);
        EXPECT_EQ(ops.first_non_finite(x_t), place) << dtype_name(dtype) << " " << bad;
        EXPECT_TRUE(std::isnan(ops.absolute_max(x_t))) << dtype_name(dtype);
        x.back() = 0;
        x[place] = -infinity;
        x_t.fill(x);
        EXPECT_EQ(ops.absolute_max(x_t), infinity) << dtype_name(dtype);
      }
}

TEST_P(FlatFamilies, SumRows) {
  auto& ops = device_.family<ReduceOps>();
  for (const DType dtype : kActivations)
    for (const auto& [rows, columns] : {std::pair{1, 1}, std::pair{100, 333}, std::pair{1000, 7}}) {
      const DType wide = arithmetic(dtype);
      const auto x = numbers(rows * columns, "x", dtype), old = numbers(columns, "old", wide);
      std::vector<double> sums(old.size()), added = old;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sums[i % sums.size()] += x[i];
        added[i % sums.size()] += x[i];
      }
      Owned x_t(device_, Shape{rows, columns}, dtype, x), out(device_, Shape{columns}, wide, old);
      std::vector<std::byte> first;
      for (const int threads : {1, 2, 3}) {
        set_parallel_threads(threads);
        out.fill(old);
        ops.sum_rows(x_t, out, true, {});
        EXPECT_LE(relative_error(out.values(), added), 4.0 * rows * unit(wide)) << dtype_name(dtype);
        ops.sum_rows(x_t, out, false, {});
        EXPECT_LE(relative_error(out.values(), sums), 4.0 * rows * unit(wide)) << dtype_name(dtype);
        if (threads == 1) first = out.bytes();
        EXPECT_EQ(out.bytes(), first) << threads << " threads";
      }
    }
}

TEST_P(FlatFamilies, UpdateWeights) {
  const RuleEvaluator evaluate(&device_.family<FormulaOps>());
  const auto sgd = [&](std::vector<TensorView> tensors, const SgdStep& step) {
    with_sgd_rule(step, [&](const auto& rule) { evaluate(rule, tensors); });
  };
  for (const DType dtype : {kF32, kF64}) {
    const double bound = 32 * unit(dtype);
    const auto w = numbers(kCount, "w", dtype), g = numbers(kCount, "g", dtype),
               m = numbers(kCount, "m", dtype);
    auto v = numbers(kCount, "v", dtype);
    for (double& item : v) item *= item;
    v = rounded(v, dtype);
    const std::size_t n = w.size();
    Owned w_t(device_, Shape{kCount}, dtype, w), g_t(device_, Shape{kCount}, dtype, g),
        m_t(device_, Shape{kCount}, dtype, m), v_t(device_, Shape{kCount}, dtype, v);
    const AdamWStep a{.lr = 0.01,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-6,
                      .decay = 0.1,
                      .count = 3,
                      .gradient_scale = 0.5};
    const TensorView arena[] = {w_t, g_t, m_t, v_t};
    evaluate(AdamWRule(a), arena);
    const auto new_m =
        each(n, [&](auto i) { return a.beta1 * m[i] + (1 - a.beta1) * a.gradient_scale * g[i]; });
    const auto new_v = each(
        n, [&](auto i) { return a.beta2 * v[i] + (1 - a.beta2) * std::pow(a.gradient_scale * g[i], 2); });
    const auto new_w = each(n, [&](auto i) {
      const double m_hat = new_m[i] / (1 - std::pow(a.beta1, 3)),
                   v_hat = new_v[i] / (1 - std::pow(a.beta2, 3));
      return w[i] * (1 - a.lr * a.decay) - a.lr * m_hat / (std::sqrt(v_hat) + a.eps);
    });
    EXPECT_LE(relative_error(m_t.values(), new_m), bound) << dtype_name(dtype);
    EXPECT_LE(relative_error(v_t.values(), new_v), bound) << dtype_name(dtype);
    EXPECT_LE(relative_error(w_t.values(), new_w), bound) << dtype_name(dtype);

    for (const bool nesterov : {false, true})
      for (const bool first : {false, true}) {
        const SgdStep s{.lr = 0.1,
                        .momentum = 0.9,
                        .dampening = nesterov ? 0.0 : 0.25,
                        .decay = 0.01,
                        .nesterov = nesterov,
                        .first = first,
                        .gradient_scale = 2};
        w_t.fill(w);
        m_t.fill(m);
        sgd({w_t, g_t, m_t}, s);
        const auto slope = each(n, [&](auto i) { return s.gradient_scale * g[i] + s.decay * w[i]; });
        const auto buffer = each(
            n, [&](auto i) { return first ? slope[i] : s.momentum * m[i] + (1 - s.dampening) * slope[i]; });
        EXPECT_LE(relative_error(m_t.values(), buffer), bound) << dtype_name(dtype);
        EXPECT_LE(relative_error(w_t.values(),
                                 each(n,
                                      [&](auto i) {
                                        return w[i] - s.lr * (nesterov ? slope[i] + s.momentum * buffer[i]
                                                                       : buffer[i]);
                                      })),
                  bound)
            << dtype_name(dtype);
      }
    w_t.fill(w);
    sgd({w_t, g_t}, {.lr = 0.5});
    EXPECT_LE(relative_error(w_t.values(), each(n, [&](auto i) { return w[i] - 0.5 * g[i]; })), bound)
        << dtype_name(dtype);
    EXPECT_THROW(sgd({w_t, g_t}, {.lr = 0.5, .momentum = 0.9}), Error);
  }
  Owned narrow(device_, Shape{4}, kBF16);
  EXPECT_THROW(sgd({narrow, narrow}, {.lr = 0.5}), Error);
}

INSTANTIATE_TEST_SUITE_P(Device, FlatFamilies, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::flat_test
