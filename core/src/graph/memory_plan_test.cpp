// The memory plan: buffers alive together never overlap, and dead memory is used again.
#include "graph/memory_plan.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tenon::graph {
namespace {

bool overlap(const Lifetime& a, const Lifetime& b) {
  const bool together = a.first <= b.last && b.first <= a.last;
  return together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

TEST(MemoryPlan, ChainReusesDeadBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({1024, i, i + 1, "value", 0});
  EXPECT_EQ(place(chain), 2048u);
}

TEST(MemoryPlan, NothingAliveTogetherOverlaps) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> buffers;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 30);
      buffers.push_back({1 + random() % 5000, first, first + static_cast<int>(random() % 10), "value", 0});
    }
    const std::size_t total = place(buffers);
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      EXPECT_EQ(buffers[a].offset % 64, 0u);
      EXPECT_LE(buffers[a].offset + buffers[a].bytes, total);
      for (std::size_t b = 0; b < a; ++b) {
        ASSERT_FALSE(overlap(buffers[a], buffers[b]))
            << "round " << round << ", buffers " << a << " and " << b;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::graph
