// Bodies of Mamba-2 layers on the host launcher: outputs against the recurrence in double, the same bits for
// both orders of blocks and threads, shared memory within what every launch is granted, and NaN that stays.
// Gradients by what is linear, and by differences along a direction; tests/device has every element of them.
#include "testing.hpp"

#include <tenon/kernels/cuda/causal_conv.hpp>
#include <tenon/kernels/cuda/gated_norm.hpp>
#include <tenon/kernels/cuda/ssd.hpp>
#include <tenon/kernels/cuda/ssd_backward.hpp>
#include <tenon/kernels/cuda/ssd_tiles.hpp>

#include <limits>
#include <numeric>

namespace tenon::kernels::cuda::ssd_test {
namespace {

using testing::random_values;
using testing::same_bits;
using testing::to_double;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

struct Sizes {
  std::int64_t batch, time, heads, head_width, groups, state, chunk, document;
};
// Around the edges of tiles (32 places) and slices (64 or 32 columns), in chunks that are no multiple of
// tiles.
const Sizes kSizes[] = {{1, 1, 1, 1, 1, 1, 1, 0},
                        {2, 33, 4, 5, 2, 3, 16, 7},
                        {1, 100, 2, 66, 1, 9, 64, 0},
                        {1, 70, 3, 8, 1, 70, 37, 11},
                        {2, 65, 2, 64, 2, 64, 256, 0}};

template <class S>
struct SsdProblem {
  using A = Arith<S>;
  SsdArgs<S> args;
  std::vector<std::int64_t> step_columns;
  std::vector<S> xbc, projected, dy, y, dxbc, dprojected;
  std::vector<A> a_log, dt_bias, d, initial, dlast, delta, l, tile_sums, states, last, after, dinitial,
      products, of_before, of_after, of_rate, of_steps, x_du, x_dy, decays, da_log, ddt_bias, dd;
  std::vector<std::int32_t> documents;

  explicit SsdProblem(const Sizes& s) {
    args.batch = s.batch, args.time = s.time, args.heads = s.heads, args.head_width = s.head_width;
    args.groups = s.groups, args.state = s.state, args.chunk = s.chunk, args.columns = s.heads + 2;
    const std::int64_t places = s.batch * s.time, places_of_heads = places * s.heads;
    const std::int64_t slices = SsdTiles<A>::slices(s.head_width);
    step_columns.resize(s.heads);
    std::iota(step_columns.rbegin(), step_columns.rend(), std::int64_t{1});
    xbc = random_values<S>(places * args.xbc_columns(), 1);
    projected = random_values<S>(places * args.columns, 2, -3, 1);
    dy = random_values<S>(places_of_heads * s.head_width, 3);
    a_log = random_values<A>(s.heads, 4, -2, 2), dt_bias = random_values<A>(s.heads, 5);
    d = random_values<A>(s.heads, 6);
    initial = random_values<A>(args.state_elements(), 7), dlast = random_values<A>(args.state_elements(), 8);
    for (std::int64_t i = 0; i < places; ++i)
      documents.push_back(static_cast<std::int32_t>(s.document > 0 ? i % s.time / s.document : 0));
    const A nothing = std::numeric_limits<A>::quiet_NaN();
    y.assign(dy.size(), reference::put<S>(nothing)), dxbc.assign(xbc.size(), reference::put<S>(nothing));
    dprojected.assign(projected.size(), reference::put<S>(0));
    for (auto* const all : {&delta, &l, &of_before, &of_after, &of_rate, &of_steps})
      all->assign(places_of_heads, nothing);
    for (auto* const all : {&x_du, &x_dy}) all->assign(places_of_heads * slices, nothing);
    for (auto* const all : {&states, &after}) all->assign(args.state_elements() * args.chunks(), nothing);
    for (auto* const all : {&last, &dinitial}) all->assign(args.state_elements(), nothing);
    for (auto* const all : {&da_log, &ddt_bias, &dd}) all->assign(s.heads, nothing);
    tile_sums.assign(args.all_tiles(), nothing);
    products.assign(s.batch * s.heads * args.chunks(), nothing);
    decays.assign(places_of_heads * args.tiles(), nothing);
    args.step_columns = step_columns.data(), args.xbc = xbc.data(), args.projected = projected.data();
    args.a_log = a_log.data(), args.dt_bias = dt_bias.data(), args.d = d.data();
    args.documents = s.document > 0 ? documents.data() : nullptr;
    args.delta = delta.data(), args.l = l.data(), args.tile_sums = tile_sums.data();
  }
  SsdProblem(const SsdProblem&) = delete;
  SsdProblem& operator=(const SsdProblem&) = delete;

  template <class Body>
  static void start(const Body& body, LaunchOrder order) {
    launch_on_host(body.mesh(), body, order);
  }

  void run(LaunchOrder order) {
    const int slices = SsdTiles<A>::slices(args.head_width);
    start(SsdSteps<S>{args}, order);
    start(SsdTileSums<S>{args}, order);
    start(SsdChunkStates<S, SsdPass::kForward>{args, nullptr, states.data()}, order);
    start(SsdPassStates<S, SsdPass::kForward>{args, states.data(), initial.data(), last.data()}, order);
    start(SsdTileProducts<S, SsdRole::kY>{args, nullptr, states.data(), y.data()}, order);
    start(SsdChunkStates<S, SsdPass::kBackward>{args, dy.data(), after.data()}, order);
    start(SsdPassStates<S, SsdPass::kBackward>{args, after.data(), dlast.data(), dinitial.data()}, order);
    start(SsdTileProducts<S, SsdRole::kDu>{args, dy.data(), after.data(), dxbc.data(), x_du.data(),
                                           x_dy.data()},
          order);
    start(SsdTileProducts<S, SsdRole::kDc>{args, dy.data(), states.data(), dxbc.data()}, order);
    start(SsdTileProducts<S, SsdRole::kDb>{args, dy.data(), after.data(), dxbc.data()}, order);
    start(SsdEdgeTerms<S, SsdPass::kForward>{args, dy.data(), states.data(), of_before.data()}, order);
    start(SsdEdgeTerms<S, SsdPass::kBackward>{args, dy.data(), after.data(), of_after.data()}, order);
    start(SsdStateProducts<S>{args, states.data(), after.data(), products.data()}, order);
    start(SsdDecayGradients<S>{args, dy.data(), of_before.data(), decays.data()}, order);
    start(SsdStepGradients<S>{args, slices, decays.data(), products.data(), of_after.data(), x_du.data(),
                              dprojected.data(), of_rate.data(), of_steps.data()},
          order);
    start(SsdHeadSums<S>{args, slices, of_rate.data(), of_steps.data(), x_dy.data(), da_log.data(),
                         ddt_bias.data(), dd.data(), false},
          order);
  }

  /// Largest difference of y from the recurrence, relative to the largest output.
  double error() const {
    const std::int64_t N = args.state, P = args.head_width;
    double worst = 0, largest = 0;
    for (std::int64_t b = 0; b < args.batch; ++b)
      for (std::int64_t head = 0; head < args.heads; ++head) {
        const std::int64_t group = head / args.per_group(), first = (b * args.heads + head) * N * P;
        std::vector<double> h(initial.begin() + first, initial.begin() + first + N * P);
        for (std::int64_t t = 0; t < args.time; ++t) {
          const std::int64_t row = b * args.time + t;
          const auto value = [&](std::int64_t column) {
            return static_cast<double>(reference::get(xbc[row * args.xbc_columns() + column]));
          };
          const double raw =
              reference::get(projected[row * args.columns + step_columns[head]]) + double{dt_bias[head]};
          const double step = std::log1p(std::exp(raw)),
                       decay = std::exp(-step * std::exp(double{a_log[head]}));
          for (std::int64_t p = 0; p < P; ++p) {
            const double x = value(args.x_column(head) + p);
            double sum = d[head] * x;
            for (std::int64_t n = 0; n < N; ++n) {
              double& at = h[n * P + p];
              at = (args.begins(row, t) ? 0 : decay * at) + value(args.b_column(group) + n) * step * x;
              sum += at * value(args.c_column(group) + n);
            }
            worst = std::max(worst, std::abs(reference::get(y[(row * args.heads + head) * P + p]) - sum));
            largest = std::max(largest, std::abs(sum));
          }
        }
      }
    return worst / largest;
  }
};

template <class S>
struct CudaSsdTest : ::testing::Test {};
using Storages = ::testing::Types<float, double, Bf16>;
TYPED_TEST_SUITE(CudaSsdTest, Storages);

TYPED_TEST(CudaSsdTest, N3_OutputsAreThoseOfTheRecurrence) {
  using S = TypeParam;
  const double bound = std::is_same_v<S, double> ? 1e-12 : std::is_same_v<S, float> ? 1e-4 : 0x1p-7;
  for (const Sizes& sizes : kSizes) {
    SsdProblem<S> problem(sizes);
    problem.run(LaunchOrder::kAscending);
    EXPECT_LE(problem.error(), bound) << "time " << sizes.time << " chunk " << sizes.chunk;
  }
}

TYPED_TEST(CudaSsdTest, GivesTheSameBitsInAnyOrder) {
  using S = TypeParam;
  for (const Sizes& sizes : kSizes) {
    SsdProblem<S> a(sizes), b(sizes);
    a.run(kOrders[0]), b.run(kOrders[1]);
    EXPECT_TRUE(same_bits(a.y, b.y) && same_bits(a.last, b.last) && same_bits(a.states, b.states))
        << sizes.time;
    EXPECT_TRUE(same_bits(a.dxbc, b.dxbc) && same_bits(a.dprojected, b.dprojected)) << sizes.time;
    EXPECT_TRUE(same_bits(a.da_log, b.da_log) && same_bits(a.ddt_bias, b.ddt_bias) && same_bits(a.dd, b.dd) &&
                same_bits(a.dinitial, b.dinitial))
        << sizes.time;
    for (const S value : b.dxbc) ASSERT_FALSE(std::isnan(reference::get(value))) << "not written";
  }
}

template <class X, class Y>
double product(const std::vector<X>& x, const std::vector<Y>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += static_cast<double>(reference::get(x[i])) * static_cast<double>(reference::get(y[i]));
  return sum;
}

// Outputs are linear in x and the first state together, in B and that state, and in C, so that their product
// with dY is that of the inputs with the gradients. The objective is <dY, y> + <dlast, last>.
TYPED_TEST(CudaSsdTest, N5_GradientsAreThoseOfWhatIsLinear) {
  using S = TypeParam;
  const double bound = std::is_same_v<S, double> ? 1e-12 : std::is_same_v<S, float> ? 1e-5 : 0x1p-6;
  for (const Sizes& sizes : kSizes) {
    SsdProblem<S> p(sizes);
    p.run(LaunchOrder::kAscending);
    const auto& g = p.args;
    double parts[3] = {0, 0, 0};   // <x, dx>, <B, dB>, <C, dC>
    double skipped = 0, size = 1;  // D x . dY; of all products
    for (std::int64_t row = 0; row < g.batch * g.time; ++row) {
      for (std::int64_t head = 0; head < g.heads; ++head)
        for (std::int64_t j = 0; j < g.head_width; ++j)
          skipped +=
              static_cast<double>(p.d[head]) *
              static_cast<double>(reference::get(p.xbc[row * g.xbc_columns() + g.x_column(head) + j])) *
              static_cast<double>(reference::get(p.dy[(row * g.heads + head) * g.head_width + j]));
      for (std::int64_t c = 0; c < g.xbc_columns(); ++c) {
        const std::int64_t in_group = c % g.group_columns() - g.per_group() * g.head_width;
        const double one = static_cast<double>(reference::get(p.xbc[row * g.xbc_columns() + c])) *
                           static_cast<double>(reference::get(p.dxbc[row * g.xbc_columns() + c]));
        parts[in_group < 0 ? 0 : in_group < g.state ? 1 : 2] += one;
        size += std::abs(one);
      }
    }
    const double of_y = product(p.y, p.dy), of_last = product(p.last, p.dlast);
    const double of_initial = product(p.initial, p.dinitial);
    EXPECT_NEAR(parts[0] + of_initial, of_y + of_last, bound * size) << "x: time " << sizes.time;
    EXPECT_NEAR(parts[1] + of_initial, of_y + of_last - skipped, bound * size) << "B: time " << sizes.time;
    EXPECT_NEAR(parts[2], of_y - skipped, bound * size) << "C: time " << sizes.time;
  }
}

TEST(CudaSsdDirectionTest, N5_GradientsOfDecaysAndStepsAreDifferences) {
  for (const Sizes& sizes : kSizes) {
    SsdProblem<double> p(sizes);
    p.run(LaunchOrder::kAscending);
    const auto along = [&](std::vector<double> SsdProblem<double>::*input,
                           const std::vector<double>& gradient) {
      const std::vector<double> way = random_values<double>((p.*input).size(), 31);
      constexpr double kStep = 1e-5;
      double values[2];
      for (const int sign : {0, 1}) {
        SsdProblem<double> q(sizes);
        for (std::size_t i = 0; i < way.size(); ++i) (q.*input)[i] += (2 * sign - 1) * kStep * way[i];
        q.run(LaunchOrder::kAscending);
        values[sign] = product(q.y, p.dy) + product(q.last, p.dlast);
      }
      const double difference = (values[1] - values[0]) / (2 * kStep), expected = product(gradient, way);
      EXPECT_NEAR(difference, expected, 1e-7 * (std::abs(expected) + 1)) << "time " << sizes.time;
    };
    along(&SsdProblem<double>::projected, p.dprojected);
    along(&SsdProblem<double>::a_log, p.da_log);
    along(&SsdProblem<double>::dt_bias, p.ddt_bias);
    along(&SsdProblem<double>::d, p.dd);
  }
}

// A failed run shows in what depends on it, and in places of its tile before it, whose weights of 0 meet the
// NaN.
TYPED_TEST(CudaSsdTest, KeepsNaNs) {
  using S = TypeParam;
  SsdProblem<S> problem({1, 70, 1, 4, 1, 3, 32, 0});
  problem.xbc[40 * problem.args.xbc_columns()] =
      reference::put<S>(std::numeric_limits<Arith<S>>::quiet_NaN());  // x of place 40
  problem.run(LaunchOrder::kAscending);
  for (std::int64_t t = 0; t < 70; ++t) {
    if (t >= 32 && t < 40) continue;
    EXPECT_EQ(std::isnan(reference::get(problem.y[t * 4])), t >= 40) << t;
  }
}

TYPED_TEST(CudaSsdTest, NeedsNoMoreSharedMemoryThanLaunchesAreGranted) {
  using S = TypeParam;
  for (const std::int64_t head_width : {64, 80, 128})
    for (const std::int64_t state : {16, 64, 128, 256}) {
      SsdArgs<S> args;
      args.batch = 1, args.time = 4096, args.heads = 4, args.groups = 2, args.chunk = 256;
      args.head_width = head_width, args.state = state;
      const std::size_t most = std::size_t{48} << 10;
      EXPECT_LE((SsdTileProducts<S, SsdRole::kY>{args}.mesh().shared), most);
      EXPECT_LE((SsdTileProducts<S, SsdRole::kDb>{args}.mesh().shared), most);
      EXPECT_LE((SsdChunkStates<S, SsdPass::kForward>{args, nullptr, nullptr}.mesh().shared), most);
      EXPECT_LE((SsdEdgeTerms<S, SsdPass::kForward>{args, nullptr, nullptr, nullptr}.mesh().shared), most);
      EXPECT_LE((SsdDecayGradients<S>{args, nullptr, nullptr, nullptr}.mesh().shared), most);
    }
}

template <class S>
struct PartsProblem {
  using A = Arith<S>;
  static constexpr std::int64_t kBatch = 2, kTime = 130, kChannels = 40, kWidth = 4, kColumns = 43;
  std::vector<std::int64_t> columns;
  std::vector<S> x = random_values<S>(kBatch * kTime * kColumns, 11),
                 above = random_values<S>(kBatch * kTime * kChannels, 12),
                 values = random_values<S>(kBatch * kTime * kChannels, 13), out, dx, dy, dgates;
  std::vector<A> weight = random_values<A>(kChannels * kWidth, 14), bias = random_values<A>(kChannels, 15),
                 parts, dweight, dbias, scales;

  void run(LaunchOrder order) {
    columns.resize(kChannels);
    std::iota(columns.begin(), columns.end(), std::int64_t{2});
    out.assign(values.size(), S{}), dx.assign(x.size(), S{}), dy.assign(values.size(), S{});
    dgates.assign(x.size(), S{});
    ConvArgs<S, A> conv;
    conv.batch = kBatch, conv.time = kTime, conv.width = kWidth, conv.channels = kChannels,
    conv.columns = kColumns;
    conv.channel_columns = columns.data(), conv.x = x.data(), conv.weight = weight.data(),
    conv.bias = bias.data();
    const std::int64_t tiles = kBatch * ConvBackward<S, A>::tiles(kTime);
    parts.assign(tiles * kChannels * (kWidth + 1), std::numeric_limits<A>::quiet_NaN());
    dweight.assign(weight.size(), 0), dbias.assign(bias.size(), 0), scales.assign(kBatch * kTime * 2, 0);
    const auto start = [&](const auto& body) { launch_on_host(body.mesh(), body, order); };
    start(ConvForward<S, A>{conv, out.data()});
    start(ConvBackward<S, A>{conv, above.data(), dx.data(), parts.data()});
    start(ConvParameters<S, A>{tiles, kChannels, kWidth, parts.data(), dweight.data(), dbias.data(), false});
    GatedArgs<S, A> norm;
    norm.rows = kBatch * kTime, norm.groups = 2, norm.group_width = kChannels / 2, norm.columns = kColumns;
    norm.gate_columns = columns.data(), norm.eps = static_cast<A>(1e-5), norm.y = values.data();
    norm.projected = x.data(), norm.weight = bias.data();
    start(GatedNormForward<S, A>{norm, values.data(), scales.data()});  // in place
    start(GatedNormBackward<S, A>{norm, above.data(), scales.data(), dy.data(), dgates.data()});
  }
};

TYPED_TEST(CudaSsdTest, NormsAreOfGatedValues) {
  using S = TypeParam;
  using Problem = PartsProblem<S>;
  Problem p;
  const std::vector<double> y = to_double(p.values), z = to_double(p.x), weight = to_double(p.bias);
  p.run(LaunchOrder::kAscending);
  const std::vector<double> found = to_double(p.values);
  const double bound = std::is_same_v<S, double> ? 1e-12 : std::is_same_v<S, float> ? 1e-5 : 0x1p-7;
  constexpr std::int64_t kGroup = Problem::kChannels / 2;
  for (std::int64_t row = 0; row < Problem::kBatch * Problem::kTime; ++row)
    for (const std::int64_t first : {std::int64_t{0}, kGroup}) {
      std::vector<double> v;
      double squares = 0;
      for (std::int64_t c = first; c < first + kGroup; ++c) {
        const double gate = z[row * Problem::kColumns + p.columns[c]];
        v.push_back(y[row * Problem::kChannels + c] * gate / (1 + std::exp(-gate)));
        squares += v.back() * v.back();
      }
      const double scale = 1 / std::sqrt(squares / kGroup + 1e-5);
      for (std::int64_t c = first; c < first + kGroup; ++c)
        ASSERT_NEAR(found[row * Problem::kChannels + c], weight[c] * v[c - first] * scale,
                    bound * (1 + std::abs(v[c - first] * scale)));
    }
}

TYPED_TEST(CudaSsdTest, PartsGiveTheSameBitsInAnyOrder) {
  using S = TypeParam;
  PartsProblem<S> a, b;
  a.run(kOrders[0]), b.run(kOrders[1]);
  EXPECT_TRUE(same_bits(a.out, b.out) && same_bits(a.dx, b.dx) && same_bits(a.dweight, b.dweight) &&
              same_bits(a.dbias, b.dbias));
  EXPECT_TRUE(same_bits(a.values, b.values) && same_bits(a.dy, b.dy) && same_bits(a.dgates, b.dgates));
  for (const auto value : a.dweight) ASSERT_FALSE(std::isnan(value));
}

}  // namespace
}  // namespace tenon::kernels::cuda::ssd_test
