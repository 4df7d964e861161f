// Attention on the host launcher against the reference in double, with bounds that are derived below; the
// same bits for both orders of blocks and threads; and the products of tiles inside it.
#include "testing.hpp"

#include <tenon/kernels/cuda/attention_start.hpp>
#include <tenon/kernels/reference/attention.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::kernels::cuda::attention_test {
namespace {

using testing::random_values;
using testing::same_bits;
using testing::to_double;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

struct Shape {
  std::int64_t batch, time, heads, d_head, window;
  double scale;
  bool masked;
  std::int64_t kv_heads = 0;   ///< 0: heads
  std::int64_t earlier = 0;    ///< keys before the first query
  std::int64_t documents = 0;  ///< about so many tokens each; 1: every token is one; 0: none

  std::int64_t keys() const { return time + earlier; }
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t fused() const { return (heads + 2 * key_heads()) * d_head; }
};
// Around the edges of tiles (64 and 32 rows) and slices (128 columns).
constexpr Shape kShapes[] = {{1, 1, 1, 1, 0, 1.0, false},
                             {2, 33, 3, 20, 0, 0.25, false},
                             {1, 64, 1, 16, 0, 0.25, false},
                             {2, 130, 2, 16, 37, 0.25, false},
                             {1, 200, 1, 64, 65, 0.125, true},
                             {2, 70, 2, 64, 0, 0.125, true},
                             {1, 97, 3, 8, 1, 1.0, false},
                             {1, 75, 1, 128, 0, 0.1, false},
                             {1, 70, 2, 150, 9, 0.08, true},
                             {1, 130, 1, 260, 0, 0.06, false},
                             {2, 70, 4, 16, 0, 0.25, false, 2},
                             {1, 70, 4, 150, 20, 0.08, true, 1, 5},
                             {1, 3, 2, 16, 0, 0.25, false, 1, 140},
                             {2, 65, 2, 20, 40, 0.25, false, 0, 64},
                             {2, 200, 2, 16, 0, 0.25, false, 0, 0, 50},
                             {1, 70, 2, 16, 0, 0.25, false, 0, 0, 1},
                             {2, 150, 6, 20, 33, 0.25, true, 2, 77, 60}};

/// Inputs from one fused projection, and the results computed from them.
template <class S>
struct Problem {
  using A = Arith<S>;
  Shape shape;
  std::vector<S> qkv, dout, out, dqkv;
  std::vector<A> lse, sums;
  std::vector<std::uint8_t> mask;
  std::vector<std::int32_t> documents;

  explicit Problem(const Shape& s) : shape(s) {
    const std::size_t n = s.batch * s.time * s.heads * s.d_head, fused = s.batch * s.keys() * s.fused();
    qkv = random_values<S>(fused, 1);
    dout = random_values<S>(n, 2);
    out.resize(n), dqkv.resize(fused);
    lse.resize(s.batch * s.heads * s.time);
    sums.resize(lse.size());
    for (std::int64_t i = 0; i < s.batch * s.keys(); ++i) {
      const std::int64_t t = i % s.keys();
      // The first queries see nothing at all, and a whole tile of keys is hidden where there are more.
      if (s.masked) mask.push_back(t < 2 || (t >= 64 && t < 128 && s.time > 150) || i % 5 == 3 ? 0 : 1);
      if (s.documents == 0) continue;
      const bool begins = (static_cast<std::uint64_t>(i) * 2654435761u >> 7) % s.documents == 0;
      documents.push_back(t == 0 ? -7 : documents.back() + (begins ? 3 : 0));
    }
  }

  AttentionArgs<S> args() {
    AttentionArgs<S> a;
    const std::int64_t width = shape.heads * shape.d_head, key_width = shape.key_heads() * shape.d_head;
    a.batch = shape.batch, a.time = shape.time, a.heads = shape.heads, a.d_head = shape.d_head;
    a.kv_heads = shape.key_heads(), a.keys = shape.keys();
    a.window = shape.window, a.scale = static_cast<A>(shape.scale);
    a.q = qkv.data(), a.k = a.q + width, a.v = a.k + key_width;
    a.q_row_stride = a.kv_row_stride = a.dq_row_stride = a.dkv_row_stride = shape.fused();
    a.key_mask = mask.empty() ? nullptr : mask.data();
    a.documents = documents.empty() ? nullptr : documents.data();
    a.out = out.data(), a.out_row_stride = width, a.lse = lse.data(), a.dout = dout.data();
    a.dq = dqkv.data(), a.dk = a.dq + width, a.dv = a.dk + key_width;
    return a;
  }

  void run(LaunchOrder order) {
    const AttentionArgs<S> a = args();
    const auto launch = [order](const char*, const auto& body) { launch_on_host(body.mesh(), body, order); };
    start_attention<S>(a, launch);
    start_attention_backward<S>(a, sums.data(), launch);
  }

  /// The reference in double on the same inputs.
  Problem<double> expected() const {
    Problem<double> p(shape);
    p.qkv = to_double(qkv), p.dout = to_double(dout);
    AttentionArgs<double> a = p.args();
    a.scale = static_cast<double>(static_cast<A>(shape.scale));
    reference::attention_forward<double>(a, 0, attention_forward_items(a), nullptr);
    reference::attention_backward<double>(a, 0, attention_backward_items(a), nullptr);
    return p;
  }
};

/// The largest sum over queries, of all heads that read it, of the probabilities of one key.
double largest_column(Problem<double>& p) {
  const AttentionArgs<double> a = p.args();
  double largest = 1;
  std::vector<double> columns;
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t h = 0; h < a.heads; ++h) {
      if (h % (a.heads / a.kv_heads) == 0) columns.assign(a.keys, 0);
      for (std::int64_t t = 0; t < a.time; ++t) {
        const double lse = a.lse[(b * a.heads + h) * a.time + t];
        const auto logits = reference::attention_logits(a, b, h, t);
        for (std::size_t key = 0; key < columns.size(); ++key)
          columns[key] += std::isinf(logits[key]) ? 0 : std::exp(logits[key] - lse);
      }
      largest = std::max(largest, *std::max_element(columns.begin(), columns.end()));
    }
  return largest;
}

/// Error bounds against exact results: all inputs are within [-1, 1], `u` is one rounding of the arithmetic,
/// `r` one of storage (zero where both are the same).
struct Bounds {
  double out, lse, dq, dk, dv;

  Bounds(const Shape& s, double u, double r, double column) {
    const auto d = static_cast<double>(s.d_head);
    const auto time = static_cast<double>(s.keys() * (s.heads / s.key_heads()));
    const double logit = (d + 2) * u * d * s.scale;  // d products and sums
    const double p = 2 * logit + 16 * u;             // relative: exp of a logit less the largest, or lse
    const double chain = (time + 16) * u;            // over keys, or queries of all heads, with rescaling
    // Weights sum up to one: their own errors, their sum's, and that of the chain over V.
    out = 2 * (p + chain) + r;
    lse = logit + 2 * (p + chain);
    const double dp = d * u * d;               // of dO V', of which each element is at most d
    const double d_sums = dp + d * (out + r);  // through the stored output
    const double ds = s.scale * (2 * d * (p + chain + lse + r) + dp + d_sums);
    dq = ds + r * 2 * d * s.scale;
    dk = column * dq;
    dv = column * (p + chain + lse + r);
  }
};

template <class S>
void expect_near(const std::vector<S>& found, const std::vector<double>& expected, double bound, double r,
                 const char* what, const Shape& s, int part = -1) {
  // Columns of q, k and v in a fused row.
  const std::int64_t width = s.heads * s.d_head, key_width = s.key_heads() * s.d_head;
  const std::int64_t ends[] = {width, width + key_width, width + 2 * key_width};
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % s.fused();
    if (part >= 0 && (column >= ends[part] || (part > 0 && column < ends[part - 1]))) continue;
    const auto value = static_cast<double>(reference::get(found[i]));
    if (std::isinf(expected[i]) && value == expected[i]) continue;
    const double error = std::abs(value - expected[i]) - 1.01 * r * std::abs(expected[i]);
    worst = error > worst || std::isnan(error) ? error : worst;
  }
  EXPECT_LE(worst, bound) << what << ": time " << s.time << " d " << s.d_head << " window " << s.window
                          << " key heads " << s.kv_heads << " earlier " << s.earlier << " documents "
                          << s.documents;
}

template <class S>
struct CudaAttentionTest : ::testing::Test {};
using Storages = ::testing::Types<float, double, Bf16>;
TYPED_TEST_SUITE(CudaAttentionTest, Storages);

TYPED_TEST(CudaAttentionTest, MatchesTheReference) {
  using S = TypeParam;
  constexpr double u = std::is_same_v<S, double> ? 0x1p-53 : 0x1p-24;
  constexpr double r = std::is_same_v<S, Bf16> ? 0x1p-8 : 0;
  for (const Shape& s : kShapes) {
    Problem<S> problem(s);
    Problem<double> expected = problem.expected();
    const Bounds bounds(s, u, r, largest_column(expected));
    problem.run(LaunchOrder::kAscending);
    expect_near(problem.out, expected.out, bounds.out, r, "out", s);
    expect_near(problem.lse, expected.lse, bounds.lse, u, "lse", s);
    expect_near(problem.dqkv, expected.dqkv, bounds.dq, r, "dq", s, 0);
    expect_near(problem.dqkv, expected.dqkv, bounds.dk, r, "dk", s, 1);
    expect_near(problem.dqkv, expected.dqkv, bounds.dv, r, "dv", s, 2);
  }
}

TYPED_TEST(CudaAttentionTest, GivesTheSameBitsInAnyOrder) {
  using S = TypeParam;
  for (const Shape& s : kShapes) {
    Problem<S> first(s);
    first.run(kOrders[0]);
    Problem<S> second(s);
    second.run(kOrders[1]);
    EXPECT_TRUE(same_bits(first.out, second.out) && same_bits(first.lse, second.lse) &&
                same_bits(first.dqkv, second.dqkv))
        << "time " << s.time << " d " << s.d_head;
  }
}

// A failed run shows in the output.
TYPED_TEST(CudaAttentionTest, KeepsNaNs) {
  using S = TypeParam;
  Problem<S> problem({1, 70, 1, 8, 0, 1.0, false});
  const std::size_t row = 66 * 24;
  problem.qkv[row] = reference::put<S>(std::numeric_limits<Arith<S>>::quiet_NaN());  // query 66
  problem.run(LaunchOrder::kAscending);
  const auto out = to_double(problem.out);
  for (std::size_t t = 0; t < 70; ++t) EXPECT_EQ(std::isnan(out[t * 8]), t == 66) << t;
}

template <class S>
void check_products(bool transpose_a, bool transpose_b) {
  using A = Arith<S>;
  constexpr int kRows = 32, kColumns = 48, kDepth = 64, kStrideA = 72, kStrideB = 88, kStrideC = 52;
  const auto a = random_values<S>(72 * 72, 1), b = random_values<S>(88 * 88, 2);
  for (const bool add : {false, true})
    for (const LaunchOrder order : kOrders) {
      const auto old = random_values<A>(kRows * kStrideC, 3);
      auto c = old;
      const TileProduct<S> product{a.data(), kStrideA, b.data(), kStrideB, c.data(),
                                   kStrideC, kRows,    kColumns, kDepth,   add};
      launch_on_host(
          Grid{1},
          [&](const Block& block) {
            if (transpose_a && transpose_b)
              multiply_tiles<Stored::kTransposed, Stored::kTransposed>(block, product);
            else if (transpose_a)
              multiply_tiles<Stored::kTransposed, Stored::kPlain>(block, product);
            else if (transpose_b)
              multiply_tiles<Stored::kPlain, Stored::kTransposed>(block, product);
            else
              multiply_tiles<Stored::kPlain, Stored::kPlain>(block, product);
          },
          order);
      auto expected = old;
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kColumns; ++j) {
          A sum = add ? old[i * kStrideC + j] : A{0};
          for (int l = 0; l < kDepth; ++l)
            sum += get(a[transpose_a ? l * kStrideA + i : i * kStrideA + l]) *
                   get(b[transpose_b ? j * kStrideB + l : l * kStrideB + j]);
          expected[i * kStrideC + j] = sum;
        }
      EXPECT_TRUE(same_bits(c, expected)) << transpose_a << transpose_b << add;
    }
}

TYPED_TEST(CudaAttentionTest, TileProductsAreChains) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) check_products<TypeParam>(transpose_a, transpose_b);
}

}  // namespace
}  // namespace tenon::kernels::cuda::attention_test
