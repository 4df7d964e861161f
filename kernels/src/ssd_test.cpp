// The state space model: every set, and the chunked form on double, against the recurrence on double; splits
// of the work; long decays; documents; steps. Ids are those of the specification.
#include "testing.hpp"

namespace tenon::kernels::ssd_test {
namespace {

using namespace testing;

struct Size {
  std::int64_t batch, time, heads, head_width, groups, state, chunk;
  std::string text() const {
    return "T " + std::to_string(time) + ", H " + std::to_string(heads) + ", P " +
           std::to_string(head_width) + ", G " + std::to_string(groups) + ", N " + std::to_string(state) +
           ", Q " + std::to_string(chunk);
  }
};

/// Lengths and chunks of the specification; head widths and states with and without whole vectors; groups of
/// one head, of several, and of more than are computed together.
std::vector<Size> sizes() {
  std::vector<Size> all;
  for (const std::int64_t time : {1, 7, 64, 65, 200})
    for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{16}, std::int64_t{64}, time})
      all.push_back({2, time, 4, 20, 2, 17, chunk});
  for (const Size size :
       {Size{1, 65, 1, 1, 1, 1, 33}, Size{1, 140, 5, 16, 1, 32, 128}, Size{1, 70, 6, 64, 3, 64, 64}})
    all.push_back(size);
  return all;
}

template <class S>
struct Problem {
  Size size;
  std::vector<std::int64_t> steps;
  std::int64_t columns = 0;
  std::vector<S> xbc, projected, dy;
  std::vector<Arith<S>> a_log, dt_bias, d, initial, dlast;
  std::vector<std::int32_t> documents;
};

/// Steps are spread over a row of projected, among values that are no steps.
template <class S>
Problem<S> problem(const Size& size, double step_low = -4, double step_high = 1, bool documents = true) {
  Problem<S> p;
  p.size = size;
  p.columns = 2 * size.heads + 3;
  for (std::int64_t h = 0; h < size.heads; ++h) p.steps.push_back(2 * (size.heads - 1 - h) + 1);
  const std::size_t rows = size.batch * size.time,
                    states = size.batch * size.heads * size.state * size.head_width;
  p.xbc = random_values<S>(rows * (size.heads * size.head_width + 2 * size.groups * size.state), 1);
  p.projected = random_values<S>(rows * p.columns, 2, step_low, step_high);
  p.dy = random_values<S>(rows * size.heads * size.head_width, 3);
  p.a_log = random_values<Arith<S>>(size.heads, 4, -1, 2);
  p.dt_bias = random_values<Arith<S>>(size.heads, 5);
  p.d = random_values<Arith<S>>(size.heads, 6);
  p.initial = random_values<Arith<S>>(states, 7);
  p.dlast = random_values<Arith<S>>(states, 8);
  if (!documents) return p;
  // Documents of 9 and 13 positions in turn, the second row shifted, so that they begin within chunks.
  for (std::int64_t b = 0; b < size.batch; ++b)
    for (std::int64_t t = 0; t < size.time; ++t)
      p.documents.push_back(static_cast<std::int32_t>((t + 5 * b) / 22 * 2 + ((t + 5 * b) % 22 >= 9)));
  return p;
}

template <class S>
Problem<double> widened(const Problem<S>& p) {
  return {p.size,
          p.steps,
          p.columns,
          to_double(p.xbc),
          to_double(p.projected),
          to_double(p.dy),
          to_double(p.a_log),
          to_double(p.dt_bias),
          to_double(p.d),
          to_double(p.initial),
          to_double(p.dlast),
          p.documents};
}

template <class S>
struct Results {
  std::vector<S> y, dxbc, dprojected;
  std::vector<Arith<S>> last, dinitial, head_sums;
};

/// Items in pieces of `piece`. Memory that must be written holds NaN before.
template <class S>
Results<S> run(const SsdOps<S>& ops, const Problem<S>& p, std::int64_t piece = 1 << 20) {
  using A = Arith<S>;
  const A nan = std::numeric_limits<A>::quiet_NaN();
  Results<S> r;
  r.y.assign(p.dy.size(), reference::put<S>(nan));
  r.dxbc.assign(p.xbc.size(), reference::put<S>(nan));
  r.dprojected.assign(p.projected.size(), reference::put<S>(7));
  r.last.assign(p.initial.size(), nan);
  r.dinitial.assign(p.initial.size(), nan);
  SsdArgs<S> args;
  args.batch = p.size.batch, args.time = p.size.time, args.heads = p.size.heads;
  args.head_width = p.size.head_width, args.groups = p.size.groups, args.state = p.size.state;
  args.chunk = p.size.chunk, args.columns = p.columns, args.steps = p.steps.data();
  args.dt_max = A(1.5);
  args.xbc = p.xbc.data(), args.projected = p.projected.data();
  args.a_log = p.a_log.data(), args.dt_bias = p.dt_bias.data(), args.d = p.d.data();
  args.documents = p.documents.empty() ? nullptr : p.documents.data();
  args.initial = p.initial.data();
  std::vector<A> states(p.initial.size() * ssd_chunks(args), nan);
  args.states = states.data(), args.y = r.y.data(), args.last = r.last.data();
  std::vector<A> workspace(ops.forward_workspace(args), nan);
  const std::int64_t items = ssd_items(args);
  for (std::int64_t i = 0; i < items; i += piece)
    ops.forward(args, i, std::min(items, i + piece), workspace.data());
  args.dy = p.dy.data(), args.dlast = p.dlast.data();
  args.dxbc = r.dxbc.data(), args.dprojected = r.dprojected.data(), args.dinitial = r.dinitial.data();
  std::vector<A> sums(ssd_head_blocks(args) * p.size.batch * p.size.time * p.size.groups * 2 * p.size.state,
                      nan);
  r.head_sums.assign(p.size.batch * 3 * p.size.heads, nan);
  args.bc_sums = sums.data(), args.head_sums = r.head_sums.data();
  workspace.assign(ops.backward_workspace(args), nan);
  for (std::int64_t i = 0; i < items; i += piece)
    ops.backward(args, i, std::min(items, i + piece), workspace.data());
  ops.finish(args, 0, p.size.batch * p.size.time);
  return r;
}

/// Distance from `exact`, relative to its largest element; NaN is far away. Values in bf16 may round once
/// beyond that.
template <class S>
double distance(const std::vector<S>& values, const std::vector<double>& exact) {
  double largest = 0, far = 0;
  for (const double value : exact) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double off = std::abs(static_cast<double>(reference::get(values[i])) - exact[i]);
    if (sizeof(S) == sizeof(Bf16)) off = std::max(0.0, off - kBf16Roundoff * std::abs(exact[i]));
    if (!(off <= far)) far = std::isnan(off) ? HUGE_VAL : off;
  }
  return far / std::max(largest, 1e-30);  // below, values of float are subnormal
}

template <class S>
void expect_near(const Results<S>& r, const Results<double>& exact, double bound, const std::string& where) {
  EXPECT_LE(distance(r.y, exact.y), bound) << "y: " << where;
  EXPECT_LE(distance(r.last, exact.last), bound) << "last: " << where;
  EXPECT_LE(distance(r.dxbc, exact.dxbc), bound) << "dxbc: " << where;
  EXPECT_LE(distance(r.dprojected, exact.dprojected), bound) << "dprojected: " << where;
  EXPECT_LE(distance(r.dinitial, exact.dinitial), bound) << "dinitial: " << where;
  EXPECT_LE(distance(r.head_sums, exact.head_sums), bound) << "head_sums: " << where;
}

template <class S>
struct SsdTest : ::testing::Test {};
TYPED_TEST_SUITE(SsdTest, Storages);

// An output is a sum of at most N + Q + 1 chains of T positions; the weights' relative errors are those of
// sums of at most 64 terms. With T = 200 that is below 1e-4 of the largest, the specification's bound.
TYPED_TEST(SsdTest, N3_N4_EverySetAndChunkEqualsTheRecurrence) {
  using S = TypeParam;
  for (const Size& size : sizes())
    for (const bool documents : {false, true}) {
      const auto p = problem<S>(size, -4, 1, documents);
      const auto exact = run(reference_double_kernels().f64.ssd, widened(p));
      for (const KernelTable* set : all_sets())
        expect_near(run(ops<S>(*set).ssd, p), exact, 1e-4, std::string(set->name) + ", " + size.text());
    }
}

TEST(SsdOnDoubleTest, N3_N4_ChunkedEqualsTheRecurrence) {
  for (const Size& size : sizes())
    for (const bool documents : {false, true}) {
      const auto p = problem<double>(size, -4, 1, documents);
      expect_near(run(reference_double_kernels().ssd_chunked, p), run(reference_double_kernels().f64.ssd, p),
                  1e-12, size.text());
    }
}

// Steps of about 100 and rates of up to 7: the sums of l reach -1e4 within a chunk.
TYPED_TEST(SsdTest, N8_LongDecaysStayFinite) {
  using S = TypeParam;
  auto p = problem<S>({1, 130, 2, 16, 1, 16, 128}, 20, 60, false);
  for (auto& a : p.a_log) a = 5;  // exp(5) x 1.5, the bound of delta, x 64 positions
  p.documents.clear();
  // A few positions keep the state, so that long and short sums meet in a chunk.
  for (std::size_t i = 0; i < p.projected.size(); ++i)
    if (i / p.columns % 11 == 3) p.projected[i] = reference::put<S>(-30);
  const auto exact = run(reference_double_kernels().f64.ssd, widened(p));
  for (const KernelTable* set : all_sets()) expect_near(run(ops<S>(*set).ssd, p), exact, 1e-4, set->name);
  expect_near(run(reference_double_kernels().ssd_chunked, widened(p)), exact, 1e-12, "chunked on double");
}

TYPED_TEST(SsdTest, SplitsAndFusingSetsHaveTheSameBits) {
  using S = TypeParam;
  const auto p = problem<S>({2, 140, 5, 20, 1, 17, 100});
  SameAcrossFusingSets<S> y, dxbc, dprojected;
  for (const KernelTable* set : all_sets()) {
    const auto whole = run(ops<S>(*set).ssd, p), pieces = run(ops<S>(*set).ssd, p, 1);
    EXPECT_TRUE(same_bits(whole.y, pieces.y)) << set->name;
    EXPECT_TRUE(same_bits(whole.dxbc, pieces.dxbc)) << set->name;
    EXPECT_TRUE(same_bits(whole.dprojected, pieces.dprojected)) << set->name;
    EXPECT_TRUE(same_bits(whole.head_sums, pieces.head_sums)) << set->name;
    y.see(*set, whole.y);
    dxbc.see(*set, whole.dxbc);
    dprojected.see(*set, whole.dprojected);
  }
}

TYPED_TEST(SsdTest, WritesTheColumnsOfStepsAlone) {
  using S = TypeParam;
  const auto p = problem<S>({1, 20, 3, 4, 1, 5, 8});
  for (const KernelTable* set : all_sets()) {
    const auto r = run(ops<S>(*set).ssd, p);
    for (std::size_t i = 0; i < r.dprojected.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i) % p.columns;
      if (std::find(p.steps.begin(), p.steps.end(), column) != p.steps.end()) continue;
      EXPECT_EQ(reference::get(r.dprojected[i]), 7) << set->name << ", element " << i;
    }
  }
}

// N6 and N10 of the recurrence: passes of any length over a sequence give its forward pass; the reference's
// bits, other sets within the bound of N3.
TYPED_TEST(SsdTest, N6_N10_StepsGoOnWithTheState) {
  using S = TypeParam;
  auto p = problem<S>({1, 65, 4, 20, 2, 17, 16});
  std::fill(p.initial.begin(), p.initial.end(), Arith<S>{0});
  const auto exact = run(reference_double_kernels().f64.ssd, widened(p));
  for (const KernelTable* set : all_sets()) {
    const auto& kernels = ops<S>(*set).ssd;
    const auto whole = run(kernels, p);
    std::vector<S> y(p.dy.size());
    std::vector<Arith<S>> state(p.initial.size(), 0);
    SsdArgs<S> args;
    args.batch = 1, args.time = 65, args.heads = 4, args.head_width = 20, args.groups = 2, args.state = 17;
    args.chunk = 16, args.columns = p.columns, args.steps = p.steps.data(), args.dt_max = Arith<S>(1.5);
    args.xbc = p.xbc.data(), args.projected = p.projected.data(), args.documents = p.documents.data();
    args.a_log = p.a_log.data(), args.dt_bias = p.dt_bias.data(), args.d = p.d.data(), args.y = y.data();
    for (std::int64_t t = 0, count = 1; t < 65;
         t += count, count = std::min<std::int64_t>(count + 3, 65 - t)) {
      const bool begins = t > 0 && p.documents[t] != p.documents[t - 1];
      const SsdPlaces<S> places{t, count, state.data(), begins};
      kernels.step(args, places, 0, 3);
      kernels.step(args, places, 3, 4);
    }
    EXPECT_LE(distance(y, exact.y), 1e-4) << set->name;
    EXPECT_LE(distance(state, exact.last), 1e-4) << set->name;
    if (set == &reference_kernels()) {
      EXPECT_TRUE(same_bits(y, whole.y));
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::ssd_test
