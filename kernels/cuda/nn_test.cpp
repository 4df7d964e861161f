// Norms, softmax cross-entropy, activations and dropout on CUDA against the references: bits where the
// arithmetic is the same, else the double reference within a bound; in both launch orders.
#include "testing.hpp"

#include <tenon/kernels/cuda/column_sums.hpp>
#include <tenon/kernels/cuda/norm.hpp>
#include <tenon/kernels/cuda/pointwise.hpp>
#include <tenon/kernels/cuda/softmax.hpp>
#include <tenon/kernels/reference/elementwise.hpp>
#include <tenon/kernels/reference/norm.hpp>
#include <tenon/kernels/reference/softmax.hpp>

namespace tenon::kernels::cuda::nn_test {
namespace {

using namespace kernels::testing;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

template <class S>
struct CudaNeural : ::testing::Test {};
TYPED_TEST_SUITE(CudaNeural, Storages);

TYPED_TEST(CudaNeural, NormsStayWithinTheirBound) {
  using S = TypeParam;
  for (const auto& [rows, cols] :
       {std::pair{3, 2}, std::pair{5, 100}, std::pair{70, 129}, std::pair{4, 5003}})
    for (const bool centred : {true, false}) {
      const auto n = static_cast<std::size_t>(rows * cols), w = static_cast<std::size_t>(cols),
                 h = static_cast<std::size_t>(rows);
      const auto x = random_values<S>(n, 1), dy = random_values<S>(n, 2), old = random_values<S>(n, 3);
      const auto gain = random_values<float>(w, 4, 0.5, 1.5), bias = random_values<float>(w, 5);
      const auto wx = to_double(x), wdy = to_double(dy), wgain = to_double(gain), wbias = to_double(bias);
      std::vector<double> y(n), dx = to_double(old), mean(h), rstd(h), dgain(w, 1), dbias(w, 1);
      LayerNormForwardArgs<double> f{rows,         cols,     1e-5,        wx.data(),  wgain.data(),
                                     wbias.data(), y.data(), mean.data(), rstd.data()};
      LayerNormBackwardArgs<double> b{rows,         cols,         wx.data(),    wdy.data(),
                                      wgain.data(), mean.data(),  rstd.data(),  dx.data(),
                                      true,         dgain.data(), dbias.data(), true};
      if (centred) {
        reference::layer_norm_forward(f, 0, rows);
        reference::layer_norm_backward_input(b, 0, rows);
        reference::layer_norm_backward_params(b, 0, cols);
      } else {
        reference::rms_norm_forward(f, 0, rows);
        reference::rms_norm_backward_input(b, 0, rows);
        reference::rms_norm_backward_params(b, 0, cols);
      }
      // |x|, |dy| <= 1, |gain| <= 1.5. A tree over threads that stride sums `cols` terms with at most cols /
      // threads + 9 roundings; relatively to rstd^2, which grows as rows get short or alike, that is the
      // error of h and of rstd.
      const double depth = static_cast<double>(cols) / row_threads(cols) + 16, u = kFloatRoundoff;
      const double store = roundoff<S>();
      std::vector<S> first_y, first_dx;
      for (const LaunchOrder order : kOrders) {
        std::vector<S> out(n), grad = old;
        std::vector<float> m(h), r(h), dg(w, 1), db(w, 1);
        const NormaliseRows<S> forward{rows,
                                       cols,
                                       centred,
                                       1e-5f,
                                       x.data(),
                                       gain.data(),
                                       centred ? bias.data() : nullptr,
                                       out.data(),
                                       centred ? m.data() : nullptr,
                                       r.data()};
        launch_on_host(grid_for_rows(rows, cols, forward.kShared), forward, order);
        const float* const centre = centred ? m.data() : nullptr;
        const NormaliseRowsBackward<S> back{rows,   cols,     x.data(),    dy.data(), gain.data(),
                                            centre, r.data(), grad.data(), true};
        launch_on_host(grid_for_rows(rows, cols, back.kShared), back, order);
        const Slabs slabs = slabs_of_rows(rows, cols);
        std::vector<Sums<float, 2>> partial(slabs.count * cols);
        const ColumnSums<float, 2, NormParameterTerms<S>> params{
            rows,           cols,
            slabs,          {cols, x.data(), dy.data(), centre, r.data()},
            partial.data(), {{dg.data(), centred ? db.data() : nullptr}, true}};
        launch_on_host(params.mesh(), params, order);
        if (slabs.count > 1)
          launch_on_host(grid_for(cols),
                         ColumnTotals<float, 2>{cols, slabs.count, partial.data(), params.outputs}, order);
        const auto error = [&](std::size_t i) {
          const double s = rstd[i / w] + 1;
          return 16 * depth * u * s * s;
        };
        EXPECT_TRUE(within(out, y, [&](std::size_t i) { return error(i) + store * std::abs(y[i]); })) << cols;
        EXPECT_TRUE(within(grad, dx, [&](std::size_t i) {
          return 8 * error(i) * (rstd[i / w] + 1) + store * std::abs(dx[i]);
        })) << cols;
        double worst = 0;
        for (std::size_t i = 0; i < n; i += w) worst = std::max(worst, error(i));
        EXPECT_TRUE(within(dg, dgain, [&](std::size_t) { return (rows + 1) * (worst + 16 * rows * u); }))
            << cols;
        if (centred) {
          EXPECT_TRUE(within(db, dbias, [&](std::size_t) { return (rows + 1) * (rows + 1) * u; })) << cols;
        }
        if (first_y.empty()) first_y = out, first_dx = grad;
        EXPECT_TRUE(same_bits(out, first_y) && same_bits(grad, first_dx)) << cols;
      }
    }
}

TYPED_TEST(CudaNeural, LossesOfRows) {
  using S = TypeParam;
  for (const auto& [rows, cols] : {std::pair{1, 1}, std::pair{5, 31}, std::pair{3, 5003}}) {
    const auto n = static_cast<std::size_t>(rows * cols), h = static_cast<std::size_t>(rows);
    const auto x = random_values<S>(n, 1, -20, 20);
    const auto wide = to_double(x);
    std::vector<std::int32_t> targets(h);
    for (std::size_t i = 0; i < h; ++i)
      targets[i] = static_cast<std::int32_t>(i * 7 % static_cast<std::size_t>(cols));
    if (rows > 1) targets[1] = -100;
    for (const double smoothing : {0.0, 0.2}) {
      std::vector<double> lse(h), loss(h), gradient(n);
      for (std::size_t r = 0; r < h; ++r) {
        double most = wide[r * static_cast<std::size_t>(cols)], sum = 0;
        for (std::size_t j = 0; j < static_cast<std::size_t>(cols); ++j)
          most = std::max(most, wide[r * static_cast<std::size_t>(cols) + j]);
        for (std::size_t j = 0; j < static_cast<std::size_t>(cols); ++j)
          sum += std::exp(wide[r * static_cast<std::size_t>(cols) + j] - most);
        lse[r] = most + std::log(sum);
        if (targets[r] < 0) continue;
        for (std::size_t j = 0; j < static_cast<std::size_t>(cols); ++j) {
          const std::size_t i = r * static_cast<std::size_t>(cols) + j;
          const double wanted =
              smoothing / cols + (static_cast<std::size_t>(targets[r]) == j ? 1 - smoothing : 0);
          loss[r] += wanted * (lse[r] - wide[i]);
          gradient[i] = (std::exp(wide[i] - lse[r]) - wanted) / 4;
        }
      }
      for (const LaunchOrder order : kOrders) {
        std::vector<float> l(h, 7), s(h);
        std::vector<S> d(n);
        const CrossEntropy<S> body{rows, cols, x.data(), targets.data(), smoothing, l.data(), s.data()};
        launch_on_host(grid_for_rows(rows, cols, body.kShared), body, order);
        // lse is below 20 + log(cols) < 32, where a rounding is 16 u or less; the sum adds cols / threads +
        // 18 relative ones.
        const double bound = (64 + 2 * (static_cast<double>(cols) / row_threads(cols) + 18)) * kFloatRoundoff;
        EXPECT_TRUE(within(s, lse, [&](std::size_t) { return bound; }));
        EXPECT_TRUE(within(l, loss, [&](std::size_t) { return 2 * bound; }));
        const CrossEntropyGradient<S, S> backward{rows,
                                                  cols,
                                                  x.data(),
                                                  targets.data(),
                                                  s.data(),
                                                  0.25f,
                                                  static_cast<float>(1 - smoothing),
                                                  static_cast<float>(smoothing / cols),
                                                  d.data()};
        launch_on_host(grid_for_rows(rows, cols, 0), backward, order);
        EXPECT_TRUE(within(d, gradient,
                           [&](std::size_t i) { return bound + roundoff<S>() * std::abs(gradient[i]); }));
      }
    }
  }
}

TEST(CudaLoss, OfRowsThatAreNoNumbers) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const LaunchOrder order : kOrders)
    for (const float special : {inf, nan, -inf}) {
      std::vector<float> x(300, special == -inf ? -inf : 1.0f), loss(1), lse(1);
      x[211] = special;
      const std::int32_t target = 3;
      const CrossEntropy<float> body{1, 300, x.data(), &target, 0, loss.data(), lse.data()};
      launch_on_host(grid_for_rows(1, 300, body.kShared), body, order);
      EXPECT_TRUE(special == -inf ? lse[0] == -inf : std::isnan(lse[0])) << special;
    }
}

TYPED_TEST(CudaNeural, ActivationsAreTheReferences) {
  using S = TypeParam;
  constexpr std::int64_t kN = 3001;
  const auto x = random_values<S>(kN, 1, -6, 6), dy = random_values<S>(kN, 2);
  const struct {
    Map map;
    void (*forward)(const S*, S*, std::int64_t);
    void (*backward)(const S*, const S*, S*, std::int64_t);
  } cases[] = {{Map::kGeluTanh, reference::gelu_tanh_forward<S>, reference::gelu_tanh_backward<S>},
               {Map::kGeluExact, reference::gelu_erf_forward<S>, reference::gelu_erf_backward<S>},
               {Map::kSilu, reference::silu_forward<S>, reference::silu_backward<S>}};
  for (const auto& c : cases)
    for (const LaunchOrder order : kOrders) {
      std::vector<S> y(kN), dx(kN), want_y(kN), want_dx(kN);
      c.forward(x.data(), want_y.data(), kN);
      c.backward(x.data(), dy.data(), want_dx.data(), kN);
      launch_on_host(Grid{3}, MapElements<S, Activation<S>>{y.data(), kN, {x.data(), c.map}}, order);
      launch_on_host(
          Grid{3},
          MapElements<S, ActivationBackward<S>>{dx.data(), kN, {x.data(), dy.data(), nullptr, c.map}}, order);
      EXPECT_TRUE(same_bits(y, want_y)) << static_cast<int>(c.map);
      EXPECT_TRUE(same_bits(dx, want_dx)) << static_cast<int>(c.map);
    }
}

TYPED_TEST(CudaNeural, DropoutKeepsTheSameElements) {
  using S = TypeParam;
  constexpr std::uint64_t kKey = 0x123456789abcdef0u;
  for (const std::int64_t n : {1, 2, 5, 4003})
    for (const std::uint64_t first : {0ull, 1ull, 3ull, (1ull << 34) + 2})
      for (const LaunchOrder order : kOrders) {
        const auto x = random_values<S>(static_cast<std::size_t>(n), 1),
                   old = random_values<S>(static_cast<std::size_t>(n), 2);
        std::vector<S> want(x.size()), y(x.size()), sum = old;
        const std::uint32_t threshold = dropout_threshold(0.3);
        reference::dropout<S>(kKey, first, threshold, 1.25f, x.data(), want.data(), n);
        launch_on_host(Grid{3}, Dropout<S>{x.data(), y.data(), n, kKey, first, threshold, 1.25f, false},
                       order);
        EXPECT_TRUE(same_bits(y, want)) << n << " from " << first;
        launch_on_host(Grid{2}, Dropout<S>{x.data(), sum.data(), n, kKey, first, threshold, 1.25f, true},
                       order);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          const bool keep = philox_word(kKey, first + i) >= threshold;
          const float kept = keep ? reference::get(x[i]) * 1.25f : 0.0f;
          EXPECT_EQ(reference::get(sum[i]), reference::get(reference::put<S>(reference::get(old[i]) + kept)))
              << i;
        }
      }
}

}  // namespace
}  // namespace tenon::kernels::cuda::nn_test
