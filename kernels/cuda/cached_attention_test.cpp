// Attention to kept keys on the host launcher: a batch of sequences of different length, in passes of any
// length, has the bits of the forward pass over each whole sequence (property N10), for both orders of blocks
// and threads; padding gives zeros.
#include "testing.hpp"

#include <tenon/kernels/cuda/attention_start.hpp>

#include <algorithm>
#include <limits>

namespace tenon::kernels::cuda::cached_attention_test {
namespace {

using testing::random_values;
using testing::same_bits;

struct Case {
  std::vector<std::int64_t> lengths;  ///< of the sequences
  std::int64_t pass, heads, kv_heads, d_head, window, documents, positions;
};
// Around the edges of tiles (64 and 32 rows) and slices (128 columns).
const Case kCases[] = {{{1}, 1, 1, 1, 1, 0, 0, 1},
                       {{70, 3, 65}, 7, 4, 2, 20, 0, 0, 75},
                       {{130, 131}, 66, 2, 1, 16, 40, 0, 131},
                       {{40, 67}, 1, 2, 2, 16, 0, 9, 67},
                       {{36}, 5, 2, 1, 150, 9, 20, 40}};

template <class S>
struct CudaCachedAttentionTest : ::testing::Test {};
using Storages = ::testing::Types<float, double, Bf16>;
TYPED_TEST_SUITE(CudaCachedAttentionTest, Storages);

template <class S>
struct Sequence {
  std::vector<S> q, k, v, out;
  std::vector<std::int32_t> documents;
};

template <class S>
Sequence<S> make_sequence(const Case& c, std::int64_t length, unsigned seed) {
  Sequence<S> s{random_values<S>(length * c.heads * c.d_head, seed),
                random_values<S>(length * c.kv_heads * c.d_head, seed + 1),
                random_values<S>(length * c.kv_heads * c.d_head, seed + 2),
                std::vector<S>(length * c.heads * c.d_head),
                {}};
  for (std::int64_t t = 0; t < length; ++t) {
    const bool begins =
        c.documents > 0 && t > 0 && (static_cast<std::uint64_t>(t) * 2654435761u >> 7) % c.documents == 0;
    s.documents.push_back(t == 0 ? -7 : s.documents.back() + (begins ? 3 : 0));
  }
  AttentionArgs<S> a;
  a.batch = 1, a.time = a.keys = length, a.heads = c.heads, a.kv_heads = c.kv_heads, a.d_head = c.d_head;
  a.window = c.window, a.scale = static_cast<Arith<S>>(0.25);
  a.q = s.q.data(), a.k = s.k.data(), a.v = s.v.data(), a.out = s.out.data();
  a.q_row_stride = a.out_row_stride = c.heads * c.d_head, a.kv_row_stride = c.kv_heads * c.d_head;
  a.documents = c.documents > 0 ? s.documents.data() : nullptr;
  start_attention<S>(
      a, [](const char*, const auto& body) { launch_on_host(body.mesh(), body, LaunchOrder::kAscending); });
  return s;
}

TYPED_TEST(CudaCachedAttentionTest, N10_PassesGiveTheBitsOfTheWholeSequence) {
  using S = TypeParam;
  const S nothing = reference::put<S>(std::numeric_limits<Arith<S>>::quiet_NaN());
  for (const Case& c : kCases)
    for (const LaunchOrder order : {LaunchOrder::kAscending, LaunchOrder::kDescending}) {
      const auto batch = static_cast<std::int64_t>(c.lengths.size());
      const std::int64_t width = c.heads * c.d_head, kept = c.kv_heads * c.d_head;
      std::vector<Sequence<S>> sequences;
      for (std::int64_t row = 0; row < batch; ++row)
        sequences.push_back(make_sequence<S>(c, c.lengths[row], static_cast<unsigned>(10 * row + 1)));
      // Sequences are kept in descending order, with one between them that no row goes on with.
      const std::int64_t bytes =
          2 * c.positions * kept * std::int64_t{sizeof(S)} + (c.documents > 0 ? 8 * c.positions : 0);
      std::vector<std::uint64_t> state((2 * batch + 1) * bytes / 8 + 1, ~std::uint64_t{0});
      std::vector<std::vector<S>> found(batch);
      for (std::int64_t first = 0; first < *std::max_element(c.lengths.begin(), c.lengths.end());
           first += c.pass) {
        std::vector<CachedRow> rows;
        const auto places = [&](std::int64_t columns, auto member) {
          std::vector<S> all(batch * c.pass * columns, nothing);
          for (std::int64_t row = 0; row < batch; ++row) {
            const std::vector<S>& from = sequences[row].*member;
            for (std::int64_t i = 0; i < rows[row].count * columns; ++i)
              all[row * c.pass * columns + i] = from[first * columns + i];
          }
          return all;
        };
        std::vector<std::int32_t> documents(batch * c.pass, -1000);
        for (std::int64_t row = 0; row < batch; ++row) {
          rows.push_back(
              {first, std::clamp<std::int64_t>(c.lengths[row] - first, 0, c.pass), 2 * (batch - row) - 1});
          for (std::int64_t t = 0; t < rows[row].count; ++t)
            documents[row * c.pass + t] = sequences[row].documents[first + t];
        }
        const std::vector<S> q = places(width, &Sequence<S>::q), k = places(kept, &Sequence<S>::k),
                             v = places(kept, &Sequence<S>::v);
        std::vector<S> out(q.size(), nothing);
        CachedPass<S> pass;
        pass.args.heads = c.heads, pass.args.d_head = c.d_head, pass.args.kv_heads = c.kv_heads;
        pass.args.positions = c.positions, pass.args.window = c.window;
        pass.args.scale = static_cast<Arith<S>>(0.25);
        pass.args.q = q.data(), pass.args.k = k.data(), pass.args.v = v.data(), pass.args.out = out.data();
        pass.args.documents = c.documents > 0 ? documents.data() : nullptr;
        pass.batch = batch, pass.time = c.pass, pass.rows = rows.data();
        pass.state = reinterpret_cast<std::uint8_t*>(state.data()), pass.sequence_bytes = bytes;
        start_cached_attention<S>(
            pass, [order](const char*, const auto& body) { launch_on_host(body.mesh(), body, order); });
        for (std::int64_t row = 0; row < batch; ++row) {
          const auto begin = out.begin() + row * c.pass * width, padding = begin + rows[row].count * width;
          found[row].insert(found[row].end(), begin, padding);
          const std::vector<S> cleared(padding, begin + c.pass * width);
          EXPECT_TRUE(same_bits(cleared, std::vector<S>(cleared.size(), reference::put<S>(0))));
        }
      }
      for (std::int64_t row = 0; row < batch; ++row)
        EXPECT_TRUE(same_bits(found[row], sequences[row].out))
            << "row " << row << " of " << batch << ", length " << c.lengths[row] << ", passes of " << c.pass;
    }
}

}  // namespace
}  // namespace tenon::kernels::cuda::cached_attention_test
