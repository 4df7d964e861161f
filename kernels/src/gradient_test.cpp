// Gradients of the references against central differences in double: L = sum(weight y), step 1e-5.
// Truncation is below 1e-10 times third derivatives of order 100, roundoff below 1e-16 / 1e-5: 1e-7 holds
// both.
#include <functional>

#include "testing.hpp"

namespace tenon::kernels::gradient_test {
namespace {

using namespace testing;
using Vector = std::vector<double>;

constexpr double kStep = 1e-5, kTolerance = 1e-7;

/// Every element of `x`, which `loss` reads, moved to both sides.
void expect_gradient(Vector& x, const std::function<double()>& loss, const Vector& gradient,
                     const char* name) {
  ASSERT_EQ(x.size(), gradient.size());
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + kStep;
    const double above = loss();
    x[i] = kept - kStep;
    const double below = loss();
    x[i] = kept;
    ASSERT_NEAR((above - below) / (2 * kStep), gradient[i], kTolerance) << name << "[" << i << "]";
    largest = std::max(largest, std::abs(gradient[i]));
  }
  EXPECT_GT(largest, 1e-3) << name << ": a gradient of zeros proves nothing";
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

const Ops<double>& f64() {
  return reference_double_kernels().f64;
}

TEST(Gradient, Gelu) {
  Vector x = random_values<double>(50, 1, -4, 4), w = random_values<double>(50, 2), y(50), dx(50);
  const auto& e = f64().elementwise;
  e.gelu_tanh_backward(x.data(), w.data(), dx.data(), 50);
  expect_gradient(
      x, [&] { return e.gelu_tanh_forward(x.data(), y.data(), 50), dot(w, y); }, dx, "gelu tanh");
  e.gelu_erf_backward(x.data(), w.data(), dx.data(), 50);
  expect_gradient(
      x, [&] { return e.gelu_erf_forward(x.data(), y.data(), 50), dot(w, y); }, dx, "gelu erf");
}

TEST(Gradient, Silu) {
  Vector x = random_values<double>(50, 1, -6, 6), w = random_values<double>(50, 2), y(50), dx(50);
  f64().elementwise.silu_backward(x.data(), w.data(), dx.data(), 50);
  expect_gradient(
      x, [&] { return f64().elementwise.silu_forward(x.data(), y.data(), 50), dot(w, y); }, dx, "silu");
}

TEST(Gradient, RmsNorm) {
  constexpr std::int64_t rows = 4, cols = 9;
  Vector x = random_values<double>(rows * cols, 1), w = random_values<double>(rows * cols, 2);
  Vector gain = random_values<double>(cols, 3, 0.5, 1.5), y(x.size()), dx(x.size()), dgain(cols), rstd(rows);
  const auto loss = [&] {
    f64().norm.rms_norm_forward(
        {rows, cols, 1e-2, x.data(), gain.data(), nullptr, y.data(), nullptr, rstd.data()}, 0, rows);
    return dot(w, y);
  };
  loss();
  const LayerNormBackwardArgs<double> args{rows,        cols,         x.data(),    w.data(),
                                           gain.data(), nullptr,      rstd.data(), dx.data(),
                                           false,       dgain.data(), nullptr,     false};
  f64().norm.rms_norm_backward_input(args, 0, rows);
  f64().norm.rms_norm_backward_params(args, 0, cols);
  expect_gradient(x, loss, dx, "x");
  expect_gradient(gain, loss, dgain, "gain");
}

TEST(Gradient, LayerNorm) {
  constexpr std::int64_t rows = 4, cols = 9;
  Vector x = random_values<double>(rows * cols, 1), w = random_values<double>(rows * cols, 2);
  Vector gain = random_values<double>(cols, 3, 0.5, 1.5), bias = random_values<double>(cols, 4);
  Vector y(x.size()), dx(x.size()), dgain(cols), dbias(cols), mean(rows), rstd(rows);
  const auto loss = [&] {
    f64().norm.layer_norm_forward(
        {rows, cols, 1e-2, x.data(), gain.data(), bias.data(), y.data(), mean.data(), rstd.data()}, 0, rows);
    return dot(w, y);
  };
  loss();
  const LayerNormBackwardArgs<double> args{rows,        cols,         x.data(),     w.data(),
                                           gain.data(), mean.data(),  rstd.data(),  dx.data(),
                                           false,       dgain.data(), dbias.data(), false};
  f64().norm.layer_norm_backward_input(args, 0, rows);
  f64().norm.layer_norm_backward_params(args, 0, cols);
  expect_gradient(x, loss, dx, "x");
  expect_gradient(gain, loss, dgain, "gain");
  expect_gradient(bias, loss, dbias, "bias");
}

TEST(Gradient, Softmax) {
  constexpr std::int64_t rows = 3, cols = 7;
  Vector x = random_values<double>(rows * cols, 1, -2, 2), w = random_values<double>(rows * cols, 2),
         y(x.size()), dx(x.size());
  const auto loss = [&] {
    return f64().softmax.softmax_forward(0.7, x.data(), y.data(), rows, cols), dot(w, y);
  };
  loss();
  f64().softmax.softmax_backward(0.7, y.data(), w.data(), dx.data(), rows, cols);
  expect_gradient(x, loss, dx, "x");
}

TEST(Gradient, CrossEntropy) {
  constexpr std::int64_t rows = 4, cols = 6;
  Vector x = random_values<double>(rows * cols, 1, -2, 2), dx(x.size()), highest(rows), sum(rows), hit(rows),
         losses(rows), lse(rows);
  const std::vector<std::int32_t> targets = {2, -1, 5, 0};
  CrossEntropyArgs<double> args;
  args.rows = rows, args.cols = args.ld = cols;
  args.logits = x.data(), args.targets = targets.data();
  args.running_max = highest.data(), args.running_sum = sum.data(), args.target_logit = hit.data();
  args.loss = losses.data(), args.lse = lse.data(), args.dlogits = dx.data();
  args.scale = 1.0 / 3;
  const auto loss = [&] {
    f64().softmax.cross_entropy_begin(args, 0, rows);
    f64().softmax.cross_entropy_chunk(args, 0, rows);
    f64().softmax.cross_entropy_finish(args, 0, rows);
    return (losses[0] + losses[1] + losses[2] + losses[3]) / 3;
  };
  loss();
  f64().softmax.cross_entropy_backward(args, 0, rows);
  expect_gradient(x, loss, dx, "logits");
}

TEST(Gradient, Attention) {
  constexpr std::int64_t batch = 2, keys = 7, heads = 4, d = 3, width = heads * d;
  const std::vector<std::uint8_t> mask = {1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1};
  const std::vector<std::int32_t> documents = {0, 1, 1, 1, 2, 2, 2, 5, 5, 5, 5, 5, 5, 9};
  struct Case {
    std::int64_t window, kv_heads, time;
    bool masked, packed;
  };
  for (const Case& c : {Case{0, 4, 7, false, false}, Case{0, 4, 7, true, false}, Case{3, 4, 7, false, false},
                        Case{3, 4, 7, true, false}, Case{0, 2, 7, false, false}, Case{0, 1, 7, true, true},
                        Case{2, 2, 7, false, true}, Case{0, 4, 3, false, false}, Case{4, 2, 5, true, true}}) {
    const std::size_t n = batch * c.time * width, key_n = batch * keys * c.kv_heads * d;
    Vector q = random_values<double>(n, 1), k = random_values<double>(key_n, 2),
           v = random_values<double>(key_n, 3), w = random_values<double>(n, 4);
    Vector out(n), dq(n), dk(key_n), dv(key_n), lse(batch * heads * c.time);
    AttentionArgs<double> a;
    a.batch = batch, a.time = c.time, a.heads = heads, a.d_head = d, a.window = c.window, a.scale = 0.6;
    a.kv_heads = c.kv_heads, a.keys = keys;
    a.q = q.data(), a.k = k.data(), a.v = v.data();
    a.q_row_stride = a.out_row_stride = a.dq_row_stride = width;
    a.kv_row_stride = a.dkv_row_stride = c.kv_heads * d;
    a.key_mask = c.masked ? mask.data() : nullptr;
    a.documents = c.packed ? documents.data() : nullptr;
    a.out = out.data(), a.lse = lse.data(), a.dout = w.data();
    a.dq = dq.data(), a.dk = dk.data(), a.dv = dv.data();
    const auto loss = [&] {
      return f64().attention.forward(a, 0, attention_forward_items(a), nullptr), dot(w, out);
    };
    loss();
    f64().attention.backward(a, 0, attention_backward_items(a), nullptr);
    expect_gradient(q, loss, dq, "q");
    expect_gradient(k, loss, dk, "k");
    expect_gradient(v, loss, dv, "v");
  }
}

}  // namespace
}  // namespace tenon::kernels::gradient_test
