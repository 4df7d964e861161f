// Batch normalization: every set against the double reference within a derived bound, fusing sets bit for
// bit, any split of the channels.
#include "testing.hpp"

namespace tenon::kernels::batch_norm_test {
namespace {

using namespace testing;

template <class S>
struct BatchNormTest : ::testing::Test {};
TYPED_TEST_SUITE(BatchNormTest, Storages);

template <class S>
struct Inputs {
  std::int64_t batch, channels, places;
  std::vector<S> x, dy;
  std::vector<Arith<S>> gain, bias;
};

template <class S>
struct Results {
  std::vector<S> y, dx, fixed;
  std::vector<Arith<S>> mean, rstd, running_mean, running_variance, dgain, dbias;
};

template <class S>
Results<S> run(const BatchNormOps<S>& ops, const Inputs<S>& in, std::int64_t step) {
  const std::size_t c = in.channels;
  Results<S> r{in.x, in.dy, in.x, {}, {}, {}, {}, {}, {}};
  for (auto* sums : {&r.mean, &r.rstd, &r.running_mean, &r.running_variance, &r.dgain, &r.dbias})
    sums->assign(c, 1);
  BatchNormForwardArgs<S> f{in.batch,
                            in.channels,
                            in.places,
                            static_cast<Arith<S>>(1e-3),
                            in.x.data(),
                            in.gain.data(),
                            in.bias.data(),
                            r.y.data(),
                            r.mean.data(),
                            r.rstd.data(),
                            0.25,
                            r.running_mean.data(),
                            r.running_variance.data()};
  const BatchNormBackwardArgs<S> b{in.batch,       in.channels,    in.places,     in.x.data(), in.dy.data(),
                                   in.gain.data(), r.mean.data(),  r.rstd.data(), r.dx.data(), true,
                                   r.dgain.data(), r.dbias.data(), true};
  for (std::int64_t i = 0; i < in.channels; i += step) ops.forward(f, i, std::min(in.channels, i + step));
  for (std::int64_t i = 0; i < in.channels; i += step) ops.backward(b, i, std::min(in.channels, i + step));
  f.y = r.fixed.data();
  for (std::int64_t i = 0; i < in.channels; i += step) ops.fixed(f, i, std::min(in.channels, i + step));
  return r;
}

TYPED_TEST(BatchNormTest, EverySetStaysWithinItsBound) {
  using S = TypeParam;
  for (const std::int64_t places : {1, 7, 16, 49, 100}) {
    const std::int64_t batch = 6, channels = 5;
    const std::size_t n = batch * channels * places;
    const std::size_t c = channels;
    const Inputs<S> in{batch,
                       channels,
                       places,
                       random_values<S>(n, 1, 1, 3),
                       random_values<S>(n, 2),
                       random_values<float>(c, 3, 0.5, 1.5),
                       random_values<float>(c, 4)};
    const Inputs<double> wide{
        batch, channels, places, to_double(in.x), to_double(in.dy), to_double(in.gain), to_double(in.bias)};
    const auto exact = run(reference_double_kernels().f64.batch_norm, wide, channels);
    const double store = sizeof(S) == 2 ? kBf16Roundoff : kFloatRoundoff;
    double steepest = 0;
    for (const double rstd : exact.rstd) steepest = std::max(steepest, rstd);
    // Sums of `places` terms err by (places + 4) u of their magnitudes; x is at most 3, rstd `steepest`, |h|
    // below 2 steepest, gains below 1.5. The statistics' errors enter y and dx once each.
    const double sums = static_cast<double>(places + 8) * kFloatRoundoff, h = 2 * steepest;
    const double row = sums * 3 * steepest * (1 + h);
    SameAcrossFusingSets<S> same_y, same_dx;
    for (const KernelTable* set : all_sets()) {
      const auto r = run(ops<S>(*set).batch_norm, in, channels);
      const auto bound = [&](double absolute, const std::vector<double>& values) {
        return [&values, absolute, store](std::size_t i) { return absolute + store * std::abs(values[i]); };
      };
      EXPECT_TRUE(within(r.y, exact.y, bound(4 * row, exact.y))) << set->name << " y, places " << places;
      EXPECT_TRUE(within(r.fixed, exact.fixed, bound(16 * row, exact.fixed))) << set->name << " fixed";
      EXPECT_TRUE(within(r.dx, exact.dx, bound(16 * row * steepest * (1 + h), exact.dx)))
          << set->name << " dx, places " << places;
      const double count = static_cast<double>(batch * places);
      for (const auto& [found, wanted] : {std::pair(r.dgain, exact.dgain), std::pair(r.dbias, exact.dbias)})
        EXPECT_TRUE(within(found, wanted, [&](std::size_t) { return 4 * count * row; })) << set->name;
      for (const auto& [found, wanted] :
           {std::pair(r.mean, exact.mean), std::pair(r.running_mean, exact.running_mean),
            std::pair(r.running_variance, exact.running_variance)})
        EXPECT_TRUE(within(found, wanted, [&](std::size_t) { return 12 * sums; })) << set->name;
      same_y.see(*set, r.y);
      same_dx.see(*set, r.dx);
      const auto cut = run(ops<S>(*set).batch_norm, in, 2);
      EXPECT_TRUE(same_bits(cut.y, r.y) && same_bits(cut.dx, r.dx) && same_bits(cut.dgain, r.dgain) &&
                  same_bits(cut.running_variance, r.running_variance))
          << set->name << ": another split of the work gave other bits";
    }
  }
}

TEST(BatchNorm, ALargeMeanCostsNoVariance) {
  std::vector<float> x(64), y(64);
  float mean = 0, rstd = 0;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1000.0f + (i % 2 == 0 ? 0.5f : -0.5f);
  for (const KernelTable* set : all_sets()) {
    BatchNormForwardArgs<float> args;
    args.batch = 4, args.channels = 1, args.places = 16;
    args.x = x.data(), args.y = y.data(), args.mean = &mean, args.rstd = &rstd;
    set->f32.batch_norm.forward(args, 0, 1);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], i % 2 == 0 ? 1.0f : -1.0f) << set->name;
  }
}

}  // namespace
}  // namespace tenon::kernels::batch_norm_test
