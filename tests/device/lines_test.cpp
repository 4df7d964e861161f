// Weighted sums of lines against their definition: the bits of one chain in the arithmetic type, the bound
// that follows for a sum in double, and the adjoint.
#include "device_test.hpp"

#include <tenon/ops/reduce.hpp>

#include <limits>

namespace tenon::testing::lines_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64};

struct LineCase {
  const char* name;
  std::int64_t columns;
  std::vector<std::vector<LineTerm>> rows;
};
/// Weights that f32 has to round.
const LineCase kCases[] = {
    {"copies", 3, {{{2, 1}}, {{0, 1}}, {{0, 1}}, {{1, 1}}}},
    {"between neighbours", 3, {{{0, 1}}, {{0, 2. / 3}, {1, 1. / 3}}, {{1, 0.3}, {2, 0.7}}, {{2, 1}}}},
    {"one weighted, one of nothing, a column twice, none of column 1",
     4,
     {{{3, -0.1}}, {}, {{2, 0.4}, {2, 0.6}}, {{0, 1e-3}}, {}}},
    // More terms than a single pass of any device adds, not in the order of columns.
    {"many",
     5,
     {{{4, .1}, {0, .7}, {3, -.2}},
      {{1, .3}, {0, -.9}, {2, .5}, {4, 1}, {3, .6}},
      {{2, .1}, {2, .2}, {1, .4}, {0, .8}, {0, -1.6}, {3, 3.2}, {4, -6.4}, {1, .9}, {2, -.7}},
      {{4, .3}, {1, .2}, {0, .1}, {3, .6}}}},
    {"no columns", 0, {{}, {}}},
    {"no rows", 3, {}}};

constexpr std::pair<std::int64_t, std::int64_t> kSides[] = {{1, 1}, {7, 1},  {3, 5},
                                                            {2, 8}, {2, 67}, {1, 20011}};

SparseAxisSpec spec_of(const LineCase& c, DType dtype) {
  SparseAxisSpec spec;
  spec.dtype = dtype;
  spec.columns = c.columns;
  for (const auto& row : c.rows) {
    spec.terms.insert(spec.terms.end(), row.begin(), row.end());
    spec.offsets.push_back(static_cast<std::int64_t>(spec.terms.size()));
  }
  return spec;
}

/// The case with rows and columns exchanged, rows ascending.
LineCase transposed(const LineCase& c) {
  LineCase result{c.name, static_cast<std::int64_t>(c.rows.size()), {}};
  result.rows.resize(c.columns);
  for (std::size_t r = 0; r < c.rows.size(); ++r)
    for (const LineTerm& term : c.rows[r])
      result.rows[term.column].push_back({static_cast<std::int64_t>(r), term.weight});
  return result;
}

/// The chain of the definition in T, and its largest distance from the exact sum: each of n terms has a
/// rounded weight, a rounded product and at most n - 1 rounded sums, so n + 1 units of the sum of magnitudes.
template <typename T>
struct Chains {
  Chains(const LineCase& c, const std::vector<double>& x, std::int64_t outer, std::int64_t inner) {
    for (std::int64_t o = 0; o < outer; ++o)
      for (const auto& row : c.rows)
        for (std::int64_t i = 0; i < inner; ++i) {
          T sum = 0;
          double whole = 0, magnitude = 0;
          for (std::size_t e = 0; e < row.size(); ++e) {
            const double from = x[(o * c.columns + row[e].column) * inner + i];
            const T product = static_cast<T>(row[e].weight) * static_cast<T>(from);
            sum = e == 0 ? product : sum + product;
            whole += row[e].weight * from, magnitude += std::abs(row[e].weight * from);
          }
          chain.push_back(sum);
          exact.push_back(whole);
          const double unit = std::numeric_limits<T>::epsilon() / 2;
          bound.push_back(1.01 * static_cast<double>(row.size() + 1) * unit * magnitude);
        }
  }
  std::vector<double> chain, exact, bound;
};

Chains<double> chains(DType dtype, const LineCase& c, const std::vector<double>& x, std::int64_t outer,
                      std::int64_t inner) {
  if (dtype == DType::kF64) return {c, x, outer, inner};
  Chains<float> narrow(c, x, outer, inner);
  Chains<double> result({"", 0, {}}, {}, 0, 0);
  result.chain = narrow.chain, result.exact = narrow.exact, result.bound = narrow.bound;
  return result;
}

class Lines : public OnEveryChoice {
 protected:
  std::unique_ptr<SparseAxisOp> prepare(const LineCase& c, DType dtype) {
    return device_.family<SparseAxisOps>().prepare(spec_of(c, dtype));
  }
};

TEST_P(Lines, AreChainsInTheOrderOfTheirTermsBothWays) {
  for (const LineCase& c : kCases)
    for (const DType dtype : kDTypes)
      for (const auto& [outer, inner] : kSides) {
        const auto rows = static_cast<std::int64_t>(c.rows.size());
        const Shape coarse{outer, c.columns, inner}, fine{outer, rows, inner};
        const auto x = numbers(coarse.elements(), "x", dtype), y = numbers(fine.elements(), "y", dtype);
        const auto sum = prepare(c, dtype);
        Owned from(device_, coarse, dtype, x), to(device_, fine, dtype, y);
        const auto expect = [&](const Owned& found, const Chains<double>& wanted, const char* way) {
          const std::string where =
              std::string(c.name) + ", " + std::string(dtype_name(dtype)) + " " + coarse.text() + ", " + way;
          const std::vector<double> values = found.values();
          EXPECT_EQ(values, wanted.chain) << where;
          for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_LE(std::abs(values[i] - wanted.exact[i]), wanted.bound[i]) << where << " " << i;
        };
        expect_no_allocations(device_, [&, o = outer, i = inner] { sum->forward(from, to, o, i); });
        expect(to, chains(dtype, c, x, outer, inner), "forward");
        to.fill(y);
        expect_no_allocations(device_, [&, o = outer, i = inner] { sum->adjoint(to, from, o, i); });
        expect(from, chains(dtype, transposed(c), y, outer, inner), "adjoint");
      }
}

// <S x, y> = <x, S* y> with whole numbers, whose sums are exact in any order.
TEST_P(Lines, P2_ForwardAndAdjointAreAdjoint) {
  const LineCase c{
      "", 4, {{{3, 2}, {0, -1}}, {{1, 5}}, {}, {{0, 3}, {1, 1}, {2, -4}, {3, 1}, {2, 7}}, {{3, 1}}}};
  const auto whole = [](std::int64_t count, const char* purpose) {
    std::vector<double> values = normals(count, purpose);
    for (double& value : values) value = std::round(4 * value);
    return values;
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (const DType dtype : kDTypes)
    for (const std::int64_t inner : {1, 3, 40}) {
      const Shape coarse{3, 4, inner}, fine{3, 5, inner};
      const auto x = whole(coarse.elements(), "x"), y = whole(fine.elements(), "y");
      const auto sum = prepare(c, dtype);
      const Owned given(device_, coarse, dtype, x), given_back(device_, fine, dtype, y);
      Owned sx(device_, fine, dtype), sy(device_, coarse, dtype);
      sum->forward(given, sx, 3, inner);
      sum->adjoint(given_back, sy, 3, inner);
      EXPECT_EQ(dot(sx.values(), y), dot(x, sy.values())) << dtype_name(dtype) << " " << inner;
      EXPECT_NE(dot(sx.values(), y), 0);
    }
}

// A line that a row does not name does not affect it, and a copy is exact up to the sign of zero.
TEST_P(Lines, ThatARowDoesNotNameHaveNoPartInIt) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kDTypes)
    for (const std::int64_t inner : {1, 16}) {
      const auto sum = prepare({"", 3, {{{0, 1}}, {}, {{0, .5}, {2, .5}}, {{2, 1}}}}, dtype);
      std::vector<double> x(3 * inner, kInf);
      std::fill_n(x.begin(), inner, -0.0);
      std::fill_n(x.end() - inner, inner, 4);
      const Owned from(device_, Shape{1, 3, inner}, dtype, x);
      Owned to(device_, Shape{1, 4, inner}, dtype, std::vector<double>(4 * inner, 7));
      sum->forward(from, to, 1, inner);
      const std::vector<double> y = to.values();
      for (std::int64_t r = 0; r < 4; ++r)
        for (std::int64_t i = 0; i < inner; ++i) {
          const double found = y[r * inner + i];
          EXPECT_EQ(found, (std::vector<double>{0, 0, 2, 4})[r]);
          EXPECT_EQ(std::signbit(found), r == 0);
        }
    }
}

TEST_P(Lines, AreTheSameForAnyNumberOfThreads) {
  const LineCase& c = kCases[3];
  const Shape coarse{37, 5, 1031}, fine{37, 4, 1031};
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3}) {
    set_parallel_threads(threads);
    const auto sum = prepare(c, DType::kF32);
    Owned x(device_, coarse, DType::kF32, numbers(coarse.elements(), "x", DType::kF32)),
        y(device_, fine, DType::kF32);
    sum->forward(x, y, 37, 1031);
    sum->adjoint(y, x, 37, 1031);
    const std::vector<std::vector<std::byte>> found = {y.bytes(), x.bytes()};
    if (threads == 1) first = found;
    EXPECT_EQ(found, first) << threads;
  }
}

TEST_P(Lines, OfTablesThatContradictThemselvesAreRefused) {
  const auto refusal = [&](const std::function<void(SparseAxisSpec&)>& change) {
    SparseAxisSpec spec = spec_of(kCases[1], DType::kF32);
    change(spec);
    return message_of([&] { device_.family<SparseAxisOps>().prepare(spec); });
  };
  EXPECT_EQ(refusal([](SparseAxisSpec&) {}), "");
  EXPECT_THAT(refusal([](SparseAxisSpec& s) { s.dtype = DType::kBF16; }),
              AllOf(HasSubstr("sum of lines"), HasSubstr("bf16")));
  EXPECT_EQ(refusal([](SparseAxisSpec& s) { s.columns = 2; }),
            device_says("sum of lines: term 4 names column 2 of 2"));
  EXPECT_EQ(refusal([](SparseAxisSpec& s) { s.terms[1].column = -1; }),
            device_says("sum of lines: term 1 names column -1 of 3"));
  EXPECT_EQ(refusal([](SparseAxisSpec& s) { s.terms.pop_back(); }),
            device_says("sum of lines: expected offsets from 0 to 5, the number of terms, found 0 to 6"));
  EXPECT_EQ(refusal([](SparseAxisSpec& s) { s.offsets.clear(); }),
            device_says("sum of lines: expected offsets from 0 to 6, the number of terms, found none"));
  EXPECT_EQ(refusal([](SparseAxisSpec& s) { s.offsets[2] = 0; }),
            device_says("sum of lines: expected offsets that do not fall, found 0 after 1"));
  EXPECT_EQ(refusal([](SparseAxisSpec& s) { s.columns = std::int64_t{1} << 31; }),
            device_says("sum of lines: expected 0 to 2147483647 columns and terms, found 2147483648 and 6"));
}

TEST_P(Lines, OfTensorsThatDoNotFitAreRefused) {
  const auto sum = prepare(kCases[1], DType::kF32);
  const Owned x(device_, Shape{2, 3, 5}, DType::kF32), y(device_, Shape{2, 4, 5}, DType::kF32),
      wide(device_, Shape{2, 4, 5}, DType::kF64);
  EXPECT_EQ(message_of([&] { sum->forward(x, y, 2, 5); }), "");
  EXPECT_THAT(message_of([&] { sum->forward(x, wide, 2, 5); }),
              StartsWith(device_says("sum of lines: y is f64 [2, 4, 5], expected 40 elements of f32")));
  EXPECT_THAT(message_of([&] { sum->forward(y, x, 2, 5); }),
              StartsWith(device_says("sum of lines: x is f32 [2, 4, 5], expected 30 elements of f32")));
  EXPECT_THAT(message_of([&] { sum->adjoint(y, x, 1, 5); }),
              StartsWith(device_says("sum of lines: y is f32 [2, 4, 5], expected 20 elements of f32")));
}

INSTANTIATE_TEST_SUITE_P(Device, Lines, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::lines_test
