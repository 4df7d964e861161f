// Softmax and cross-entropy: derived bounds against double, chunks against the whole, ignored and extreme
// rows.
#include <limits>

#include "testing.hpp"

namespace tenon::kernels::softmax_test {
namespace {

using namespace testing;

template <class S>
struct SoftmaxTest : ::testing::Test {};
TYPED_TEST_SUITE(SoftmaxTest, Storages);

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Relative error of exp(a - b) for |a|, |b| <= size: rounding of the argument, then kExpUlp.
double exp_error(double size) {
  return 3 * size * kFloatRoundoff + 2 * kExpUlp * kFloatRoundoff;
}

TYPED_TEST(SoftmaxTest, RowSoftmaxStaysWithinItsBound) {
  using S = TypeParam;
  for (const std::int64_t cols : {1, 7, 16, 100})
    for (const double factor : {1.0, -0.25}) {
      constexpr std::int64_t rows = 9;
      const std::size_t n = rows * cols;
      const auto x = random_values<S>(n, 1, -20, 20), dy = random_values<S>(n, 2);
      const auto xd = to_double(x), dyd = to_double(dy);
      const auto& wide = reference_double_kernels().f64.softmax;
      std::vector<double> exact(n), exact_dx(n);
      wide.softmax_forward(factor, xd.data(), exact.data(), rows, cols);
      SameAcrossFusingSets<S> same, same_dx;
      for (const KernelTable* set : all_sets()) {
        std::vector<S> y(n), dx(n);
        const auto& s = ops<S>(*set).softmax;
        s.softmax_forward(static_cast<float>(factor), x.data(), y.data(), rows, cols);
        const double sum_error = (static_cast<double>(cols) + 6) * kFloatRoundoff + 2 * exp_error(20);
        EXPECT_TRUE(within(
            y, exact,
            [&](std::size_t i) { return exact[i] * (sum_error + (sizeof(S) == 2 ? kBf16Roundoff : 0.0)); }))
            << set->name << " cols " << cols;
        same.see(*set, y);
        // Backward is judged on the y that it was given.
        const auto yd = to_double(y);
        wide.softmax_backward(factor, yd.data(), dyd.data(), exact_dx.data(), rows, cols);
        s.softmax_backward(static_cast<float>(factor), y.data(), dy.data(), dx.data(), rows, cols);
        EXPECT_TRUE(within(dx, exact_dx,
                           [&](std::size_t i) {
                             return 2 * (static_cast<double>(cols) + 8) * kFloatRoundoff * yd[i] +
                                    (sizeof(S) == 2 ? kBf16Roundoff * std::abs(exact_dx[i]) : 0.0);
                           }))
            << set->name << " cols " << cols;
        same_dx.see(*set, dx);
      }
    }
}

template <class S>
struct Losses {
  std::vector<Arith<S>> loss, lse;
  std::vector<S> dlogits;
};

/// Forward and backward over chunks of `chunk` columns, rows taken by ones.
template <class S>
Losses<S> run(const SoftmaxOps<S>& ops, const std::vector<S>& logits,
              const std::vector<std::int32_t>& targets, std::int64_t vocab, std::int64_t chunk,
              Arith<S> scale) {
  const std::size_t n = targets.size();
  std::vector<Arith<S>> highest(n), sum(n), target_logit(n);
  Losses<S> r{std::vector<Arith<S>>(n), std::vector<Arith<S>>(n), logits};
  CrossEntropyArgs<S> args;
  args.rows = static_cast<std::int64_t>(n);
  args.ld = vocab;
  args.targets = targets.data();
  args.running_max = highest.data(), args.running_sum = sum.data(), args.target_logit = target_logit.data();
  args.loss = r.loss.data(), args.lse = r.lse.data();
  args.scale = scale;
  const auto each_chunk = [&](auto call) {
    for (std::int64_t begin = 0; begin < vocab; begin += chunk) {
      args.col_begin = begin;
      args.cols = std::min(chunk, vocab - begin);
      args.logits = logits.data() + begin;
      args.dlogits = r.dlogits.data() + begin;
      for (std::int64_t row = 0; row < args.rows; ++row) call(args, row, row + 1);
    }
  };
  ops.cross_entropy_begin(args, 0, args.rows);
  each_chunk(ops.cross_entropy_chunk);
  ops.cross_entropy_finish(args, 0, args.rows);
  each_chunk(ops.cross_entropy_backward);
  return r;
}

TYPED_TEST(SoftmaxTest, CrossEntropyStaysWithinItsBoundInAnyChunks) {
  using S = TypeParam;
  constexpr std::int64_t vocab = 203;
  const std::vector<std::int32_t> targets = {0, 202, -1, 64, 63, 100, 7, -1};
  const auto logits = random_values<S>(targets.size() * vocab, 3, -15, 15);
  const auto exact =
      run(reference_double_kernels().f64.softmax, to_double(logits), targets, vocab, vocab, 0.125);
  for (const std::int64_t chunk : {vocab, std::int64_t{64}, std::int64_t{30}, std::int64_t{1}}) {
    SameAcrossFusingSets<S> same;
    SameAcrossFusingSets<float> same_loss;
    for (const KernelTable* set : all_sets()) {
      const auto r = run(ops<S>(*set).softmax, logits, targets, vocab, chunk, 0.125f);
      // Relative error of the sum becomes absolute error of its logarithm; each chunk rescales the sum once.
      const double rescales = static_cast<double>((vocab + chunk - 1) / chunk);
      const double sum_error = (vocab + 2 * rescales) * kFloatRoundoff + (1 + rescales) * exp_error(15);
      const double lse_error = sum_error + 22 * 3 * kFloatRoundoff + kLogUlp * 8 * kFloatRoundoff;
      EXPECT_TRUE(within(r.lse, exact.lse, [&](std::size_t) { return lse_error; }))
          << set->name << " chunk " << chunk;
      EXPECT_TRUE(within(r.loss, exact.loss, [&](std::size_t) { return lse_error + 40 * kFloatRoundoff; }))
          << set->name;
      EXPECT_TRUE(within(r.dlogits, exact.dlogits,
                         [&](std::size_t i) {
                           return 0.125 * (2 * lse_error + exp_error(40)) *
                                      (std::abs(exact.dlogits[i]) * 8 + kFloatRoundoff) +
                                  0.125 * 2 * kFloatRoundoff +
                                  (sizeof(S) == 2 ? kBf16Roundoff * std::abs(exact.dlogits[i]) : 0.0);
                         }))
          << set->name << " chunk " << chunk;
      same.see(*set, r.dlogits);
      same_loss.see(*set, r.loss);
      for (const std::size_t row : {2u, 7u}) {
        EXPECT_EQ(r.loss[row], 0.0f) << set->name;
        for (std::size_t j = 0; j < vocab; ++j)
          EXPECT_EQ(reference::get(r.dlogits[row * vocab + j]), 0.0f) << set->name;
      }
    }
  }
}

TEST(CrossEntropy, ExtremeRows) {
  constexpr std::int64_t vocab = 40;
  std::vector<float> logits(4 * vocab, -kInf);
  logits[3] = 5.0f;           // row 0: one choice, probability 1
  logits[vocab + 1] = 3e38f;  // row 1: far apart
  logits[vocab + 2] = -3e38f;
  logits[2 * vocab + 35] = std::nanf("");  // row 2: NaN
  logits[3 * vocab + 35] = kInf;           // row 3: infinity
  for (const KernelTable* set : all_sets())
    for (const std::int64_t chunk : {vocab, std::int64_t{16}}) {
      const auto r = run(set->f32.softmax, logits, {3, 1, 0, 0}, vocab, chunk, 1.0f);
      EXPECT_EQ(r.loss[0], 0.0f) << set->name;
      EXPECT_EQ(r.dlogits[3], 0.0f) << set->name;
      EXPECT_EQ(r.loss[1], 0.0f) << set->name;
      EXPECT_EQ(r.dlogits[vocab + 2], 0.0f) << set->name;
      EXPECT_TRUE(std::isnan(r.loss[2])) << set->name << " chunk " << chunk;
      EXPECT_TRUE(std::isnan(r.loss[3])) << set->name << " chunk " << chunk;
    }
}

}  // namespace
}  // namespace tenon::kernels::softmax_test
