// Layer normalization: every set against the double reference within a derived bound, and any split of the
// work.
#include "testing.hpp"

namespace tenon::kernels::norm_test {
namespace {

using namespace testing;

template <class S>
struct NormTest : ::testing::Test {};
TYPED_TEST_SUITE(NormTest, Storages);

template <class S>
struct Layer {
  std::int64_t rows, cols;
  std::vector<S> x, dy;
  std::vector<Arith<S>> gain, bias;
};

template <class S>
struct Results {
  std::vector<S> y, dx;
  std::vector<Arith<S>> mean, rstd, dgain, dbias;
};

/// Forward and backward; work split into pieces of `step`; dx starts as `dx0` and parameters gradients as
/// ones.
template <class S>
Results<S> run(const NormOps<S>& norm, const Layer<S>& layer, std::int64_t step, bool accumulate,
               bool affine) {
  const auto rows = static_cast<std::size_t>(layer.rows), cols = static_cast<std::size_t>(layer.cols);
  Results<S> r{layer.dy, layer.dy, {}, {}, {}, {}};
  r.mean.resize(rows), r.rstd.resize(rows);
  r.dgain.assign(cols, 1), r.dbias.assign(cols, 1);
  LayerNormForwardArgs<S> f{layer.rows,
                            layer.cols,
                            static_cast<Arith<S>>(1e-5),
                            layer.x.data(),
                            affine ? layer.gain.data() : nullptr,
                            affine ? layer.bias.data() : nullptr,
                            r.y.data(),
                            r.mean.data(),
                            r.rstd.data()};
  LayerNormBackwardArgs<S> b{layer.rows, layer.cols,     layer.x.data(), layer.dy.data(),
                             f.gain,     r.mean.data(),  r.rstd.data(),  r.dx.data(),
                             accumulate, r.dgain.data(), r.dbias.data(), accumulate};
  for (std::int64_t i = 0; i < layer.rows; i += step)
    norm.layer_norm_forward(f, i, std::min(layer.rows, i + step));
  for (std::int64_t i = 0; i < layer.rows; i += step)
    norm.layer_norm_backward_input(b, i, std::min(layer.rows, i + step));
  for (std::int64_t j = 0; j < layer.cols; j += step)
    norm.layer_norm_backward_params(b, j, std::min(layer.cols, j + step));
  return r;
}

TYPED_TEST(NormTest, EverySetStaysWithinItsBound) {
  using S = TypeParam;
  for (const std::int64_t cols : {1, 5, 16, 100, 129})
    for (const bool accumulate : {false, true})
      for (const bool affine : {true, false}) {
        const std::int64_t rows = 70;
        const auto n = static_cast<std::size_t>(rows * cols), w = static_cast<std::size_t>(cols);
        const Layer<S> layer{rows,
                             cols,
                             random_values<S>(n, 1, 2, 4),
                             random_values<S>(n, 2),
                             random_values<float>(w, 3, 0.5, 1.5),
                             random_values<float>(w, 4)};
        const Layer<double> wide{rows,
                                 cols,
                                 to_double(layer.x),
                                 to_double(layer.dy),
                                 to_double(layer.gain),
                                 to_double(layer.bias)};
        const auto exact = run(reference_double_kernels().f64.norm, wide, rows, accumulate, affine);
        SameAcrossFusingSets<S> same;
        SameAcrossFusingSets<float> same_params;
        for (const KernelTable* set : all_sets()) {
          const auto r = run(ops<S>(*set).norm, layer, rows, accumulate, affine);
          // h = (x - mean) rstd. Sums of `cols` terms err by at most (cols + 4) u of their magnitudes: the
          // mean by that times 4 (the largest |x|); rstd, relatively, by as much again from squares about a
          // mean so displaced.
          const double sums = static_cast<double>(cols) + 8;
          const auto row_error = [&](std::size_t i) {
            const double rstd = exact.rstd[i / w], h = std::abs((wide.x[i] - exact.mean[i / w]) * rstd);
            const double shift = sums * kFloatRoundoff * 4 * rstd;
            return shift + h * (sums * kFloatRoundoff + shift + shift * shift);
          };
          const double store = sizeof(S) == 2 ? kBf16Roundoff : kFloatRoundoff;
          EXPECT_TRUE(within(r.y, exact.y,
                             [&](std::size_t i) {
                               return 1.5 * row_error(i) + store * std::abs(exact.y[i]) + 4 * kFloatRoundoff;
                             }))
              << set->name << " y, cols " << cols;
          EXPECT_TRUE(within(r.mean, exact.mean, [&](std::size_t) { return sums * kFloatRoundoff * 4; }))
              << set->name;
          // dx is three terms of size rstd |g| (1 + |h|), g below 1.5.
          EXPECT_TRUE(within(r.dx, exact.dx,
                             [&](std::size_t i) {
                               double worst = 0;
                               for (std::size_t j = i / w * w; j < i / w * w + w; ++j)
                                 worst = std::max(worst, row_error(j));
                               const double rstd = exact.rstd[i / w],
                                            h = std::abs((wide.x[i] - exact.mean[i / w]) * rstd);
                               return 1.5 * rstd * (1 + h) * (4 * worst + 2 * sums * kFloatRoundoff * 2) +
                                      store * (1 + std::abs(exact.dx[i]));
                             }))
              << set->name << " dx, cols " << cols;
          double worst = 0, largest = 0;
          for (std::size_t i = 0; i < n; ++i) {
            worst = std::max(worst, row_error(i));
            largest = std::max(largest, std::abs((wide.x[i] - exact.mean[i / w]) * exact.rstd[i / w]));
          }
          const double params = rows * (worst + (rows + 4) * kFloatRoundoff * (1 + largest));
          EXPECT_TRUE(within(r.dgain, exact.dgain, [&](std::size_t) { return params; }))
              << set->name << " cols " << cols;
          EXPECT_TRUE(within(r.dbias, exact.dbias, [&](std::size_t) {
            return rows * (rows + 4) * kFloatRoundoff;
          })) << set->name;
          same.see(*set, r.y);
          same_params.see(*set, r.dgain);

          const auto cut = run(ops<S>(*set).norm, layer, 3, accumulate, affine);
          EXPECT_TRUE(same_bits(cut.y, r.y) && same_bits(cut.dx, r.dx) && same_bits(cut.dgain, r.dgain) &&
                      same_bits(cut.dbias, r.dbias))
              << set->name << ": another split of the work gave other bits";
        }
      }
}

TYPED_TEST(NormTest, RmsNormStaysWithinItsBound) {
  using S = TypeParam;
  for (const std::int64_t cols : {1, 5, 16, 100, 129}) {
    const std::int64_t rows = 40;
    const auto n = static_cast<std::size_t>(rows * cols), w = static_cast<std::size_t>(cols);
    const auto x = random_values<S>(n, 1, -2, 2), dy = random_values<S>(n, 2);
    const auto gain = random_values<float>(w, 3, 0.5, 1.5);
    const auto pass = [&](const auto& norm, const auto& x_in, const auto& dy_in, const auto& gain_in,
                          std::int64_t step, auto& y, auto& dx, auto& dgain) {
      using T = std::remove_cvref_t<decltype(x_in[0])>;
      std::vector<Arith<T>> rstd(rows);
      y = dx = dy_in;
      dgain.assign(w, 1);
      const LayerNormForwardArgs<T> f{rows,        cols,           static_cast<Arith<T>>(1e-2),
                                      x_in.data(), gain_in.data(), nullptr,
                                      y.data(),    nullptr,        rstd.data()};
      const LayerNormBackwardArgs<T> b{rows,           cols,         x_in.data(), dy_in.data(),
                                       gain_in.data(), nullptr,      rstd.data(), dx.data(),
                                       true,           dgain.data(), nullptr,     true};
      for (std::int64_t i = 0; i < rows; i += step) norm.rms_norm_forward(f, i, std::min(rows, i + step));
      for (std::int64_t i = 0; i < rows; i += step)
        norm.rms_norm_backward_input(b, i, std::min(rows, i + step));
      for (std::int64_t i = 0; i < cols; i += step)
        norm.rms_norm_backward_params(b, i, std::min(cols, i + step));
    };
    std::vector<double> exact_y, exact_dx, exact_dgain;
    pass(reference_double_kernels().f64.norm, to_double(x), to_double(dy), to_double(gain), rows, exact_y,
         exact_dx, exact_dgain);
    SameAcrossFusingSets<S> same;
    for (const KernelTable* set : all_sets()) {
      std::vector<S> y, dx, cut_y, cut_dx;
      std::vector<float> dgain, cut_dgain;
      pass(ops<S>(*set).norm, x, dy, gain, rows, y, dx, dgain);
      // rstd errs by (cols + 4) u at most and is below 10 (eps 1e-2); |h| <= sqrt(cols), |g| <= 1.5.
      const double sums = static_cast<double>(cols + 8) * kFloatRoundoff,
                   h = std::sqrt(static_cast<double>(cols));
      EXPECT_TRUE(within(
          y, exact_y,
          [&](std::size_t i) { return (sums + roundoff<S>() + 2 * kFloatRoundoff) * std::abs(exact_y[i]); }))
          << set->name << " y";
      EXPECT_TRUE(within(dx, exact_dx,
                         [&](std::size_t i) {
                           return 10 * 1.5 * (1 + h) * 4 * sums + roundoff<S>() * std::abs(exact_dx[i]) +
                                  kFloatRoundoff;
                         }))
          << set->name << " dx";
      EXPECT_TRUE(within(
          dgain, exact_dgain,
          [&](std::size_t) { return rows * h * (sums + static_cast<double>(rows + 4) * kFloatRoundoff); }))
          << set->name << " dgain";
      same.see(*set, dx);
      pass(ops<S>(*set).norm, x, dy, gain, 3, cut_y, cut_dx, cut_dgain);
      EXPECT_TRUE(same_bits(cut_y, y) && same_bits(cut_dx, dx) && same_bits(cut_dgain, dgain)) << set->name;
    }
  }
}

TEST(Norm, ALargeMeanCostsNoVariance) {
  std::vector<float> x(64), y(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1000.0f + (i % 2 == 0 ? 0.5f : -0.5f);
  for (const KernelTable* set : all_sets()) {
    set->f32.norm.layer_norm_forward({1, 64, 0.0f, x.data(), nullptr, nullptr, y.data(), nullptr, nullptr}, 0,
                                     1);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], i % 2 == 0 ? 1.0f : -1.0f) << set->name;
  }
}

}  // namespace
}  // namespace tenon::kernels::norm_test
