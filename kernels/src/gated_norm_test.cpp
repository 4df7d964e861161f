// Norms of gated values: every set against the formula on double, gates in several runs, results in place.
#include "testing.hpp"

namespace tenon::kernels::gated_norm_test {
namespace {

using namespace testing;

/// Groups of 37 columns; the second group's gates are in two runs.
const std::vector<JoinedRun> kRuns = {{50, 0, 37}, {3, 37, 20}, {100, 57, 17}, {0, 74, 0}};
constexpr std::int64_t kColumns = 120, kGroup = 37, kWidth = 74, kRows = 21;

template <class S>
struct GatedNormTest : ::testing::Test {};
TYPED_TEST_SUITE(GatedNormTest, Storages);

template <class S>
GatedNormArgs<S> sizes() {
  GatedNormArgs<S> args;
  args.rows = kRows, args.groups = 2, args.group_width = kGroup, args.columns = kColumns;
  args.runs = kRuns.data(), args.eps = Arith<S>(1e-5), args.block = 8;
  return args;
}

TYPED_TEST(GatedNormTest, EverySetStaysWithinItsBound) {
  using S = TypeParam;
  const auto y = random_values<S>(kRows * kWidth, 1),
             projected = random_values<S>(kRows * kColumns, 2, -4, 4);
  const auto dout = random_values<S>(kRows * kWidth, 3);
  const auto weight = random_values<Arith<S>>(kWidth, 4);
  const auto y64 = to_double(y), z64 = to_double(projected), dout64 = to_double(dout);
  const auto weight64 = to_double(weight);
  std::vector<double> out(y64.size()), dy(y64.size()), dz = z64, dweight(kWidth);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t g = 0; g < 2; ++g) {
      double squares = 0, dot = 0;
      const auto each = [&](auto use) {
        for (const JoinedRun& run : kRuns)
          for (std::int64_t c = 0; c < run.width; ++c) {
            if ((run.to + c) / kGroup != g) continue;
            const double z = z64[r * kColumns + run.from + c], s = 1 / (1 + std::exp(-z));
            use(run.to + c, r * kColumns + run.from + c, z, s, y64[r * kWidth + run.to + c] * z * s);
          }
      };
      each([&](std::int64_t c, std::int64_t, double, double, double v) {
        squares += v * v;
        dot += dout64[r * kWidth + c] * weight64[c] * v;
      });
      const double scale = 1 / std::sqrt(squares / kGroup + 1e-5), mean = dot * scale * scale / kGroup;
      each([&](std::int64_t c, std::int64_t at, double z, double s, double v) {
        const std::int64_t i = r * kWidth + c;
        const double d = scale * (dout64[i] * weight64[c] - v * mean);
        out[i] = weight64[c] * v * scale;
        dy[i] = d * z * s;
        dz[at] = d * y64[i] * (s + z * s * (1 - s));
        dweight[c] += dout64[i] * v * scale;
      });
    }
  // The sums over a group have 37 terms, those of the weight one for each row; the maps round 20 times.
  // Values are below 16: a normalised value is at most sqrt(37), slopes of the gate at most 4.
  const auto stored = [](const std::vector<double>& values) {
    return [&values](std::size_t i) {
      return 16 * 64 * kFloatRoundoff + 2 * roundoff<S>() * std::abs(values[i]);
    };
  };
  SameAcrossFusingSets<S> same_out, same_dz;
  for (const KernelTable* set : all_sets()) {
    const auto& kernels = ops<S>(*set).gated_norm;
    auto args = sizes<S>();
    std::vector<S> in_place = y, ours = y, back = dout, gates = projected;
    args.y = y.data(), args.projected = projected.data(), args.weight = weight.data(), args.out = ours.data();
    kernels.forward(args, 0, 5);
    kernels.forward(args, 5, kRows);
    EXPECT_TRUE(within(ours, out, stored(out))) << set->name;
    auto same = args;
    same.y = in_place.data(), same.out = in_place.data();
    kernels.forward(same, 0, kRows);
    EXPECT_TRUE(same_bits(in_place, ours)) << set->name;

    std::vector<Arith<S>> sums(gated_norm_blocks(args) * kWidth, std::numeric_limits<Arith<S>>::quiet_NaN());
    args.dout = back.data(), args.dy = back.data(), args.dprojected = gates.data(), args.sums = sums.data();
    kernels.backward(args, 1, 3);
    kernels.backward(args, 0, 1);
    EXPECT_TRUE(within(back, dy, stored(dy))) << set->name;
    EXPECT_TRUE(within(gates, dz, stored(dz))) << set->name;
    std::vector<Arith<S>> total(kWidth, 0);
    for (std::size_t i = 0; i < sums.size(); ++i) total[i % kWidth] += sums[i];
    EXPECT_TRUE(within(total, dweight, [](std::size_t) { return kRows * 8 * 64 * kFloatRoundoff; }))
        << set->name;
    same_out.see(*set, ours);
    same_dz.see(*set, gates);
  }
}

}  // namespace
}  // namespace tenon::kernels::gated_norm_test
