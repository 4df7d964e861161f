// Causal attention, global, windowed and masked, against loops in double; gradients against the formulas of
// softmax.
#include "device_test.hpp"

#include <tenon/ops/attention.hpp>

#include <cmath>
#include <limits>

namespace tenon::testing::attention_test {
namespace {

double& at(std::vector<double>& values, std::int64_t i) {
  return values[i];
}
double at(const std::vector<double>& values, std::int64_t i) {
  return values[i];
}

struct Expected {
  std::vector<double> y, lse, dq, dk, dv;
};

/// mask: [batch, time] of 0 and 1, or empty.
Expected expected(const AttentionSpec& s, const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& mask,
                  const std::vector<double>& dy) {
  const std::int64_t width = s.heads * s.head_width;
  Expected e;
  e.y.resize(q.size()), e.dq.resize(q.size()), e.dk.resize(q.size()), e.dv.resize(q.size());
  e.lse.resize(s.batch * s.heads * s.time);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t t = 0; t < s.time; ++t) {
        const auto index = [&](std::int64_t time, std::int64_t d) {
          return (b * s.time + time) * width + h * s.head_width + d;
        };
        const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, t - s.window + 1) : 0;
        std::vector<double> p(s.time), dp(p.size());
        double total = 0, dot = 0;
        for (std::int64_t u = first; u <= t; ++u) {
          if (!mask.empty() && at(mask, b * s.time + u) == 0) continue;
          double score = 0;
          for (std::int64_t d = 0; d < s.head_width; ++d) score += at(q, index(t, d)) * at(k, index(u, d));
          at(p, u) = std::exp(s.logit_scale * score);
          total += at(p, u);
        }
        at(e.lse, (b * s.heads + h) * s.time + t) = std::log(total);
        if (total == 0) continue;
        for (std::int64_t u = first; u <= t; ++u) {
          at(p, u) /= total;
          for (std::int64_t d = 0; d < s.head_width; ++d) {
            at(e.y, index(t, d)) += at(p, u) * at(v, index(u, d));
            at(e.dv, index(u, d)) += at(p, u) * at(dy, index(t, d));
            at(dp, u) += at(dy, index(t, d)) * at(v, index(u, d));
          }
          dot += at(p, u) * at(dp, u);
        }
        for (std::int64_t u = first; u <= t; ++u) {
          const double ds = s.logit_scale * at(p, u) * (at(dp, u) - dot);
          for (std::int64_t d = 0; d < s.head_width; ++d) {
            at(e.dq, index(t, d)) += ds * at(k, index(u, d));
            at(e.dk, index(u, d)) += ds * at(q, index(t, d));
          }
        }
      }
  return e;
}

class AttentionFamily : public OnEveryChoice {
 protected:
  Attention& family() { return device_.family<Attention>(); }
};

struct Case {
  AttentionSpec spec;
  bool masked;
};
constexpr Case kCases[] = {
    {{.batch = 1, .time = 1, .heads = 1, .head_width = 1}, false},
    {{.batch = 2, .time = 33, .heads = 3, .head_width = 20, .logit_scale = 0.25}, false},
    {{.batch = 2, .time = 130, .heads = 2, .head_width = 16, .window = 37, .logit_scale = 0.25}, false},
    {{.batch = 2, .time = 70, .heads = 2, .head_width = 64, .logit_scale = 0.125}, true},
    {{.batch = 1, .time = 65, .heads = 5, .head_width = 8, .window = 1, .logit_scale = 1}, false}};

TEST_P(AttentionFamily, MatchesTheFormulas) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const Case& c : kCases) {
      AttentionSpec spec = c.spec;
      spec.dtype = dtype;
      const std::string name = std::string(dtype_name(dtype)) + " time " + std::to_string(spec.time) +
                               " window " + std::to_string(spec.window) + (c.masked ? " masked" : "");
      const Shape shape{spec.batch, spec.time, spec.heads * spec.head_width};
      const std::int64_t n = shape.elements();
      const auto q = numbers(n, "q", dtype), k = numbers(n, "k", dtype), v = numbers(n, "v", dtype),
                 dy = numbers(n, "dy", dtype);
      std::vector<double> mask;
      if (c.masked) {
        // The first queries of every sequence attend to nothing at all.
        mask = integers(spec.batch * spec.time, 2, "mask");
        for (std::int64_t b = 0; b < spec.batch; ++b)
          at(mask, b * spec.time) = at(mask, b * spec.time + 1) = 0;
      }
      const Expected want = expected(spec, q, k, v, mask, dy);
      const Owned q_t(device_, shape, dtype, q), k_t(device_, shape, dtype, k), v_t(device_, shape, dtype, v),
          dy_t(device_, shape, dtype, dy), y(device_, shape, dtype), dq(device_, shape, dtype),
          dk(device_, shape, dtype), dv(device_, shape, dtype),
          lse(device_, Shape{spec.batch, spec.heads, spec.time}, arithmetic(dtype));
      std::unique_ptr<Owned> mask_t;
      if (c.masked) mask_t = std::make_unique<Owned>(device_, Shape{spec.batch, spec.time}, DType::kU8, mask);
      const TensorView mask_view = c.masked ? TensorView(*mask_t) : TensorView{};
      std::vector<std::vector<std::byte>> first;
      for (const int threads : {1, 2, 3}) {
        set_parallel_threads(threads);
        const auto kernel = family().prepare(spec);
        const Owned scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
        kernel->forward(q_t, k_t, v_t, mask_view, y, lse, scratch);
        kernel->backward(q_t, k_t, v_t, mask_view, y, lse, dy_t, dq, dk, dv, scratch);
        std::vector<std::vector<std::byte>> found = {y.bytes(), lse.bytes(), dq.bytes(), dk.bytes(),
                                                     dv.bytes()};
        if (threads == 1) first = found;
        EXPECT_EQ(found, first) << name << " with " << threads << " threads";
      }
      // Sums over time and head width in the arithmetic type; backward reads y as stored.
      const double forward_bound = 256 * unit(arithmetic(dtype)) + 1.01 * unit(dtype);
      const double backward_bound =
          1024 * unit(arithmetic(dtype)) + (dtype == DType::kBF16 ? 6 : 1.01) * unit(dtype);
      EXPECT_LE(relative_error(y.values(), want.y), forward_bound) << name;
      auto found_lse = lse.values(), want_lse = want.lse;
      for (std::size_t i = 0; i < found_lse.size(); ++i) {
        if (want_lse[i] != -std::numeric_limits<double>::infinity()) continue;
        EXPECT_EQ(found_lse[i], want_lse[i]) << name;
        found_lse[i] = want_lse[i] = 0;
      }
      EXPECT_LE(relative_error(found_lse, want_lse), 256 * unit(arithmetic(dtype))) << name;
      EXPECT_LE(relative_error(dq.values(), want.dq), backward_bound) << name;
      EXPECT_LE(relative_error(dk.values(), want.dk), backward_bound) << name;
      EXPECT_LE(relative_error(dv.values(), want.dv), backward_bound) << name;
    }
}

TEST_P(AttentionFamily, RefusesWhatItCannotDo) {
  EXPECT_THROW(family().prepare({.batch = 1, .time = 1, .heads = 0, .head_width = 4}), Error);
  EXPECT_THROW(family().prepare({.batch = 1, .time = 1, .heads = 1, .head_width = 4, .dtype = DType::kI8}),
               Error);
  const auto kernel = family().prepare({.batch = 1, .time = 2, .heads = 1, .head_width = 4});
  const Owned x(device_, Shape{1, 2, 4}, DType::kF32), lse(device_, Shape{1, 1, 2}, DType::kF32);
  if (kernel->scratch_bytes() > 0) {
    EXPECT_THROW(kernel->forward(x, x, x, {}, x, lse, {}), Error);
  }
  EXPECT_THROW(kernel->forward(x, x, lse, {}, x, lse, {}), Error);
}

INSTANTIATE_TEST_SUITE_P(Device, AttentionFamily, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::attention_test
