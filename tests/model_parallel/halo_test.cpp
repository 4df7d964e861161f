// Property P6: the inputs that a rank needs of a signal, against the golden table of the specification and
// against brute force, and the windows of an exchange, over 2,000 random cases with uneven and empty parts.
#include "movement.hpp"

#include <numeric>

namespace model_parallel::halo_test {
namespace {

using tenon::DimWindow;
using tenon::ElementRange;
using tenon::Sliding;

/// Halos and pads of one rank; the table's negative widths are inputs that the rank has and does not need.
struct Halo {
  std::int64_t low, high, pad_low, pad_high;
  bool operator==(const Halo&) const = default;
};
void PrintTo(const Halo& h, std::ostream* out) {
  *out << "(" << h.low << "," << h.high << ") L" << h.pad_low << " R" << h.pad_high;
}

struct GoldenRow {
  std::int64_t n;
  int ranks;
  std::int64_t k, s, d, p, outputs;
  std::vector<Halo> halos;
};

const std::vector<GoldenRow>& golden_rows() {
  static const std::vector<GoldenRow> rows = {
      {11, 3, 5, 1, 1, 2, 11, {{0, 2, 2, 0}, {2, 2, 0, 0}, {2, 0, 0, 2}}},
      {11, 3, 5, 1, 1, 0, 7, {{0, 3, 0, 0}, {1, 1, 0, 0}, {3, 0, 0, 0}}},
      {11, 3, 2, 2, 1, 0, 5, {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, -1, 0, 0}}},
      {20,
       6,
       2,
       2,
       1,
       0,
       10,
       {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 1, 0, 0}, {-1, 2, 0, 0}, {-2, 1, 0, 0}, {-1, 0, 0, 0}}},
      {10, 4, 2, 2, 1, 0, 5, {{0, 1, 0, 0}, {-1, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}},
      {28, 2, 5, 1, 1, 2, 28, {{0, 2, 2, 0}, {2, 0, 0, 2}}},
      {14, 2, 5, 1, 1, 0, 10, {{0, 2, 0, 0}, {2, 0, 0, 0}}},
      {10, 2, 2, 2, 1, 0, 5, {{0, 1, 0, 0}, {-1, 0, 0, 0}}},
      {20, 2, 7, 2, 1, 3, 10, {{0, 2, 3, 0}, {3, 0, 0, 2}}},
      {50, 3, 5, 3, 3, 1, 14, {{0, 7, 1, 0}, {3, 5, 0, 0}, {5, 0, 0, 1}}},
      {50, 3, 4, 1, 3, 1, 43, {{0, 6, 1, 0}, {3, 3, 0, 0}, {6, 0, 0, 1}}},
      {50, 2, 3, 2, 1, 2, 26, {{0, 0, 2, 0}, {1, 0, 0, 1}}},
  };
  return rows;
}

ElementRange range_at(const std::vector<std::int64_t>& offsets, int part) {
  return {offsets[part], offsets[static_cast<std::size_t>(part) + 1]};
}

TEST(HaloPlan, P6_GoldenTable) {
  for (const GoldenRow& row : golden_rows()) {
    const Sliding window{row.k, row.s, row.d, row.p, row.p};
    ASSERT_EQ(window.outputs(row.n), row.outputs);
    const auto map = tenon::sliding_map(window);
    const auto x = tenon::balanced_offsets(row.n, row.ranks),
               y = tenon::balanced_offsets(row.outputs, row.ranks);
    std::vector<Halo> found;
    for (int r = 0; r < row.ranks; ++r) {
      const DimWindow at = dim_window(map.get(), range_at(x, r), range_at(y, r), row.n);
      found.push_back({at.halo_low, at.halo_high, at.pad_low, at.pad_high});
    }
    EXPECT_EQ(found, row.halos) << "N " << row.n << " P " << row.ranks << " k " << row.k << " s " << row.s;
  }
}

TEST(HaloPlan, P6_NeedIsWhatTheOutputsReadAndNoMoreThanTheirInterval) {
  Draw draw(6);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t n = draw.integer(1, 24);
    const Sliding window{draw.integer(1, 5), draw.integer(1, 4), draw.integer(1, 3), draw.integer(0, 3),
                         draw.integer(0, 3)};
    const std::int64_t outputs = window.outputs(n);
    if (outputs == 0) continue;
    const int ranks = draw.small(1, 6);
    const auto x = draw.offsets(n, ranks), y = draw.offsets(outputs, ranks);
    const auto map = tenon::sliding_map(window), gradient = tenon::sliding_gradient_map(window, outputs);
    for (int r = 0; r < ranks; ++r) {
      const ElementRange own = range_at(x, r), out = range_at(y, r);
      std::vector<std::int64_t> read;
      for (std::int64_t j = out.begin; j < out.end; ++j)
        for (std::int64_t m = 0; m < window.kernel; ++m)
          read.push_back(window.stride * j - window.pad_low + window.dilation * m);
      const DimWindow at = dim_window(map.get(), own, out, n);
      if (read.empty()) {
        EXPECT_EQ(at.wanted.size(), 0);
        EXPECT_EQ(at.need.size(), 0);
      } else {
        EXPECT_EQ(at.wanted.begin, *std::min_element(read.begin(), read.end()));
        EXPECT_EQ(at.wanted.end, *std::max_element(read.begin(), read.end()) + 1);
        EXPECT_EQ(at.pad_low + at.need.size() + at.pad_high, at.wanted.size());
      }
      for (const std::int64_t element : read) {
        if (element < 0 || element >= n) continue;
        EXPECT_TRUE(element >= at.need.begin && element < at.need.end);
      }
      // Gather form of the gradient: every output that reads one of my inputs.
      const DimWindow back = dim_window(gradient.get(), out, own, outputs);
      std::int64_t low = outputs, high = -1;
      for (std::int64_t j = 0; j < outputs; ++j) {
        for (std::int64_t m = 0; m < window.kernel; ++m) {
          const std::int64_t element = window.stride * j - window.pad_low + window.dilation * m;
          if (element < own.begin || element >= own.end) continue;
          low = std::min(low, j), high = std::max(high, j);
        }
      }
      if (low <= high) {
        EXPECT_LE(back.need.begin, low);
        EXPECT_GE(back.need.end, high + 1);
      }
    }
  }
}

TEST(HaloPlan, P6_UpsamplingNeedsTheNeighboursThatItsFormulaReads) {
  using tenon::Interpolation;
  for (std::int64_t n = 1; n <= 9; ++n) {
    for (std::int64_t m = 1; m <= 20; ++m) {
      for (const auto kind :
           {Interpolation::kNearest, Interpolation::kLinear, Interpolation::kLinearAligned}) {
        const auto map = tenon::interpolation_map(kind, n, m);
        for (std::int64_t j = 0; j < m; ++j) {
          const auto nn = static_cast<double>(n), mm = static_cast<double>(m), at = static_cast<double>(j);
          double source = std::max(0.0, (at + 0.5) * nn / mm - 0.5);
          if (kind == Interpolation::kNearest) source = at * nn / mm;
          if (kind == Interpolation::kLinearAligned) source = m == 1 ? 0 : at * (nn - 1) / (mm - 1);
          const auto first = static_cast<std::int64_t>(source + 1e-9);
          const std::int64_t last = kind == Interpolation::kNearest ? first : std::min(n - 1, first + 1);
          const ElementRange read = map->inputs({j, j + 1});
          EXPECT_EQ(read.begin, first) << n << " to " << m << " at " << j;
          EXPECT_EQ(read.end, last + 1) << n << " to " << m << " at " << j;
        }
      }
    }
  }
}

class Halo2000 : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Halo2000, ::testing::Range(1, 9));

TEST_P(Halo2000, P6_WindowsHoldTheTensorAndZerosAndBytesAreTheFormulas) {
  Draw draw(60 + static_cast<unsigned>(GetParam()));
  constexpr int kWorlds = 10, kCases = 26;  // 8 x 260 cases
  for (int w = 0; w < kWorlds; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<MoveSpec> moves;
    for (int i = 0; i < kCases; ++i) {
      moves.push_back(*random_windows(mesh, draw));
      moves.back().dtype = tenon::DType::kF64;
    }
    on_threads(mesh, [&](Mesh& at) {
      std::uint64_t stream = 0;
      for (const MoveSpec& spec : moves) {
        stream += 7;
        const auto map = make_map(at, "halo_exchange", spec, "test");
        auto x = held(spec.from, mesh, at.index(), stream);
        std::int64_t received = 0;
        const auto expected = window_of(spec, mesh, at.index(), map->local_range(), stream, received);
        std::vector<double> y(expected.size(), 99);
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()));
        EXPECT_EQ(y, expected) << layout_text(spec.from) << " to " << layout_text(spec.to);
        // The adjoint sends what forward received: the sum over ranks of |R_q| - |R_q in own_q|.
        const auto forth = static_cast<double>(map->bytes_sent(tenon::Direction::kForward));
        EXPECT_EQ(map->bytes_sent(tenon::Direction::kTranspose), 8 * received);
        EXPECT_EQ(sum_over(at, forth), sum_over(at, static_cast<double>(8 * received)));
        if (at.all() == nullptr) continue;
        const auto before = at.all()->counts().bytes_sent;
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()));
        EXPECT_EQ(static_cast<double>(at.all()->counts().bytes_sent - before), forth);
        EXPECT_EQ(y, expected) << "once more over the same memory";
      }
    });
  }
}

}  // namespace
}  // namespace model_parallel::halo_test
