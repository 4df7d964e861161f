// Causal convolutions: every set against plain sums on double within a derived bound, documents, splits of
// the work, and steps, which have the bits of the whole sequence.
#include "testing.hpp"

namespace tenon::kernels::causal_conv_test {
namespace {

using namespace testing;

struct Size {
  std::int64_t batch, time, width;
};
// Sequences shorter than the convolution, and around a block of positions.
constexpr Size kSizes[] = {{1, 1, 4}, {2, 3, 4}, {2, 64, 4}, {1, 66, 3}, {1, 130, 1}, {1, 200, 7}};

/// Runs with and without whole vectors, out of order in the wider row.
const std::vector<JoinedRun> kRuns = {{90, 0, 64}, {5, 64, 16}, {30, 80, 7}, {0, 87, 0}};
constexpr std::int64_t kColumns = 160, kJoined = 87;

template <class S>
struct Problem {
  Size size;
  std::vector<S> x, dy;
  std::vector<Arith<S>> weight, bias;
  std::vector<std::int32_t> documents;
};

template <class S>
Problem<S> problem(Size size) {
  const std::size_t rows = size.batch * size.time;
  Problem<S> p{size,
               random_values<S>(rows * kColumns, 1),
               random_values<S>(rows * kJoined, 2),
               random_values<Arith<S>>(kJoined * size.width, 3),
               random_values<Arith<S>>(kJoined, 4),
               {}};
  for (std::int64_t b = 0; b < size.batch; ++b)
    for (std::int64_t t = 0; t < size.time; ++t)
      p.documents.push_back(static_cast<std::int32_t>((t + b) / 9));
  return p;
}

template <class S>
struct Results {
  std::vector<S> y, dx;
  std::vector<Arith<S>> dweight, dbias;
};

template <class S>
CausalConvArgs<S> arguments(const Problem<S>& p, Results<S>& r) {
  CausalConvArgs<S> args;
  args.batch = p.size.batch, args.time = p.size.time, args.width = p.size.width;
  args.columns = kColumns, args.channels = kJoined, args.runs = kRuns.data();
  args.run_count = static_cast<std::int64_t>(kRuns.size()) - 1;
  args.x = p.x.data(), args.documents = p.documents.data();
  args.weight = p.weight.data(), args.bias = p.bias.data(), args.y = r.y.data();
  args.dy = p.dy.data(), args.dx = r.dx.data(), args.dweight = r.dweight.data(), args.dbias = r.dbias.data();
  return args;
}

template <class S>
Results<S> run(const CausalConvOps<S>& ops, const Problem<S>& p, std::int64_t piece, bool accumulate) {
  Results<S> r{p.dy, p.x, p.weight, p.bias};
  auto args = arguments(p, r);
  args.accumulate = accumulate;
  std::vector<Arith<S>> workspace(ops.workspace(args), std::numeric_limits<Arith<S>>::quiet_NaN());
  for (std::int64_t i = 0; i < conv_blocks(args); i += piece)
    ops.forward(args, i, std::min(conv_blocks(args), i + piece), workspace.data());
  for (std::int64_t i = 0; i < args.run_count; i += piece)
    ops.backward(args, i, std::min(args.run_count, i + piece), workspace.data());
  return r;
}

/// y and gradients from the definition.
template <class S>
Results<double> plain(const Problem<S>& p, bool accumulate) {
  const auto x = to_double(p.x), dy = to_double(p.dy), weight = to_double(p.weight), bias = to_double(p.bias);
  const std::int64_t k = p.size.width;
  Results<double> r{dy, x, std::vector<double>(weight.size(), 0), std::vector<double>(bias.size(), 0)};
  if (accumulate) r.dweight = weight, r.dbias = bias;
  for (const JoinedRun& run : kRuns)
    for (std::int64_t row = 0; row < p.size.batch * p.size.time; ++row)
      for (std::int64_t c = 0; c < run.width; ++c) r.dx[row * kColumns + run.from + c] = 0;
  for (const JoinedRun& run : kRuns)
    for (std::int64_t c = run.to; c < run.to + run.width; ++c)
      for (std::int64_t row = 0; row < p.size.batch * p.size.time; ++row) {
        const auto at = [&](std::int64_t j) { return (row - j) * kColumns + run.from + c - run.to; };
        const auto seen = [&](std::int64_t j) {
          return row % p.size.time >= j && p.documents[row - j] == p.documents[row];
        };
        double v = bias[c];
        for (std::int64_t j = 0; j < k; ++j)
          if (seen(j)) v += weight[c * k + k - 1 - j] * x[at(j)];
        const double s = 1 / (1 + std::exp(-v)), dv = dy[row * kJoined + c] * s * (1 + v * (1 - s));
        r.y[row * kJoined + c] = v * s;
        r.dbias[c] += dv;
        for (std::int64_t j = 0; j < k; ++j)
          if (seen(j)) {
            r.dweight[c * k + k - 1 - j] += dv * x[at(j)];
            r.dx[at(j)] += dv * weight[c * k + k - 1 - j];
          }
      }
  return r;
}

template <class S>
struct CausalConvTest : ::testing::Test {};
TYPED_TEST_SUITE(CausalConvTest, Storages);

TYPED_TEST(CausalConvTest, EverySetStaysWithinItsBound) {
  using S = TypeParam;
  for (const Size size : kSizes)
    for (const bool accumulate : {false, true}) {
      const auto p = problem<S>(size);
      const auto exact = plain(p, accumulate);
      SameAcrossFusingSets<S> y, dx;
      for (const KernelTable* set : all_sets()) {
        const auto& kernels = ops<S>(*set).causal_conv;
        const auto r = run(kernels, p, 100, accumulate);
        const std::string where = std::string(set->name) + ", T " + std::to_string(size.time);
        // Values are at most width + 1 in magnitude, and slopes at most 1.1: that many terms and the maps of
        // SiLU round 16 times at most; sums over positions have one term for each.
        const double one = (size.width + 1) * (size.width + 16) * kFloatRoundoff;
        const double sums = (size.batch * size.time + 1) * (one + 32 * kFloatRoundoff);
        const auto stored = [&](const std::vector<double>& values) {
          return [&values, one](std::size_t i) { return one + 2 * roundoff<S>() * std::abs(values[i]); };
        };
        EXPECT_TRUE(within(r.y, exact.y, stored(exact.y))) << where;
        EXPECT_TRUE(within(r.dx, exact.dx, stored(exact.dx))) << where;
        EXPECT_TRUE(within(r.dweight, exact.dweight, [&](std::size_t) { return sums; })) << where;
        EXPECT_TRUE(within(r.dbias, exact.dbias, [&](std::size_t) { return sums; })) << where;
        const auto pieces = run(kernels, p, 1, accumulate);
        EXPECT_TRUE(same_bits(r.y, pieces.y) && same_bits(r.dx, pieces.dx) &&
                    same_bits(r.dweight, pieces.dweight) && same_bits(r.dbias, pieces.dbias))
            << where << ": another split gave other bits";
        y.see(*set, r.y);
        dx.see(*set, r.dx);
      }
    }
}

TYPED_TEST(CausalConvTest, N6_N10_StepsHaveTheBitsOfTheWholeSequence) {
  using S = TypeParam;
  const auto p = problem<S>({1, 66, 4});
  for (const KernelTable* set : all_sets()) {
    const auto& kernels = ops<S>(*set).causal_conv;
    const auto whole = run(kernels, p, 100, false);
    Results<S> r{p.dy, p.x, p.weight, p.bias};
    const auto args = arguments(p, r);
    std::vector<Arith<S>> workspace(kernels.workspace(args));
    for (std::int64_t t = 0, count = 1; t < 66;
         t += count, count = std::min<std::int64_t>(count + 1, 66 - t)) {
      std::vector<S> kept(3 * kJoined);
      std::vector<std::int32_t> documents(3);
      for (std::int64_t i = 0; i < 3; ++i) {
        if (t - 3 + i < 0) continue;
        documents[i] = p.documents[t - 3 + i];
        for (const JoinedRun& run : kRuns)
          std::memcpy(&kept[i * kJoined + run.to], &p.x[(t - 3 + i) * kColumns + run.from],
                      run.width * sizeof(S));
      }
      const ConvPlaces<S> places{t, t, count, kept.data(), documents.data()};
      kernels.step(args, places, 0, 1, workspace.data());
      kernels.step(args, places, 1, args.run_count, workspace.data());
    }
    EXPECT_TRUE(same_bits(r.y, whole.y)) << set->name;
  }
}

}  // namespace
}  // namespace tenon::kernels::causal_conv_test
