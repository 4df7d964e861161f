// Divergences of distributions against their definition in double, for every form and temperature: losses,
// gradients by the formula and by differences, equal logits, ties, and rows that do not count.
#include "device_test.hpp"

#include <tenon/sdk/ops/divergence.hpp>

#include <cmath>
#include <numeric>

namespace tenon::testing::divergence_test {
namespace {

class Divergences : public OnEveryChoice {
 protected:
  DivergenceOps& ops() { return device_.family<DivergenceOps>(); }
};

using Row = std::vector<double>;

Row log_softmax(const double* logits, std::int64_t n, double temperature) {
  Row result(logits, logits + n);
  for (double& x : result) x /= temperature;
  const double most = *std::max_element(result.begin(), result.end());
  double sum = 0;
  for (const double x : result) sum += std::exp(x - most);
  for (double& x : result) x -= most + std::log(sum);
  return result;
}

/// Columns of the k largest logits, of equal ones those that come first.
std::vector<bool> likeliest(const double* logits, std::int64_t n, std::int64_t k) {
  std::vector<std::int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
  std::vector<bool> chosen(n, false);
  for (std::int64_t i = 0; i < std::min(k, n); ++i) chosen[order[i]] = true;
  return chosen;
}

double plain_kl(const Row& log_p, const Row& log_q) {
  double sum = 0;
  for (std::size_t j = 0; j < log_p.size(); ++j)
    if (std::exp(log_p[j]) > 0) sum += std::exp(log_p[j]) * (log_p[j] - log_q[j]);
  return sum;
}

double loss_of(const DivergenceSpec& spec, const double* student, const double* teacher, std::int64_t n) {
  const Row log_p = log_softmax(teacher, n, spec.temperature),
            log_q = log_softmax(student, n, spec.temperature);
  if (spec.form == Divergence::kForward) return plain_kl(log_p, log_q);
  if (spec.form == Divergence::kReverse) return plain_kl(log_q, log_p);
  const std::vector<bool> chosen = likeliest(teacher, n, spec.top_k);
  Row p, q;
  double rest_p = 0, rest_q = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    if (chosen[j]) {
      p.push_back(log_p[j]), q.push_back(log_q[j]);
    } else {
      rest_p += std::exp(log_p[j]), rest_q += std::exp(log_q[j]);
    }
  }
  if (spec.top_k < n) p.push_back(std::log(rest_p)), q.push_back(std::log(rest_q));
  return plain_kl(p, q);
}

/// Gradient of loss_of with respect to the student, from its definition: of every class of the form,
/// d loss / d log q, then through the softmax.
Row gradient_of(const DivergenceSpec& spec, const double* student, const double* teacher, std::int64_t n) {
  const Row log_p = log_softmax(teacher, n, spec.temperature),
            log_q = log_softmax(student, n, spec.temperature);
  Row slope(n);  // d loss / d log q_j
  if (spec.form == Divergence::kReverse) {
    for (std::int64_t j = 0; j < n; ++j) slope[j] = std::exp(log_q[j]) * (log_q[j] - log_p[j] + 1);
  } else {
    const std::int64_t k = spec.form == Divergence::kTopK ? spec.top_k : n;
    const std::vector<bool> chosen = likeliest(teacher, n, k);
    double rest_p = 0, rest_q = 0;
    for (std::int64_t j = 0; j < n; ++j)
      if (!chosen[j]) rest_p += std::exp(log_p[j]), rest_q += std::exp(log_q[j]);
    for (std::int64_t j = 0; j < n; ++j)
      slope[j] = chosen[j] ? -std::exp(log_p[j]) : -rest_p * std::exp(log_q[j]) / rest_q;
  }
  const double sum = std::accumulate(slope.begin(), slope.end(), 0.0);
  Row gradient(n);
  for (std::int64_t j = 0; j < n; ++j) gradient[j] = (slope[j] - std::exp(log_q[j]) * sum) / spec.temperature;
  return gradient;
}

std::vector<DivergenceSpec> specs() {
  std::vector<DivergenceSpec> all;
  for (const double temperature : {1.0, 0.5, 4.0}) {
    all.push_back({Divergence::kForward, temperature, 0});
    all.push_back({Divergence::kReverse, temperature, 0});
    for (const std::int64_t k : {1, 5, 2000}) all.push_back({Divergence::kTopK, temperature, k});
  }
  return all;
}

std::string name_of(const DivergenceSpec& spec, DType dtype, std::int64_t columns) {
  return std::string(dtype_name(dtype)) + ", form " + std::to_string(static_cast<int>(spec.form)) + ", T " +
         std::to_string(spec.temperature) + ", k " + std::to_string(spec.top_k) + ", columns " +
         std::to_string(columns);
}

/// Logits of deviation about 2.
std::vector<double> logits(std::int64_t n, std::string_view name, DType dtype) {
  std::vector<double> values = numbers(n, name, dtype);
  for (double& x : values) x *= 2;
  return rounded(values, dtype);
}

TEST(DivergenceOracle, GradientsAreThoseOfDifferences) {
  constexpr std::int64_t n = 7;
  const auto student = logits(n, "student", DType::kF64), teacher = logits(n, "teacher", DType::kF64);
  for (const DivergenceSpec& spec : specs()) {
    const Row gradient = gradient_of(spec, student.data(), teacher.data(), n);
    for (std::int64_t j = 0; j < n; ++j) {
      constexpr double kStep = 1e-5;
      Row up = student, down = student;
      up[j] += kStep, down[j] -= kStep;
      const double slope =
          (loss_of(spec, up.data(), teacher.data(), n) - loss_of(spec, down.data(), teacher.data(), n)) /
          (2 * kStep);
      EXPECT_NEAR(gradient[j], slope, 1e-9) << name_of(spec, DType::kF64, n) << " at " << j;
    }
  }
}

TEST_P(Divergences, N13_LossesAndGradientsAreThoseOfTheDefinition) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const std::int64_t columns : {1, 7, 300, 2500})
      for (const DivergenceSpec& spec : specs()) {
        const std::int64_t rows = 5;
        const double scale = 0.75;
        const auto student = logits(rows * columns, "student", dtype),
                   teacher = logits(rows * columns, "teacher", dtype);
        const std::vector<double> targets{0, -1, 0, 0, -7};
        Owned s(device_, {rows, columns}, dtype, student), t(device_, {rows, columns}, dtype, teacher),
            wanted(device_, {rows}, DType::kI32, targets), loss(device_, {rows}, dtype),
            kept(device_, {rows, kDivergenceStatistics}, dtype), ds(device_, {rows, columns}, dtype);
        ops().divergence(spec, s, t, wanted, loss, kept);
        ops().divergence_backward(spec, s, t, wanted, kept, scale, ds);
        const auto losses = loss.values(), gradients = ds.values();
        // Log-probabilities reach about 30 in size; 16 roundings of each, and weights that sum to 1. Sums in
        // lanes add as many roundings as they have terms.
        const double small =
            unit(dtype) * (16 + static_cast<double>(columns) / 8) * 30 / std::min(1.0, spec.temperature);
        for (std::int64_t r = 0; r < rows; ++r) {
          const double *own = student.data() + r * columns, *other = teacher.data() + r * columns;
          const bool counts = targets[r] >= 0;
          EXPECT_NEAR(losses[r], counts ? loss_of(spec, own, other, columns) : 0.0, counts ? small : 0)
              << name_of(spec, dtype, columns) << " row " << r;
          const Row gradient = gradient_of(spec, own, other, columns);
          for (std::int64_t j = 0; j < columns; ++j)
            ASSERT_NEAR(gradients[r * columns + j], counts ? scale * gradient[j] : 0.0, counts ? small : 0)
                << name_of(spec, dtype, columns) << " row " << r << " column " << j;
        }
        // In the place of either operand.
        Owned in_student(device_, {rows, columns}, dtype, student),
            in_teacher(device_, {rows, columns}, dtype, teacher);
        ops().divergence_backward(spec, in_student, t, wanted, kept, scale, in_student);
        ops().divergence_backward(spec, s, in_teacher, wanted, kept, scale, in_teacher);
        EXPECT_EQ(in_student.bytes(), ds.bytes()) << name_of(spec, dtype, columns);
        EXPECT_EQ(in_teacher.bytes(), ds.bytes()) << name_of(spec, dtype, columns);
      }
}

TEST_P(Divergences, N13_EqualBitsGiveExactlyZero) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const std::int64_t columns : {1, 37, 1500})
      for (const DivergenceSpec& spec : specs()) {
        std::vector<double> values = logits(3 * columns, "both", dtype);
        values[0] = -200, values[columns] = 200;  // weights that vanish, and one that is all
        Owned s(device_, {3, columns}, dtype, values), t(device_, {3, columns}, dtype, values),
            targets(device_, {3}, DType::kI32, {0, 0, 0}), loss(device_, {3}, dtype),
            kept(device_, {3, kDivergenceStatistics}, dtype), ds(device_, {3, columns}, dtype);
        ops().divergence(spec, s, t, targets, loss, kept);
        ops().divergence_backward(spec, s, t, targets, kept, 1, ds);
        for (const double value : loss.values()) EXPECT_EQ(value, 0) << name_of(spec, dtype, columns);
        for (const double value : ds.values()) ASSERT_EQ(value, 0) << name_of(spec, dtype, columns);
      }
}

TEST_P(Divergences, N13_TheSquareOfTheTemperatureKeepsTheSizeOfGradients) {
  constexpr std::int64_t rows = 64, columns = 257;
  std::vector<double> student = numbers(rows * columns, "small student", DType::kF32),
                      teacher = numbers(rows * columns, "small teacher", DType::kF32);
  const auto with_deviation = [](std::vector<double>& values) {
    const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
    for (double& x : values) x *= 0.3 / std::sqrt(squares / static_cast<double>(values.size()));
  };
  with_deviation(student), with_deviation(teacher);
  Owned s(device_, {rows, columns}, DType::kF32, student), t(device_, {rows, columns}, DType::kF32, teacher),
      targets(device_, {rows}, DType::kI32, std::vector<double>(rows, 0.0)),
      loss(device_, {rows}, DType::kF32), kept(device_, {rows, kDivergenceStatistics}, DType::kF32),
      ds(device_, {rows, columns}, DType::kF32);
  for (const Divergence form : {Divergence::kForward, Divergence::kReverse}) {
    double size[2] = {};
    for (const int cold : {1, 0}) {
      const double temperature = cold == 1 ? 1 : 4;
      const DivergenceSpec spec{form, temperature, 0};
      ops().divergence(spec, s, t, targets, loss, kept);
      ops().divergence_backward(spec, s, t, targets, kept, temperature * temperature, ds);
      const auto gradient = ds.values();
      size[cold] = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    }
    EXPECT_NEAR(size[0] / size[1], 1, 0.1);
  }
}

TEST_P(Divergences, OfEqualLogitsTheFirstAreChosen) {
  const std::vector<double> teacher{1, 2, 2, -0.0, 2, 0.0, 3, 2}, student{0, 1, 0, 1, 0, 1, 0, 1};
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (std::int64_t k = 1; k < 8; ++k) {
      const DivergenceSpec spec{Divergence::kTopK, 1, k};
      Owned s(device_, {1, 8}, dtype, student), t(device_, {1, 8}, dtype, teacher),
          targets(device_, {1}, DType::kI32, {0}), loss(device_, {1}, dtype),
          kept(device_, {1, kDivergenceStatistics}, dtype);
      ops().divergence(spec, s, t, targets, loss, kept);
      EXPECT_NEAR(loss.values()[0], loss_of(spec, student.data(), teacher.data(), 8), 1e-6) << k;
    }
}

TEST_P(Divergences, ManyEqualLogitsAreCountedBitByBit) {
  constexpr std::int64_t columns = 3000;
  std::vector<double> teacher(columns);
  for (std::int64_t j = 0; j < columns; ++j) teacher[j] = static_cast<double>(j % 2);
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const std::int64_t k : {1, 700, 1500, 1600}) {
      const auto student = logits(columns, "student", dtype);
      Owned s(device_, {1, columns}, dtype, student), t(device_, {1, columns}, dtype, teacher),
          targets(device_, {1}, DType::kI32, {0}), loss(device_, {1}, dtype),
          kept(device_, {1, kDivergenceStatistics}, dtype);
      ops().divergence({Divergence::kTopK, 1, k}, s, t, targets, loss, kept);
      EXPECT_NEAR(loss.values()[0],
                  loss_of({Divergence::kTopK, 1, k}, student.data(), teacher.data(), columns), 2e-4)
          << k;
    }
}

TEST_P(Divergences, ExtremeLogits) {
  const double most = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    // A class that the teacher excludes, one that the student does, and a NaN.
    Owned s(device_, {3, 3}, dtype, {0, 0, 0, -most, 0, 0, 0, std::nan(""), 0}),
        t(device_, {3, 3}, dtype, {-most, 0, 0, 0, 0, 0, 0, 0, 0}),
        targets(device_, {3}, DType::kI32, {0, 0, 0}), loss(device_, {3}, dtype),
        kept(device_, {3, kDivergenceStatistics}, dtype);
    ops().divergence({}, s, t, targets, loss, kept);
    const auto losses = loss.values();
    EXPECT_NEAR(losses[0], std::log(1.5), 1e-6);
    EXPECT_EQ(losses[1], most);
    EXPECT_TRUE(std::isnan(losses[2]));
  }
}

TEST_P(Divergences, NeitherAllocateNorDependOnThreads) {
  constexpr std::int64_t rows = 33, columns = 1100;
  Owned s(device_, {rows, columns}, DType::kF32, logits(rows * columns, "student", DType::kF32)),
      t(device_, {rows, columns}, DType::kF32, logits(rows * columns, "teacher", DType::kF32)),
      targets(device_, {rows}, DType::kI32, std::vector<double>(rows, 1.0)),
      loss(device_, {rows}, DType::kF32), kept(device_, {rows, kDivergenceStatistics}, DType::kF32),
      ds(device_, {rows, columns}, DType::kF32);
  for (const DivergenceSpec& spec : specs()) {
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      expect_no_allocations(device_, [&] {
        ops().divergence(spec, s, t, targets, loss, kept);
        ops().divergence_backward(spec, s, t, targets, kept, 1, ds);
      });
      const std::vector<std::vector<std::byte>> all = {loss.bytes(), ds.bytes()};
      if (threads == 1) first = all;
      EXPECT_EQ(all, first) << threads;
    }
  }
}

TEST_P(Divergences, RefuseWhatDoesNotFit) {
  Owned s(device_, {2, 3}, DType::kF32), t(device_, {2, 4}, DType::kF32), same(device_, {2, 3}, DType::kF32),
      targets(device_, {2}, DType::kI32, {0, 0}), loss(device_, {2}, DType::kF32),
      kept(device_, {2, kDivergenceStatistics}, DType::kF32);
  const auto message = [&](const DivergenceSpec& spec, TensorView teacher) {
    return message_of([&] { ops().divergence(spec, s, teacher, targets, loss, kept); });
  };
  EXPECT_THAT(message({}, t), ::testing::HasSubstr("teacher"));
  EXPECT_THAT(message({Divergence::kForward, 0, 0}, same),
              ::testing::HasSubstr(device_says("divergence: the temperature is 0")));
  EXPECT_THAT(message({Divergence::kTopK, 1, 0}, same),
              ::testing::HasSubstr(device_says("divergence: top_k is 0, expected at least 1")));
}

constexpr StateDistance kDistances[] = {StateDistance::kMse, StateDistance::kNormalisedMse,
                                        StateDistance::kCosine};

double distance_of(StateDistance form, const double* y, const double* t, std::int64_t n) {
  double squares = 0, own = 0, other = 0, product = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    squares += (y[j] - t[j]) * (y[j] - t[j]);
    own += y[j] * y[j], other += t[j] * t[j], product += y[j] * t[j];
  }
  if (form == StateDistance::kMse) return squares / static_cast<double>(n);
  if (form == StateDistance::kNormalisedMse) return other == 0 ? 0 : squares / other;
  return own * other == 0 ? 1 : 1 - product / std::sqrt(own * other);
}

TEST_P(Divergences, N13_DistancesAndTheirGradientsAreThoseOfTheDefinition) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const std::int64_t columns : {1, 9, 700})
      for (const StateDistance form : kDistances) {
        constexpr std::int64_t rows = 6;
        auto student = numbers(rows * columns, "student", dtype),
             teacher = numbers(rows * columns, "teacher", dtype);
        std::fill_n(teacher.begin() + 2 * columns, columns, 0.0);  // a teacher of zeros
        std::copy_n(teacher.begin(), columns, student.begin());    // equal rows
        const std::vector<double> targets{0, -1, 0, 5, 0, -1};
        const auto before = numbers(rows * columns, "before", dtype);
        Owned s(device_, {rows, columns}, dtype, student), t(device_, {rows, columns}, dtype, teacher),
            wanted(device_, {rows}, DType::kI32, targets), loss(device_, {rows}, arithmetic(dtype)),
            kept(device_, {rows, kDistanceStatistics}, arithmetic(dtype)),
            ds(device_, {rows, columns}, dtype), sum(device_, {rows, columns}, dtype, before);
        auto& ops = device_.family<StateDistanceOps>();
        ops.distance(form, s, t, wanted, loss, kept);
        ops.distance_backward(s, t, kept, 0.5, ds, false);
        ops.distance_backward(s, t, kept, 0.5, sum, true);
        const auto losses = loss.values(), gradients = ds.values(), sums = sum.values();
        for (std::int64_t r = 0; r < rows; ++r) {
          std::vector<double> y(student.begin() + r * columns, student.begin() + (r + 1) * columns);
          const double* const other = teacher.data() + r * columns;
          const std::string where = std::string(dtype_name(dtype)) + " columns " + std::to_string(columns) +
                                    " form " + std::to_string(static_cast<int>(form)) + " row " +
                                    std::to_string(r);
          const bool counts = targets[r] >= 0;
          const double expected = counts ? distance_of(form, y.data(), other, columns) : 0;
          // Sums are in double.
          const double rounding = 8 * unit(arithmetic(dtype)) + static_cast<double>(columns) * 0x1p-53;
          EXPECT_NEAR(losses[r], expected, rounding * (1 + expected)) << where;
          if (r == 0) {
            EXPECT_EQ(losses[r], 0) << where;
          }
          for (std::int64_t j = 0; j < columns; ++j) {
            const double start = y[j], step = 1e-4 * (1 + std::abs(start));
            y[j] = start + step;
            const double up = distance_of(form, y.data(), other, columns);
            y[j] = start - step;
            const double down = distance_of(form, y.data(), other, columns);
            y[j] = start;
            const double slope = counts && r != 0 ? 0.5 * (up - down) / (2 * step) : 0;
            const double found = gradients[r * columns + j];
            if (r == 0 || !counts) {
              EXPECT_EQ(found, 0) << where;
            } else {
              EXPECT_NEAR(found, slope, 1e-6 + 4 * unit(dtype) * std::abs(slope)) << where << " at " << j;
            }
            EXPECT_NEAR(sums[r * columns + j], before[r * columns + j] + found,
                        4 * unit(dtype) * (1 + std::abs(before[r * columns + j]) + std::abs(found)))
                << where;
          }
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Device, Divergences, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::divergence_test
