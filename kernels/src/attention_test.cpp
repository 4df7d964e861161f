// Attention: the block-wise kernels against the double reference within bounds carried through the formulas,
// over windows, masks, documents, grouped heads, earlier keys, strides and lengths around the block edges.
#include <limits>

#include "testing.hpp"

namespace tenon::kernels::attention_test {
namespace {

using namespace testing;

/// All sets, and the one with tiles also where the processor has none: loops stand in for them.
std::vector<const KernelTable*> attention_sets() {
  std::vector<const KernelTable*> sets = all_sets();
#ifdef TENON_HAS_TILES_BY_LOOPS
  const CpuFeatures features = detect_cpu_features();
#ifdef TENON_HAS_AVX512_BY_LOOPS
  if (features.avx2) sets.push_back(&kernels_tiles_by_loops());
#else
  if (features.avx512) sets.push_back(&kernels_tiles_by_loops());
#endif
#endif
  return sets;
}

struct Case {
  std::int64_t batch, time, heads, d_head, window;
  bool masked;
  double scale;
  std::int64_t kv_heads = 0;   ///< 0: heads
  std::int64_t earlier = 0;    ///< keys before the first query
  std::int64_t documents = 0;  ///< about so many tokens each; 1: every token is one; 0: none

  std::int64_t keys() const { return time + earlier; }
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
};
constexpr Case kCases[] = {
    {1, 1, 1, 4, 0, false, 1.0},
    {2, 5, 2, 3, 0, false, 0.5},
    {1, 64, 1, 16, 0, false, 0.25},
    {1, 65, 2, 16, 0, true, 0.25},
    {1, 150, 1, 20, 0, false, 0.25},
    {2, 150, 1, 8, 1, false, 1.0},
    {1, 150, 2, 8, 7, true, 0.3},
    {1, 200, 1, 8, 64, false, 0.3},
    {1, 200, 1, 8, 65, true, 0.3},
    {1, 130, 1, 33, 500, true, 0.2},
    {1, 193, 2, 64, 0, false, 0.125},
    {1, 130, 1, 96, 70, true, 0.1},
    {1, 70, 1, 8, 0, false, -0.5},
    {2, 150, 4, 8, 0, false, 0.3, 2},
    {1, 130, 6, 33, 40, true, 0.2, 1},
    {2, 30, 4, 8, 0, false, 0.3, 2},
    {1, 1, 2, 16, 0, false, 0.3, 1, 200},
    {2, 70, 2, 16, 0, false, 0.25, 0, 1},
    {1, 100, 2, 16, 0, true, 0.25, 0, 64},
    {1, 130, 2, 8, 50, false, 0.3, 0, 131},
    {1, 65, 4, 40, 9, false, 0.2, 2, 300},
    {2, 200, 2, 16, 0, false, 0.25, 0, 0, 40},
    {1, 260, 1, 8, 0, false, 0.3, 0, 0, 130},
    {1, 150, 2, 16, 0, false, 0.25, 0, 0, 1},
    {1, 260, 2, 8, 30, true, 0.3, 0, 0, 50},
    {2, 150, 4, 16, 33, true, 0.25, 1, 170, 60},
    {1, 190, 4, 64, 0, false, 0.125, 2, 37, 90},
};

template <class S>
struct Tensors {
  std::vector<S> qkv, dout, out, dqkv;  ///< q, k, v of one fused projection
  std::vector<Arith<S>> lse;
  std::vector<std::uint8_t> mask;
  std::vector<std::int32_t> documents;
};

template <class S>
Tensors<S> make_tensors(const Case& c) {
  const auto rows = static_cast<std::size_t>(c.batch * c.keys()),
             fused = static_cast<std::size_t>((c.heads + 2 * c.key_heads()) * c.d_head);
  Tensors<S> t{random_values<S>(rows * fused, 1, -2, 2),
               random_values<S>(c.batch * c.time * c.heads * c.d_head, 2),
               {},
               {},
               {},
               {},
               {}};
  t.mask.resize(rows), t.documents.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t key = i % static_cast<std::size_t>(c.keys());
    // Hides the first keys of each sequence among others, so that some queries see nothing.
    t.mask[i] = key >= 3 && i % 5 != 0;
    // Lengths differ, among them documents of one token, and numbers have gaps.
    const bool begins = c.documents > 0 && key > 0 && (i * 2654435761u >> 7) % c.documents == 0;
    t.documents[i] = key == 0 ? -7 : t.documents[i - 1] + (begins ? 3 : 0);
  }
  return t;
}

template <class S>
AttentionArgs<S> make_args(const Case& c, Tensors<S>& t) {
  const std::int64_t width = c.heads * c.d_head, key_width = c.key_heads() * c.d_head;
  t.out.assign(t.dout.size(), S{});
  t.dqkv.assign(t.qkv.size(), S{});
  t.lse.assign(c.batch * c.heads * c.time, 0);
  AttentionArgs<S> a;
  a.batch = c.batch, a.time = c.time, a.heads = c.heads, a.d_head = c.d_head, a.window = c.window;
  a.kv_heads = c.key_heads(), a.keys = c.keys();
  a.scale = static_cast<Arith<S>>(c.scale);
  a.q = t.qkv.data(), a.k = a.q + width, a.v = a.k + key_width;
  a.q_row_stride = a.kv_row_stride = a.dq_row_stride = a.dkv_row_stride = width + 2 * key_width;
  a.key_mask = c.masked ? t.mask.data() : nullptr;
  a.documents = c.documents > 0 ? t.documents.data() : nullptr;
  a.out = t.out.data();
  a.out_row_stride = width;
  a.lse = t.lse.data();
  a.dout = t.dout.data();
  a.dq = t.dqkv.data(), a.dk = a.dq + width, a.dv = a.dk + key_width;
  return a;
}

template <class S>
void run(const AttentionOps<S>& ops, const AttentionArgs<S>& args, bool one_by_one) {
  std::vector<Arith<S>> workspace(ops.workspace(args), std::numeric_limits<Arith<S>>::quiet_NaN());
  const auto all = [&](auto call, std::int64_t items) {
    if (!one_by_one) return call(args, 0, items, workspace.data());
    for (std::int64_t item = items - 1; item >= 0; --item) call(args, item, item + 1, workspace.data());
  };
  all(ops.forward, attention_forward_items(args));
  all(ops.backward, attention_backward_items(args));
}

/// Sums of magnitudes along the formulas, to which rounding errors are proportional.
struct Magnitudes {
  std::vector<double> out, dqkv;
  double logit = 0;  ///< largest sum of |q| |k| |scale|
};

Magnitudes magnitudes(const AttentionArgs<double>& a) {
  Magnitudes m{std::vector<double>(a.batch * a.time * a.out_row_stride),
               std::vector<double>(a.batch * a.keys * a.dq_row_stride), 0};
  const std::int64_t width = a.heads * a.d_head, key_width = a.kv_heads * a.d_head;
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t h = 0; h < a.heads; ++h)
      for (std::int64_t t = 0; t < a.time; ++t) {
        const std::int64_t position = a.keys - a.time + t, key_head = h / (a.heads / a.kv_heads);
        const auto query = [&](std::int64_t j) {
          return (b * a.time + t) * a.q_row_stride + h * a.d_head + j;
        };
        const auto in = [&](std::int64_t row, std::int64_t j) {
          return (b * a.keys + row) * a.kv_row_stride + key_head * a.d_head + j;
        };
        const auto seen = [&](std::int64_t s) {
          if (a.window > 0 && s <= position - a.window) return false;
          if (a.documents != nullptr && a.documents[b * a.keys + s] != a.documents[b * a.keys + position])
            return false;
          return a.key_mask == nullptr || a.key_mask[b * a.keys + s] != 0;
        };
        const auto out = [&](std::int64_t row, std::int64_t j) {
          return static_cast<std::size_t>((b * a.time + row) * a.out_row_stride + h * a.d_head + j);
        };
        std::vector<double> p(a.keys), dp(p.size());
        double expected = 0;
        for (std::int64_t s = 0; s <= position; ++s) {
          if (!seen(s)) continue;
          double dot = 0, size = 0;
          for (std::int64_t j = 0; j < a.d_head; ++j) {
            dot += a.q[query(j)] * a.k[in(s, j)] * a.scale;
            size += std::abs(a.q[query(j)] * a.k[in(s, j)] * a.scale);
            dp[s] += std::abs(a.dout[out(t, j)] * a.v[in(s, j)]);
          }
          m.logit = std::max(m.logit, size);
          p[s] = std::exp(dot - a.lse[(b * a.heads + h) * a.time + t]);
          expected += p[s] * dp[s];
        }
        for (std::int64_t s = 0; s <= position; ++s) {
          const double ps = p[s], ds = ps * (dp[s] + expected) * std::abs(a.scale);
          for (std::int64_t j = 0; j < a.d_head; ++j) {
            m.out[out(t, j)] += ps * std::abs(a.v[in(s, j)]);
            m.dqkv[query(j)] += ds * std::abs(a.k[in(s, j)]);
            m.dqkv[in(s, j) + width] += ds * std::abs(a.q[query(j)]);
            m.dqkv[in(s, j) + width + key_width] += ps * std::abs(a.dout[out(t, j)]);
          }
        }
      }
  return m;
}

template <class S>
struct AttentionTest : ::testing::Test {};
TYPED_TEST_SUITE(AttentionTest, Storages);

TYPED_TEST(AttentionTest, EverySetStaysWithinItsBound) {
  using S = TypeParam;
  for (const Case& c : kCases) {
    auto tensors = make_tensors<S>(c);
    Tensors<double> wide{to_double(tensors.qkv), to_double(tensors.dout), {}, {}, {},
                         tensors.mask,           tensors.documents};
    const auto exact = make_args(c, wide);
    run(reference_double_kernels().f64.attention, exact, false);
    const Magnitudes m = magnitudes(exact);
    // A probability errs by twice the logit's error (its own, and that of the log-sum-exp) and the later
    // sums.
    const double logit_error = (static_cast<double>(c.d_head) + 3) * kFloatRoundoff * m.logit;
    const double p_error =
        2 * logit_error + (static_cast<double>(c.keys()) + 4 * kExpUlp + 3 * m.logit + 16) * kFloatRoundoff;
    // A gradient of keys is a sum over the queries of all heads that read them.
    const auto terms = static_cast<double>(c.keys() * (c.heads / c.key_heads()));
    const double gradient_error =
        p_error * 2 + (2 * terms + 2 * static_cast<double>(c.d_head)) * kFloatRoundoff;
    const double store = sizeof(S) == 2 ? kBf16Roundoff : 0.0;
    SameAcrossFusingSets<S> same, same_gradient;
    SameAcrossFusingSets<float> same_lse;
    for (const KernelTable* set : attention_sets()) {
      // Tiles read the weights and the gradients of logits rounded to bfloat16 (attention.hpp), and sum in an
      // order of their own.
      const bool tiles = sizeof(S) == 2 && std::string_view(set->name) == "amx";
      const double operand = tiles ? kBf16Roundoff : 0.0;
      const auto what = [&] {
        return std::string(set->name) + " time " + std::to_string(c.time) + " window " +
               std::to_string(c.window) + " key heads " + std::to_string(c.kv_heads) + " earlier " +
               std::to_string(c.earlier) + " documents " + std::to_string(c.documents);
      };
      run(ops<S>(*set).attention, make_args(c, tensors), false);
      EXPECT_TRUE(within(tensors.out, wide.out, [&](std::size_t i) {
        return (p_error + operand) * m.out[i] + store * std::abs(wide.out[i]);
      })) << what();
      for (std::size_t i = 0; i < wide.lse.size(); ++i) {
        if (std::isinf(wide.lse[i]))
          EXPECT_EQ(tensors.lse[i], -std::numeric_limits<float>::infinity()) << what() << " row " << i;
        else
          EXPECT_NEAR(tensors.lse[i], wide.lse[i], p_error) << what() << " row " << i;
      }
      // With bfloat16 storage backward reads the rounded `out`: its error enters delta = sum(dout out).
      EXPECT_TRUE(within(tensors.dqkv, wide.dqkv, [&](std::size_t i) {
        return (gradient_error + store + operand) * m.dqkv[i] + store * std::abs(wide.dqkv[i]);
      })) << what();
      if (!tiles) {
        same.see(*set, tensors.out);
        same_gradient.see(*set, tensors.dqkv);
        same_lse.see(*set, tensors.lse);
      }

      const auto out = tensors.out, gradient = tensors.dqkv;
      run(ops<S>(*set).attention, make_args(c, tensors), true);
      EXPECT_TRUE(same_bits(tensors.out, out) && same_bits(tensors.dqkv, gradient))
          << what() << ": another split, other bits";
    }
  }
}

// Logits of +-100: exp without a running maximum would overflow.
TEST(Attention, LargeLogitsDoNotOverflow) {
  const Case c{1, 100, 1, 4, 0, false, 30.0};
  auto tensors = make_tensors<float>(c);
  for (const KernelTable* set : all_sets()) {
    run(set->f32.attention, make_args(c, tensors), false);
    EXPECT_EQ(
        set->f32.reduce.first_non_finite(tensors.out.data(), static_cast<std::int64_t>(tensors.out.size())),
        -1)
        << set->name;
    EXPECT_EQ(
        set->f32.reduce.first_non_finite(tensors.dqkv.data(), static_cast<std::int64_t>(tensors.dqkv.size())),
        -1)
        << set->name;
  }
}

// The packed rows of documents against one row for each, to the bit: zeros of hidden keys change no sum of
// the reference, whose keys come one after the other.
TYPED_TEST(AttentionTest, DocumentsOfTheReferenceAreRowsOfTheirOwn) {
  using S = TypeParam;
  const std::int64_t lengths[] = {1, 5, 70, 2, 1, 64, 9};
  for (const std::int64_t window : {0, 1, 4, 66}) {
    Case packed{1, 0, 4, 8, window, false, 0.3, 2, 0, 1};
    for (const std::int64_t length : lengths) packed.time += length;
    auto all = make_tensors<S>(packed);
    std::size_t filled = 0;
    for (std::size_t i = 0; i < std::size(lengths); ++i)
      for (std::int64_t t = 0; t < lengths[i]; ++t) all.documents[filled++] = static_cast<std::int32_t>(i);
    const auto& reference = ops<S>(reference_kernels()).attention;
    run(reference, make_args(packed, all), false);
    const auto fused = static_cast<std::int64_t>(all.qkv.size()) / packed.time,
               width = static_cast<std::int64_t>(all.out.size()) / packed.time;
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      const auto part = [&](const std::vector<S>& x, std::int64_t columns) {
        return std::vector<S>(x.begin() + begin * columns, x.begin() + (begin + length) * columns);
      };
      Case alone = packed;
      alone.time = length, alone.documents = 0;
      Tensors<S> one{part(all.qkv, fused), part(all.dout, width), {}, {}, {}, {}, {}};
      run(reference, make_args(alone, one), false);
      EXPECT_TRUE(same_bits(one.out, part(all.out, width)) && same_bits(one.dqkv, part(all.dqkv, fused)))
          << "window " << window << ", document of " << length << " at " << begin;
      begin += length;
    }
  }
}

// Numbers that fall are refused by callers; the kernels must not leave the tensors because of them.
TYPED_TEST(AttentionTest, DescendingDocumentsStayInside) {
  using S = TypeParam;
  const Case c{2, 150, 2, 8, 0, false, 0.3, 1, 10, 1};
  for (const KernelTable* set : attention_sets()) {
    auto tensors = make_tensors<S>(c);
    for (std::int32_t& document : tensors.documents) document = -document * 2654435 % 17;
    run(ops<S>(*set).attention, make_args(c, tensors), false);
  }
}

}  // namespace
}  // namespace tenon::kernels::attention_test
