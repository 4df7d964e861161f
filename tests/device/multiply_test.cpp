// Products of elements against loops in double: values, rows, rotations of pairs and their inverse, and
// refusals.
#include "device_test.hpp"

#include <tenon/sdk/ops/multiply.hpp>

#include <cmath>

namespace tenon::testing::multiply_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};

class Multiplications : public OnEveryChoice {
 protected:
  MultiplyOps& ops() { return device_.family<MultiplyOps>(); }
};

// Small integers: every product and sum is exact in all three types.
TEST_P(Multiplications, GiveTheProductsOfElements) {
  for (const DType dtype : kActivations)
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{40003}}) {
      const auto a = integers(n, 7, "a"), b = integers(n, 5, "b"), old = integers(n, 9, "old");
      std::vector<double> product(a.size()), sum(a.size());
      for (std::size_t i = 0; i < a.size(); ++i) product[i] = a[i] * b[i], sum[i] = old[i] + product[i];
      Owned a_t(device_, Shape{n}, dtype, a), b_t(device_, Shape{n}, dtype, b),
          y(device_, Shape{n}, dtype, old);
      ops().multiply(a_t, b_t, y, true);
      EXPECT_EQ(y.values(), sum) << dtype_name(dtype);
      ops().multiply(a_t, b_t, y, false);
      EXPECT_EQ(y.values(), product) << dtype_name(dtype);
      ops().multiply(a_t, b_t, b_t, false);
      EXPECT_EQ(b_t.values(), product) << dtype_name(dtype) << ": in place";
    }
}

TEST_P(Multiplications, GiveEveryRowItsFactor) {
  for (const DType dtype : kActivations)
    for (const auto& [rows, columns] : {std::pair{0, 3}, std::pair{1, 1}, std::pair{301, 131}}) {
      const auto x = integers(rows * columns, 7, "x"), factors = integers(rows, 5, "factors");
      std::vector<double> wanted = x;
      for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] *= factors[i / columns];
      Owned x_t(device_, {rows, columns}, dtype, x), factors_t(device_, {rows}, arithmetic(dtype), factors);
      ops().multiply_rows(x_t, factors_t);
      EXPECT_EQ(x_t.values(), wanted) << dtype_name(dtype);
    }
}

/// Angles of no pattern, so that a wrong line or a wrong pair is seen.
std::vector<double> angles_table(std::int64_t lines, std::int64_t half, DType dtype) {
  std::vector<double> table(2 * lines * half);
  const auto angle = normals(lines * half, "angles");
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t j = 0; j < half; ++j) {
      table[2 * line * half + j] = std::cos(3 * angle[line * half + j]);
      table[(2 * line + 1) * half + j] = std::sin(3 * angle[line * half + j]);
    }
  return rounded(table, arithmetic(dtype));
}

TEST_P(Multiplications, RotatePairsOfHalves) {
  for (const DType dtype : kActivations)
    for (const auto& [batch, time, heads, half] :
         {std::tuple{1, 1, 1, 1}, std::tuple{3, 7, 2, 3}, std::tuple{2, 65, 3, 40}})
      for (const bool named : {false, true}) {
        const std::int64_t rows = batch * time, width = heads * 2 * half, n = rows * width;
        const std::int64_t lines = named ? time + 5 : time;
        const auto x = numbers(n, "x", dtype), old = numbers(n, "old", dtype),
                   table = angles_table(lines, half, dtype);
        const auto positions = integers(rows, lines, "positions");
        Owned x_t(device_, {rows, width}, dtype, x), y(device_, {rows, width}, dtype),
            table_t(device_, {lines, 2, half}, arithmetic(dtype), table),
            positions_t(device_, {rows}, DType::kI32, positions);
        const TensorView given = named ? TensorView(positions_t) : TensorView();
        for (const bool inverse : {false, true}) {
          std::vector<double> wanted(n);
          for (std::int64_t r = 0; r < rows; ++r) {
            const auto line = named ? static_cast<std::int64_t>(positions[r]) : r % time;
            for (std::int64_t h = 0; h < heads; ++h)
              for (std::int64_t j = 0; j < half; ++j) {
                const std::int64_t at = r * width + h * 2 * half + j;
                const double c = table[2 * line * half + j],
                             s = (inverse ? -1 : 1) * table[(2 * line + 1) * half + j];
                wanted[at] = x[at] * c - x[at + half] * s;
                wanted[at + half] = x[at + half] * c + x[at] * s;
              }
          }
          // Two products and their sum, then one rounding to the type; relative to the largest element.
          const double bound = 3 * unit(arithmetic(dtype)) + unit(dtype);
          ops().rotate(x_t, table_t, given, inverse, y, false);
          EXPECT_LE(relative_error(y.values(), wanted), bound) << dtype_name(dtype) << " inverse " << inverse;
          y.fill(old);
          ops().rotate(x_t, table_t, given, inverse, y, true);
          for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += old[i];
          EXPECT_LE(relative_error(y.values(), wanted), bound + unit(arithmetic(dtype)))
              << dtype_name(dtype) << " added";
        }
        Owned in_place(device_, {rows, width}, dtype, x);
        ops().rotate(x_t, table_t, given, false, y, false);
        ops().rotate(in_place, table_t, given, false, in_place, false);
        EXPECT_EQ(in_place.bytes(), y.bytes()) << dtype_name(dtype);
      }
}

TEST_P(Multiplications, DoNotDependOnTheNumberOfThreads) {
  const std::int64_t rows = 777, width = 96;
  for (const DType dtype : kActivations) {
    Owned x(device_, {rows, width}, dtype, numbers(rows * width, "x", dtype)),
        y(device_, {rows, width}, dtype),
        table(device_, {rows, 2, 16}, arithmetic(dtype), angles_table(rows, 16, dtype));
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      ops().rotate(x, table, {}, false, y, false);
      std::vector<std::vector<std::byte>> all = {y.bytes()};
      ops().multiply(x, x, y, true);
      all.push_back(y.bytes());
      if (threads == 1) first = all;
      EXPECT_EQ(all, first) << threads;
    }
  }
}

TEST_P(Multiplications, AllocateNothing) {
  Owned x(device_, {4, 6}, DType::kF32, normals(24, "x")),
      factors(device_, {4}, DType::kF32, normals(4, "f")),
      table(device_, {4, 2, 3}, DType::kF32, normals(24, "t"));
  expect_no_allocations(device_, [&] {
    ops().multiply(x, x, x, false);
    ops().multiply_rows(x, factors);
    ops().rotate(x, table, {}, false, x, false);
  });
}

TEST_P(Multiplications, RefuseSizesThatDoNotFit) {
  Owned x(device_, {4, 6}, DType::kF32, normals(24, "x")), small(device_, {4, 5}, DType::kF32),
      wide(device_, {4, 6}, DType::kF64), table(device_, {3, 2, 3}, DType::kF32, normals(18, "t")),
      odd(device_, {4, 2, 2}, DType::kF32), beyond(device_, {4}, DType::kI32, {0, 1, 3, 2}),
      few(device_, {3}, DType::kI32, {0, 1, 2});
  EXPECT_THAT(message_of([&] { ops().multiply(x, small, x, false); }), ::testing::HasSubstr("multiply"));
  EXPECT_THAT(message_of([&] { ops().multiply(x, wide, x, false); }), ::testing::HasSubstr("multiply"));
  EXPECT_THAT(message_of([&] { ops().multiply_rows(x, few); }), ::testing::HasSubstr("factors"));
  EXPECT_THAT(
      message_of([&] { ops().rotate(x, odd, {}, false, x, false); }),
      ::testing::HasSubstr(device_says("rotate: expected a table [lines, 2, half] and x of whole heads "
                                       "of 2 half columns, found [4, 2, 2] and [4, 6]")));
  EXPECT_THAT(message_of([&] { ops().rotate(x, table, few, false, x, false); }),
              ::testing::HasSubstr("one position per row of x [4, 6], found positions [3]"));
  EXPECT_THAT(message_of([&] { ops().rotate(x, table, beyond, false, x, false); }),
              ::testing::HasSubstr("positions[2] is 3, expected less than 3 and not negative"));
}

INSTANTIATE_TEST_SUITE_P(Device, Multiplications, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::multiply_test
