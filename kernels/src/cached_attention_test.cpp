// Attention to kept keys: whatever the passes into which a sequence is split, every kernel set gives the bits
// of its own forward pass over the whole sequence (property N10), with windows, grouped heads, documents and
// room for more positions than there are. Kept memory begins as NaN.
#include <limits>

#include "testing.hpp"

namespace tenon::kernels::cached_attention_test {
namespace {

using namespace testing;

struct Case {
  std::int64_t time, heads, d_head;
  std::int64_t kv_heads = 0;  ///< 0: heads
  std::int64_t window = 0;
  std::int64_t documents = 0;  ///< about so many tokens each; 1: every token is one; 0: none
  std::int64_t room = 0;       ///< positions beyond the sequence

  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::string text() const {
    return "time " + std::to_string(time) + " heads " + std::to_string(heads) + " of " +
           std::to_string(key_heads()) + " width " + std::to_string(d_head) + " window " +
           std::to_string(window) + " documents " + std::to_string(documents) + " room " +
           std::to_string(room);
  }
};
// Around the edges of blocks (64 positions) and of vectors (16 lanes), and heads of several vectors.
constexpr Case kCases[] = {
    {1, 1, 1},
    {5, 2, 3},
    {64, 1, 16},
    {65, 2, 16, 0, 0, 0, 1},
    {130, 4, 32, 2, 0, 0, 70},
    {150, 6, 20, 2, 7},
    {200, 3, 33, 1, 64, 0, 3},
    {140, 2, 64, 1, 65, 40},
    {150, 2, 130, 0, 0, 60, 106},
    {70, 5, 48, 1, 0, 1},
    {80, 70, 4, 1},
};

template <class S>
struct Sequence {
  Case shape;
  std::vector<S> q, k, v;
  std::vector<std::int32_t> documents;

  explicit Sequence(const Case& c)
      : shape(c),
        q(random_values<S>(c.time * c.heads * c.d_head, 1, -2, 2)),
        k(random_values<S>(c.time * c.key_heads() * c.d_head, 2, -2, 2)),
        v(random_values<S>(c.time * c.key_heads() * c.d_head, 3)) {
    for (std::int64_t t = 0; t < c.time; ++t) {
      const bool begins =
          c.documents > 0 && t > 0 && (static_cast<std::uint64_t>(t) * 2654435761u >> 7) % c.documents == 0;
      documents.push_back(t == 0 ? -7 : documents.back() + (begins ? 3 : 0));
    }
  }
  Arith<S> scale() const { return static_cast<Arith<S>>(1 / std::sqrt(static_cast<double>(shape.d_head))); }

  std::vector<S> whole(const AttentionOps<S>& ops) const {
    std::vector<S> out(q.size());
    AttentionArgs<S> a;
    a.batch = 1, a.time = a.keys = shape.time, a.heads = shape.heads, a.d_head = shape.d_head;
    a.kv_heads = shape.key_heads(), a.window = shape.window, a.scale = scale();
    a.q = q.data(), a.k = k.data(), a.v = v.data(), a.out = out.data();
    a.q_row_stride = a.out_row_stride = shape.heads * shape.d_head;
    a.kv_row_stride = shape.key_heads() * shape.d_head;
    a.documents = shape.documents > 0 ? documents.data() : nullptr;
    std::vector<Arith<S>> workspace(ops.workspace(a));
    ops.forward(a, 0, attention_forward_items(a), workspace.data());
    return out;
  }

  /// In passes of these lengths, the units of work of each together or one by one.
  std::vector<S> passes(const CachedAttentionOps<S>& ops, const std::vector<std::int64_t>& lengths,
                        bool one_by_one) const {
    constexpr auto kNothing = std::numeric_limits<Arith<S>>::quiet_NaN();
    const std::int64_t positions = shape.time + shape.room, kept = shape.key_heads() * shape.d_head,
                       width = shape.heads * shape.d_head;
    std::vector<S> keys(positions * kept, reference::put<S>(kNothing)), values(keys), out(q.size());
    std::vector<std::int32_t> kept_documents(positions, 1000);
    CachedAttentionArgs<S> a;
    a.heads = shape.heads, a.d_head = shape.d_head, a.kv_heads = shape.key_heads();
    a.positions = positions, a.window = shape.window, a.scale = scale();
    a.keys = keys.data(), a.values = values.data();
    a.kept_documents = shape.documents > 0 ? kept_documents.data() : nullptr;
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
      a.first = first, a.count = length;
      a.q = q.data() + first * width, a.out = out.data() + first * width;
      a.k = k.data() + first * kept, a.v = v.data() + first * kept;
      a.documents = shape.documents > 0 ? documents.data() + first : nullptr;
      keep_places(a, 0, length);
      std::vector<Arith<S>> workspace(ops.workspace(a), kNothing);
      const std::int64_t items = cached_attention_items(a);
      if (!one_by_one) ops.forward(a, 0, items, workspace.data());
      for (std::int64_t item = items - 1; one_by_one && item >= 0; --item)
        ops.forward(a, item, item + 1, workspace.data());
      first += length;
    }
    return out;
  }
};

/// Lengths of passes over `time` places: all, one each, a prompt and then one each, and unequal ones.
std::vector<std::vector<std::int64_t>> splits(std::int64_t time) {
  std::vector<std::vector<std::int64_t>> all = {{time}, std::vector<std::int64_t>(time, 1)};
  const auto of = [&](std::initializer_list<std::int64_t> begin, std::int64_t then) {
    std::vector<std::int64_t> lengths;
    std::int64_t left = time;
    for (const std::int64_t length : begin) {
      if (left > 0) lengths.push_back(std::min(left, length));
      left -= std::min(left, length);
    }
    for (; left > 0; left -= lengths.back()) lengths.push_back(std::min(left, then));
    return lengths;
  };
  all.push_back(of({time / 2 + 1}, 1));
  all.push_back(of({64}, 64));
  all.push_back(of({3, 1, 1, 62, 2}, 13));
  return all;
}

template <class S>
void expect_the_whole(const CachedAttentionOps<S>& ops, const AttentionOps<S>& forward, const char* name) {
  for (const Case& c : kCases) {
    const Sequence<S> sequence(c);
    const std::vector<S> whole = sequence.whole(forward);
    for (const auto& lengths : splits(c.time))
      for (const bool one_by_one : {false, true})
        EXPECT_TRUE(same_bits(sequence.passes(ops, lengths, one_by_one), whole))
            << name << " " << c.text() << " in " << lengths.size() << " passes, the first of "
            << lengths.front() << (one_by_one ? ", units one by one" : "");
  }
}

template <class S>
struct CachedAttentionTest : ::testing::Test {};
TYPED_TEST_SUITE(CachedAttentionTest, Storages);

TYPED_TEST(CachedAttentionTest, N10_PassesGiveTheBitsOfTheWholeSequence) {
  using S = TypeParam;
  for (const KernelTable* set : all_sets()) {
    // Tiles round weights to bfloat16, and attention to kept keys does not use them.
    const bool tiles = std::string_view(set->name) == "amx";
    const KernelTable* const forward = tiles ? select_kernels("avx512", detect_cpu_features()) : set;
    expect_the_whole(ops<S>(*set).cached_attention, ops<S>(*forward).attention, set->name);
  }
}

TEST(CachedAttention, N10_PassesOfDoublesGiveTheBitsOfTheWholeSequence) {
  const auto& reference = reference_double_kernels().f64;
  expect_the_whole(reference.cached_attention, reference.attention, "reference");
}

// Two positions never share an element, and all of them fill the memory.
TEST(CachedAttention, EveryElementOfASequenceHasAPlace) {
  for (const std::int64_t positions : {1, 63, 64, 65, 200}) {
    CachedAttentionArgs<float> a;
    a.heads = a.kv_heads = 3, a.d_head = 5, a.positions = positions;
    std::vector<int> keys(positions * 15), values(keys);
    for (std::int64_t position = 0; position < positions; ++position)
      for (std::int64_t head = 0; head < 3; ++head) {
        const KeptPlace at = kept_place(a, head, position);
        for (std::int64_t j = 0; j < 5; ++j) ++keys.at(at.key + j * at.key_step), ++values.at(at.value + j);
      }
    EXPECT_EQ(keys, std::vector<int>(keys.size(), 1)) << positions;
    EXPECT_EQ(values, std::vector<int>(values.size(), 1)) << positions;
  }
}

}  // namespace
}  // namespace tenon::kernels::cached_attention_test
