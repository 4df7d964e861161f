// Causal attention against loops in double, gradients against the formulas of softmax: global, windowed,
// masked, within documents, with grouped heads and with keys before the first query, in chosen and in drawn
// shapes; and against numbers that PyTorch computed (tests/reference/attention.safetensors).
#include "device_test.hpp"
#include "reference/recorded.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/random.hpp>

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

std::int64_t keys_of(const AttentionSpec& s) {
  return s.keys > 0 ? s.keys : s.time;
}
std::int64_t key_heads_of(const AttentionSpec& s) {
  return s.kv_heads > 0 ? s.kv_heads : s.heads;
}

/// mask: [batch, keys] of 0 and 1, documents: [batch, keys]; each may be empty.
Expected expected(const AttentionSpec& s, const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& mask,
                  const std::vector<double>& documents, const std::vector<double>& dy) {
  const std::int64_t width = s.heads * s.head_width, keys = keys_of(s), kv_heads = key_heads_of(s);
  Expected e;
  e.y.resize(q.size()), e.dq.resize(q.size()), e.dk.resize(k.size()), e.dv.resize(k.size());
  e.lse.resize(s.batch * s.heads * s.time);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t t = 0; t < s.time; ++t) {
        const auto query = [&](std::int64_t d) { return (b * s.time + t) * width + h * s.head_width + d; };
        const auto index = [&](std::int64_t key, std::int64_t d) {
          return ((b * keys + key) * kv_heads + h * kv_heads / s.heads) * s.head_width + d;
        };
        const std::int64_t place = keys - s.time + t;
        const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, place - s.window + 1) : 0;
        std::vector<double> p(keys), dp(p.size());
        double total = 0, dot = 0;
        for (std::int64_t u = first; u <= place; ++u) {
          if (!mask.empty() && at(mask, b * keys + u) == 0) continue;
          if (!documents.empty() && at(documents, b * keys + u) != at(documents, b * keys + place)) continue;
          double score = 0;
          for (std::int64_t d = 0; d < s.head_width; ++d) score += at(q, query(d)) * at(k, index(u, d));
          at(p, u) = std::exp(s.logit_scale * score);
          total += at(p, u);
        }
        at(e.lse, (b * s.heads + h) * s.time + t) = std::log(total);
        if (total == 0) continue;
        for (std::int64_t u = first; u <= place; ++u) {
          at(p, u) /= total;
          for (std::int64_t d = 0; d < s.head_width; ++d) {
            at(e.y, query(d)) += at(p, u) * at(v, index(u, d));
            at(e.dv, index(u, d)) += at(p, u) * at(dy, query(d));
            at(dp, u) += at(dy, query(d)) * at(v, index(u, d));
          }
          dot += at(p, u) * at(dp, u);
        }
        for (std::int64_t u = first; u <= place; ++u) {
          const double ds = s.logit_scale * at(p, u) * (at(dp, u) - dot);
          for (std::int64_t d = 0; d < s.head_width; ++d) {
            at(e.dq, query(d)) += ds * at(k, index(u, d));
            at(e.dk, index(u, d)) += ds * at(q, query(d));
          }
        }
      }
  return e;
}

/// Tensors of one call.
struct Inputs {
  std::vector<double> q, k, v, dy, mask, documents;
};
Inputs drawn_inputs(const AttentionSpec& spec, DType dtype) {
  const std::int64_t n = spec.batch * spec.time * spec.heads * spec.head_width,
                     of_keys = spec.batch * keys_of(spec) * key_heads_of(spec) * spec.head_width;
  return {numbers(n, "q", dtype),
          numbers(of_keys, "k", dtype),
          numbers(of_keys, "v", dtype),
          numbers(n, "dy", dtype),
          {},
          {}};
}
/// Ascending numbers with gaps; one token in `length` begins a document, all where it is 1.
std::vector<double> drawn_documents(const AttentionSpec& spec, std::uint64_t length) {
  std::vector<double> numbers = integers(spec.batch * keys_of(spec), length, "documents");
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(numbers.size()); ++i) {
    const bool begins = at(numbers, i) == 0;
    at(numbers, i) = i % keys_of(spec) == 0 ? -3 : at(numbers, i - 1) + (begins ? 2 : 0);
  }
  return numbers;
}

class AttentionFamily : public OnEveryChoice {
 protected:
  Attention& family() { return device_.family<Attention>(); }

  struct Found {
    std::vector<double> y, lse, dq, dk, dv;
  };
  /// Runs forward and backward with 1, 2 and 3 threads, which must give the same bits.
  Found run(const AttentionSpec& spec, const Inputs& in, const std::string& name) {
    const DType dtype = spec.dtype;
    const Shape shape{spec.batch, spec.time, spec.heads * spec.head_width},
        key_shape{spec.batch, keys_of(spec), key_heads_of(spec) * spec.head_width},
        row_shape{spec.batch, keys_of(spec)};
    const Owned q(device_, shape, dtype, in.q), k(device_, key_shape, dtype, in.k),
        v(device_, key_shape, dtype, in.v), dy(device_, shape, dtype, in.dy), y(device_, shape, dtype),
        dq(device_, shape, dtype), dk(device_, key_shape, dtype), dv(device_, key_shape, dtype),
        lse(device_, Shape{spec.batch, spec.heads, spec.time}, arithmetic(dtype));
    std::unique_ptr<Owned> mask, documents;
    AttentionMasks masks;
    if (!in.mask.empty()) {
      mask = std::make_unique<Owned>(device_, row_shape, DType::kU8, in.mask);
      masks.keys = *mask;
    }
    if (!in.documents.empty()) {
      documents = std::make_unique<Owned>(device_, row_shape, DType::kI32, in.documents);
      masks.documents = *documents;
    }
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      const auto kernel = family().prepare(spec);
      const Owned scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
      kernel->forward(q, k, v, masks, y, lse, scratch);
      kernel->backward(q, k, v, masks, y, lse, dy, dq, dk, dv, scratch);
      std::vector<std::vector<std::byte>> found = {y.bytes(), lse.bytes(), dq.bytes(), dk.bytes(),
                                                   dv.bytes()};
      if (threads == 1) first = found;
      EXPECT_EQ(found, first) << name << " with " << threads << " threads";
    }
    return {y.values(), lse.values(), dq.values(), dk.values(), dv.values()};
  }

  void expect_the_formulas(const AttentionSpec& spec, const Inputs& in, const std::string& name) {
    const DType dtype = spec.dtype;
    const Expected want = expected(spec, in.q, in.k, in.v, in.mask, in.documents, in.dy);
    const Found found = run(spec, in, name);
    // Sums over time and head width in the arithmetic type; backward reads y as stored.
    const double forward_bound = 256 * unit(arithmetic(dtype)) + 1.01 * unit(dtype);
    const double backward_bound =
        1024 * unit(arithmetic(dtype)) + (dtype == DType::kBF16 ? 6 : 1.01) * unit(dtype);
    EXPECT_LE(relative_error(found.y, want.y), forward_bound) << name;
    auto found_lse = found.lse, want_lse = want.lse;
    for (std::size_t i = 0; i < found_lse.size(); ++i) {
      if (want_lse[i] != -std::numeric_limits<double>::infinity()) continue;
      EXPECT_EQ(found_lse[i], want_lse[i]) << name;
      found_lse[i] = want_lse[i] = 0;
    }
    EXPECT_LE(relative_error(found_lse, want_lse), 256 * unit(arithmetic(dtype))) << name;
    EXPECT_LE(relative_error(found.dq, want.dq), backward_bound) << name;
    EXPECT_LE(relative_error(found.dk, want.dk), backward_bound) << name;
    EXPECT_LE(relative_error(found.dv, want.dv), backward_bound) << name;
  }
};

struct Case {
  AttentionSpec spec;
  bool masked;
  std::uint64_t documents = 0;  ///< mean length; 0: none
};
constexpr Case kCases[] = {
    {{.batch = 1, .time = 1, .heads = 1, .head_width = 1}, false},
    {{.batch = 2, .time = 33, .heads = 3, .head_width = 20, .logit_scale = 0.25}, false},
    {{.batch = 2, .time = 130, .heads = 2, .head_width = 16, .window = 37, .logit_scale = 0.25}, false},
    {{.batch = 2, .time = 70, .heads = 2, .head_width = 64, .logit_scale = 0.125}, true},
    {{.batch = 1, .time = 65, .heads = 5, .head_width = 8, .window = 1, .logit_scale = 1}, false},
    {{.batch = 2, .time = 70, .heads = 4, .head_width = 16, .kv_heads = 2, .logit_scale = 0.25}, false},
    {{.batch = 2, .time = 3, .heads = 2, .head_width = 16, .kv_heads = 1, .keys = 140, .logit_scale = 0.25},
     false},
    {{.batch = 2, .time = 130, .heads = 2, .head_width = 16, .logit_scale = 0.25}, false, 40},
    {{.batch = 2, .time = 66, .heads = 2, .head_width = 16, .logit_scale = 0.25}, false, 1},
    {{.batch = 1,
      .time = 70,
      .heads = 4,
      .head_width = 130,
      .kv_heads = 1,
      .keys = 100,
      .window = 50,
      .logit_scale = 0.1},
     true,
     30}};

TEST_P(AttentionFamily, MatchesTheFormulas) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const Case& c : kCases) {
      AttentionSpec spec = c.spec;
      spec.dtype = dtype;
      const std::string name = std::string(dtype_name(dtype)) + " time " + std::to_string(spec.time) +
                               " window " + std::to_string(spec.window) + (c.masked ? " masked" : "") +
                               " documents " + std::to_string(c.documents);
      Inputs in = drawn_inputs(spec, dtype);
      if (c.masked) {
        // The first queries of every sequence attend to nothing at all.
        in.mask = integers(spec.batch * keys_of(spec), 2, "mask");
        for (std::int64_t b = 0; b < spec.batch; ++b)
          at(in.mask, b * keys_of(spec)) = at(in.mask, b * keys_of(spec) + 1) = 0;
      }
      if (c.documents > 0) in.documents = drawn_documents(spec, c.documents);
      expect_the_formulas(spec, in, name);
    }
}

TEST_P(AttentionFamily, MatchesTheFormulasInDrawnShapes) {
  std::uint64_t draws = 0;
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    const auto range = static_cast<std::uint64_t>(most - least + 1);
    return least + static_cast<std::int64_t>(random_below(random_key(17, "shapes"), 0, draws++, range));
  };
  for (int i = 0; i < 24; ++i) {
    AttentionSpec spec{.batch = draw(1, 2), .time = draw(1, 150), .heads = 2 * draw(1, 2)};
    const std::int64_t groupings[] = {1, spec.heads / 2, spec.heads};
    spec.kv_heads = groupings[draw(0, 2)];
    spec.head_width = draw(1, 40);
    spec.keys = spec.time + (draw(0, 1) == 0 ? 0 : draw(1, 150));
    spec.window = draw(0, 1) == 0 ? 0 : draw(1, 160);
    spec.logit_scale = 1 / std::sqrt(static_cast<double>(spec.head_width));
    spec.dtype = i % 3 == 0 ? DType::kF32 : i % 3 == 1 ? DType::kBF16 : DType::kF64;
    Inputs in = drawn_inputs(spec, spec.dtype);
    const std::int64_t length = draw(0, 1) == 0 ? 0 : draw(1, 120);
    if (length > 0) in.documents = drawn_documents(spec, static_cast<std::uint64_t>(length));
    if (draw(0, 3) == 0) in.mask = integers(spec.batch * keys_of(spec), 3, "mask");
    for (double& seen : in.mask) seen = seen > 0 ? 1 : 0;
    expect_the_formulas(spec, in,
                        std::string(dtype_name(spec.dtype)) + " batch " + std::to_string(spec.batch) +
                            " time " + std::to_string(spec.time) + " keys " + std::to_string(spec.keys) +
                            " heads " + std::to_string(spec.heads) + " of " + std::to_string(spec.kv_heads) +
                            " width " + std::to_string(spec.head_width) + " window " +
                            std::to_string(spec.window) + " documents " + std::to_string(length) +
                            (in.mask.empty() ? "" : " masked"));
  }
}

TEST_P(AttentionFamily, GivesTheRecordedNumbers) {
  const Recorded recorded("attention");
  const struct {
    const char* name;
    std::int64_t heads, kv_heads, window;
    bool scaled = true;
  } cases[] = {{"grouped", 4, 2, 0},
               {"grouped_unscaled", 6, 2, 0, false},
               {"one_key_head", 4, 1, 0},
               {"grouped_window", 6, 3, 3},
               {"documents", 2, 2, 0},
               {"documents_window", 2, 2, 3},
               {"documents_of_one_token", 2, 2, 0},
               {"documents_grouped", 4, 2, 4},
               {"keys", 2, 2, 0},
               {"keys_window", 2, 2, 3},
               {"keys_one_query", 4, 2, 0},
               {"keys_documents", 2, 2, 0},
               {"keys_all", 4, 2, 4},
               {"keys_padding", 4, 2, 0}};
  for (const auto& c : cases)
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      const std::string prefix = std::string(c.name) + ".";
      const Shape q = recorded.shape(prefix + "q"), k = recorded.shape(prefix + "k");
      AttentionSpec spec{.batch = q[0], .time = q[1], .heads = c.heads, .head_width = q[2] / c.heads};
      spec.kv_heads = c.kv_heads, spec.keys = k[1], spec.window = c.window, spec.dtype = dtype;
      spec.logit_scale = c.scaled ? 1 / std::sqrt(static_cast<double>(spec.head_width)) : 1.0;
      const auto optional = [&](const char* name) {
        return recorded.has(prefix + name) ? recorded.values(prefix + name) : std::vector<double>{};
      };
      const Found found =
          run(spec,
              {recorded.values(prefix + "q"), recorded.values(prefix + "k"), recorded.values(prefix + "v"),
               recorded.values(prefix + "d_y"), optional("mask"), optional("documents")},
              prefix);
      const double bound = dtype == DType::kF64 ? 1e-12 : 2e-6;
      EXPECT_LT(relative_error(found.y, recorded.values(prefix + "y")), bound) << prefix;
      EXPECT_LT(relative_error(found.dq, recorded.values(prefix + "d_q")), bound) << prefix;
      EXPECT_LT(relative_error(found.dk, recorded.values(prefix + "d_k")), bound) << prefix;
      EXPECT_LT(relative_error(found.dv, recorded.values(prefix + "d_v")), bound) << prefix;
    }
}

TEST_P(AttentionFamily, RefusesWhatItCannotDo) {
  EXPECT_THROW(family().prepare({.batch = 1, .time = 1, .heads = 0, .head_width = 4}), Error);
  EXPECT_THROW(family().prepare({.batch = 1, .time = 1, .heads = 1, .head_width = 4, .dtype = DType::kI8}),
               Error);
  EXPECT_EQ(message_of([&] {
              family().prepare({.batch = 1, .time = 1, .heads = 6, .head_width = 4, .kv_heads = 4});
            }),
            device_says("attention needs kv_heads that divide the heads, found kv_heads 4 and heads 6"));
  EXPECT_EQ(
      message_of([&] { family().prepare({.batch = 1, .time = 5, .heads = 2, .head_width = 4, .keys = 4}); }),
      device_says("attention needs at least as many keys as queries, found keys 4 and time 5"));
  const auto kernel = family().prepare({.batch = 1, .time = 2, .heads = 1, .head_width = 4});
  const Owned x(device_, Shape{1, 2, 4}, DType::kF32), lse(device_, Shape{1, 1, 2}, DType::kF32);
  if (kernel->scratch_bytes() > 0) {
    EXPECT_THROW(kernel->forward(x, x, x, {}, x, lse, {}), Error);
  }
  EXPECT_THROW(kernel->forward(x, x, lse, {}, x, lse, {}), Error);
  const Owned scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8),
      too_few(device_, Shape{1, 1}, DType::kI32);
  EXPECT_THAT(
      message_of([&] { kernel->forward(x, x, x, {.keys = {}, .documents = too_few}, x, lse, scratch); }),
      ::testing::HasSubstr("masks.documents"));
}

INSTANTIATE_TEST_SUITE_P(Device, AttentionFamily, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::attention_test
