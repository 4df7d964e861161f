// Placement of copies, and the probability that one survives: formulas against enumeration of all losses.
#include "placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace tenon::recovery_peer_memory {
namespace {

using ::testing::ElementsAre;

/// Share of the subsets of k of N machines whose loss leaves a copy of every state. Uses only the lists of
/// holders; N up to about 20.
double enumerated(int machines, int copies, int lost) {
  const Placement placement(machines, copies);
  std::vector<std::uint32_t> together;
  for (int rank = 0; rank < machines; ++rank) {
    std::uint32_t mask = 0;
    for (const int holder : placement.holders(rank)) mask |= 1u << holder;
    together.push_back(mask);
  }
  std::int64_t all = 0, left = 0;
  for (std::uint32_t gone = 0; gone < 1u << machines; ++gone) {
    if (std::popcount(gone) != lost) continue;
    ++all;
    left += std::none_of(together.begin(), together.end(),
                         [&](std::uint32_t mask) { return (mask & ~gone) == 0; });
  }
  return static_cast<double>(left) / static_cast<double>(all);
}

double binomial(int n, int k) {
  double ways = k < 0 || k > n ? 0 : 1;
  for (int i = 1; i <= k; ++i) ways = ways * (n - k + i) / i;
  return ways;
}

/// sum_j (-1)^j C(N/m, j) C(N - jm, k - jm) / C(N, k), as in section 2.4.
double alternating_sum(int machines, int copies, int lost) {
  double sum = 0;
  for (int j = 0; j * copies <= lost; ++j) {
    sum += (j % 2 == 0 ? 1 : -1) * binomial(machines / copies, j) *
           binomial(machines - j * copies, lost - j * copies);
  }
  return sum / binomial(machines, lost);
}

TEST(Placement, GroupsWhenTheCopiesDivideTheMachines) {
  const Placement placement(6, 3);
  EXPECT_THAT(placement.holders(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.holders(2), ElementsAre(2, 0, 1));
  EXPECT_THAT(placement.holders(4), ElementsAre(4, 5, 3));
  EXPECT_THAT(placement.held_by(4), ElementsAre(4, 3, 5));
}

TEST(Placement, OtherwiseARingOfTheRest) {
  const Placement seven(7, 3);  // one group, a ring of four
  EXPECT_THAT(seven.holders(1), ElementsAre(1, 2, 0));
  EXPECT_THAT(seven.holders(3), ElementsAre(3, 4, 5));
  EXPECT_THAT(seven.holders(5), ElementsAre(5, 6, 3));
  EXPECT_THAT(seven.held_by(3), ElementsAre(3, 6, 5));
  EXPECT_THAT(Placement(5, 3).holders(4), ElementsAre(4, 0, 1)) << "no group";
  EXPECT_THAT(Placement(3, 1).holders(2), ElementsAre(2));
  EXPECT_THAT(Placement(3, 3).holders(1), ElementsAre(1, 2, 0));
}

TEST(Placement, EveryMachineHoldsAsManyAsHoldIts) {
  for (int machines = 1; machines <= 25; ++machines) {
    for (int copies = 1; copies <= machines; ++copies) {
      const Placement placement(machines, copies);
      std::vector<std::vector<int>> held(machines);
      for (int rank = 0; rank < machines; ++rank) {
        std::vector<int> holders = placement.holders(rank);
        ASSERT_EQ(holders.front(), rank);
        for (const int holder : holders) held[holder].push_back(rank);
        std::sort(holders.begin(), holders.end());
        ASSERT_EQ(std::unique(holders.begin(), holders.end()) - holders.begin(), copies);
        ASSERT_TRUE(holders.front() >= 0 && holders.back() < machines);
      }
      for (int rank = 0; rank < machines; ++rank) {
        std::vector<int> said = placement.held_by(rank);
        ASSERT_EQ(said.front(), rank);
        std::sort(said.begin(), said.end());
        ASSERT_EQ(said, held[rank]) << machines << " " << copies << " " << rank;
      }
    }
  }
}

TEST(Placement, SurvivesUnlessAllHoldersOfOneAreLost) {
  const Placement placement(7, 3);
  const auto survives = [&](std::initializer_list<int> ranks) {
    std::vector<bool> lost(7, false);
    for (const int rank : ranks) lost[rank] = true;
    return placement.survives(lost);
  };
  EXPECT_TRUE(survives({}));
  EXPECT_TRUE(survives({0, 1, 3, 4}));
  EXPECT_FALSE(survives({0, 1, 2}));
  EXPECT_FALSE(survives({3, 5, 6}));
  EXPECT_TRUE(survives({2, 3, 4})) << "side by side, but not of one group or ring";
  EXPECT_FALSE(survives({0, 1, 2, 3, 4, 5, 6}));
}

TEST(RecoveryProbability, P25_VectorsOfSection24) {
  struct Case {
    int machines, copies, lost;
    double expected;
  };
  const Case cases[] = {{16, 2, 2, 0.9333}, {16, 2, 3, 0.8000}, {16, 4, 4, 0.9978},
                        {5, 2, 2, 0.6000},  {7, 3, 3, 0.8571},  {11, 4, 4, 0.9758}};
  for (const Case& c : cases) {
    EXPECT_NEAR(recovery_probability(c.machines, c.copies, c.lost), c.expected, 5e-5)
        << c.machines << " " << c.copies << " " << c.lost;
  }
}

/// Calls visit(N, m, k) for every N up to `most`.
template <typename Visit>
void for_each_loss(int most, const Visit& visit) {
  for (int machines = 1; machines <= most; ++machines) {
    for (int copies = 1; copies <= machines; ++copies) {
      for (int lost = 0; lost <= machines; ++lost) visit(machines, copies, lost);
    }
  }
}

TEST(RecoveryProbability, P25_EqualsAllWaysToLoseUpToTwelve) {
  for_each_loss(12, [](int machines, int copies, int lost) {
    ASSERT_NEAR(recovery_probability(machines, copies, lost), enumerated(machines, copies, lost), 1e-12)
        << machines << " " << copies << " " << lost;
  });
}

TEST(RecoveryProbability, P25_EqualsAllWaysToLoseOfTwenty) {
  for (const int copies : {2, 3, 4, 7}) {
    for (const int lost : {copies, copies + 1, 10, 17}) {
      EXPECT_NEAR(recovery_probability(20, copies, lost), enumerated(20, copies, lost), 1e-12)
          << copies << " " << lost;
    }
  }
}

TEST(RecoveryProbability, P25_EqualsTheAlternatingSumForGroups) {
  for_each_loss(24, [](int machines, int copies, int lost) {
    if (machines % copies != 0) return;
    ASSERT_NEAR(recovery_probability(machines, copies, lost), alternating_sum(machines, copies, lost), 1e-9)
        << machines << " " << copies << " " << lost;
  });
}

TEST(RecoveryProbability, P25_TheBoundHoldsForGroups) {
  for_each_loss(24, [](int machines, int copies, int lost) {
    if (machines % copies != 0) return;
    const double bound = recovery_bound(machines, copies, lost);
    const double exact = recovery_probability(machines, copies, lost);
    ASSERT_LE(bound, exact + 1e-12) << machines << " " << copies << " " << lost;
    if (lost < 2 * copies) {
      ASSERT_NEAR(bound, exact, 1e-12) << machines << " " << copies << " " << lost;
    }
  });
  EXPECT_NEAR(recovery_bound(16, 2, 3), 0.8, 1e-12);
  EXPECT_EQ(recovery_bound(16, 2, 12), 0);
}

/// The gap to the probability with groups is at most (2m - 3) / C(N, m) at k = m (section 2.4).
TEST(RecoveryProbability, P25_TheRingCostsLittle) {
  for_each_loss(24, [](int machines, int copies, int lost) {
    if (copies < 2 || lost != copies || machines % copies == 0) return;
    const double ways = binomial(machines, copies);
    // Every placement loses at least ceil(N / m) of the C(N, m) subsets.
    const double best = 1 - std::ceil(static_cast<double>(machines) / copies) / ways;
    const double gap = best - recovery_probability(machines, copies, lost);
    ASSERT_GE(gap, -1e-12);
    ASSERT_LE(gap, (2 * copies - 3) / ways + 1e-12) << machines << " " << copies;
  });
}

TEST(RecoveryProbability, StaysAProbabilityForManyMachines) {
  // A group of two of 4096 is lost with two machines: 2048 of C(4096, 2) pairs.
  EXPECT_NEAR(recovery_probability(4096, 2, 2), 1 - 2048.0 / (4096.0 * 4095 / 2), 1e-12);
  double before = 1;
  for (const int lost : {10, 64, 200, 512, 1024}) {
    const double now = recovery_probability(1025, 2, lost);
    EXPECT_TRUE(now >= 0 && now <= before) << lost;
    before = now;
  }
  EXPECT_NEAR(before, 0, 1e-12) << "all but one";
  // From integers of 4096 bits: the coefficient of x^2048 in ((1 + x)^4 - x^4)^1024, over C(4096, 2048).
  EXPECT_NEAR(std::log(recovery_probability(4096, 4, 2048)), -77.7796815663, 1e-9);
}

}  // namespace
}  // namespace tenon::recovery_peer_memory
