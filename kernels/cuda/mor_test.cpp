// Mixtures of representations of the CUDA device on the host: every bit of the plain reference's and the same
// decisions, in both orders of blocks and threads.
#include <tenon/kernels/cuda/mor.hpp>
#include <tenon/kernels/reference/mor.hpp>

#include "../src/testing.hpp"

namespace tenon::kernels::mor_test {
namespace {

using cuda::LaunchOrder;

/// z exp(spread z'), some of it zero.
template <class S>
std::vector<S> numbers(std::int64_t n, double spread, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<S> values(n);
  for (S& value : values) {
    const double z = normal(random) * std::exp(spread * normal(random));
    value = reference::put<S>(random() % 16 == 0 ? -0.0f : static_cast<float>(z));
  }
  return values;
}

struct Found {
  std::vector<Bf16> values;
  std::vector<std::uint8_t> choices;
  cuda::MorTotals totals;
};

template <class S>
Found run(const MorArgs& args, const std::vector<S>& x, LaunchOrder order) {
  cuda::MorMatrix<S> m = {.x = x.data(),
                          .rows = args.rows,
                          .columns = args.columns,
                          .block_rows = args.block_rows,
                          .block_columns = args.block_columns,
                          .blocks = nullptr,
                          .sums = nullptr,
                          .errors = nullptr,
                          .totals = nullptr};
  const auto launch = [&](const cuda::Grid& grid, const auto& body) {
    cuda::launch_on_host(grid, body, order);
  };
  std::vector<cuda::MorBlock> blocks(m.across() * m.down());
  std::vector<float> sums(m.strips() * m.columns);
  std::vector<double> errors(m.strips() * m.across());
  Found found;
  m.blocks = blocks.data(), m.sums = sums.data(), m.errors = errors.data(), m.totals = &found.totals;
  found.values.resize(x.size());
  found.choices.assign(blocks.size(), 9);
  cuda::start_mor(m, {args.strategy, args.mode, args.e2m3}, found.values.data(), found.choices.data(),
                  launch);
  return found;
}

template <class S>
void expect_reference(MorArgs args, const std::vector<S>& x, const std::string& what) {
  std::vector<Bf16> input(x.size()), values(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) input[i] = to_bf16(reference::get(x[i]));
  args.x = input.data();
  args.threshold = HUGE_VAL;  // decisions of the host from the totals are not tested here
  for (const LaunchOrder order : {LaunchOrder::kAscending, LaunchOrder::kDescending}) {
    const Found found = run(args, x, order);
    std::vector<std::uint8_t> choices(found.choices.size(), 8);
    const MorResult expected = reference::mor(args, values.data(), choices.data());
    ASSERT_TRUE(testing::same_bits(found.values, values)) << what;
    ASSERT_EQ(found.choices, choices) << what;
    ASSERT_EQ(expected.non_zero > 0 ? found.totals.error / double(expected.non_zero) : 0.0, expected.error)
        << what;
    ASSERT_EQ(found.totals.non_zero, expected.non_zero) << what;
    ASSERT_EQ(found.totals.largest, magnitude_bits(expected.amax)) << what;
    for (int c = 0; c < 4; ++c) {
      ASSERT_EQ(found.totals.blocks[c], expected.blocks[c]) << what << " choice " << c;
      ASSERT_EQ(found.totals.elements[c], expected.elements[c]) << what << " choice " << c;
    }
  }
}

TEST(CudaMor, EqualsTheReferenceBitForBit) {
  struct Size {
    std::int64_t rows, columns;
  };
  for (const Size& size : {Size{210, 133}, Size{128, 128}, Size{1, 40}, Size{40, 1}, Size{5, 700}})
    for (const double spread : {0.0, 1.5, 6.0, 14.0}) {
      const auto wide = numbers<float>(size.rows * size.columns, spread, 3);
      const auto narrow = numbers<Bf16>(size.rows * size.columns, spread, 4);
      for (const Size& block : {Size{128, 128},
                                {1, size.columns},
                                {size.rows, 1},
                                {size.rows, size.columns},
                                {16, 48},
                                {200, 7},
                                {1, 16}})
        for (const MorMode mode : {MorMode::kTensor, MorMode::kQuantError, MorMode::kDynamicRange})
          for (const MorStrategy strategy :
               {MorStrategy::kGam, MorStrategy::kBlock, MorStrategy::kE8, MorStrategy::kCurrent}) {
            if (mode != MorMode::kTensor && strategy == MorStrategy::kCurrent) continue;
            MorArgs args;
            args.rows = size.rows, args.columns = size.columns;
            args.block_rows = block.rows, args.block_columns = block.columns;
            args.strategy = strategy, args.mode = mode;
            args.e2m3 = mode == MorMode::kDynamicRange && spread == 0;
            const std::string what = std::to_string(size.rows) + "x" + std::to_string(size.columns) +
                                     " spread " + std::to_string(spread) + " blocks " +
                                     std::to_string(block.rows) + "x" + std::to_string(block.columns) +
                                     " mode " + std::to_string(int(mode)) + " strategy " +
                                     std::to_string(int(strategy));
            if (spread < 6) expect_reference(args, wide, what);
            expect_reference(args, narrow, what);
            if (HasFatalFailure()) return;
          }
    }
}

TEST(CudaMor, WhatIsNotFiniteShowsAndIsKept) {
  for (const std::uint16_t bad : {0x7f80, 0xff80, 0x7f81, 0xffc0}) {
    auto x = numbers<Bf16>(64 * 40, 1, 5);
    x[777] = Bf16{bad};
    MorArgs args;
    args.rows = 64, args.columns = 40;
    args.block_rows = args.block_columns = 16;
    for (const MorMode mode : {MorMode::kTensor, MorMode::kQuantError, MorMode::kDynamicRange}) {
      args.mode = mode;
      const Found found = run(args, x, LaunchOrder::kAscending);
      EXPECT_EQ(found.totals.largest, std::uint32_t{bad & 0x7fffu} << 16);
      std::vector<Bf16> kept(x.size());
      const cuda::MorKeep<Bf16> keep = {x.data(), 64 * 40, kept.data()};
      cuda::launch_on_host(cuda::grid_for(64 * 40), keep, LaunchOrder::kDescending);
      EXPECT_TRUE(testing::same_bits(kept, x));
    }
  }
}

TEST(CudaMor, NothingHasNothing) {
  MorArgs args;
  for (const LaunchOrder order : {LaunchOrder::kAscending, LaunchOrder::kDescending}) {
    const Found found = run(args, std::vector<float>{}, order);
    EXPECT_EQ(found.totals.largest, 0u);
    EXPECT_EQ(found.totals.non_zero, 0);
    EXPECT_EQ(found.totals.error, 0);
  }
}

}  // namespace
}  // namespace tenon::kernels::mor_test
