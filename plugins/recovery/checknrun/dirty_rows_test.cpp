// Bits of touched rows, against a set of ids.
#include "dirty_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tenon::recovery_checknrun {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Ids = std::vector<std::int64_t>;

TEST(DirtyRows, GivesAscendingIdsOnceEach) {
  DirtyRows rows(100, 300);
  rows.set(Ids{299, 163, 100, 164, 163});
  rows.set(Ids{100, 228});
  EXPECT_EQ(rows.count(), 5);
  EXPECT_THAT(rows.ids(), ElementsAre(100, 163, 164, 228, 299));
  EXPECT_EQ(rows.count(), 5);
  EXPECT_THAT(rows.take(), ElementsAre(100, 163, 164, 228, 299));
  EXPECT_EQ(rows.count(), 0);
  EXPECT_THAT(rows.take(), IsEmpty());
}

TEST(DirtyRows, PassesOverRowsOfOtherRanks) {
  DirtyRows rows(10, 20);
  rows.set(Ids{9, 20, -1, 0, 83, std::int64_t{1} << 40});
  EXPECT_EQ(rows.count(), 0);
  rows.set(Ids{9, 10, 19, 20});
  EXPECT_THAT(rows.take(), ElementsAre(10, 19));
}

TEST(DirtyRows, NoRows) {
  DirtyRows rows(7, 7);
  rows.set(Ids{6, 7, 8});
  EXPECT_EQ(rows.count(), 0);
  EXPECT_THAT(rows.take(), IsEmpty());
}

TEST(DirtyRows, AnAbortedSaveLosesNothing) {
  DirtyRows rows(0, 1000);
  rows.set(Ids{1, 500, 999});
  const Ids taken = rows.take();
  rows.set(Ids{2, 500});  // while it is written
  rows.or_back(taken);
  EXPECT_EQ(rows.count(), 4);
  EXPECT_THAT(rows.take(), ElementsAre(1, 2, 500, 999));
}

TEST(DirtyRows, IdsBeyondThirtyTwoBits) {
  const std::int64_t first = std::int64_t{1} << 33;
  DirtyRows rows(first, first + 100);
  rows.set(Ids{first + 99, first});
  EXPECT_THAT(rows.ids(), ElementsAre(first, first + 99));
}

TEST(DirtyRows, EqualsASetOfIds) {
  std::mt19937_64 random(5);
  for (const std::int64_t size : {1, 63, 64, 65, 127, 128, 129, 1000}) {
    const std::int64_t first = static_cast<std::int64_t>(random() % 1000);
    DirtyRows rows(first, first + size);
    std::set<std::int64_t> expected;
    Ids in_flight;
    for (int round = 0; round < 200; ++round) {
      Ids ids(random() % 20);
      for (std::int64_t& id : ids) {
        id = first - 3 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size + 6));
        if (id >= first && id < first + size) expected.insert(id);
      }
      rows.set(ids);
      if (round % 5 == 3) {
        in_flight = rows.take();
        ASSERT_THAT(in_flight, ElementsAreArray(expected));
        expected.clear();
      }
      if (round % 10 == 5) {
        rows.or_back(in_flight);
        expected.insert(in_flight.begin(), in_flight.end());
      }
      ASSERT_EQ(rows.count(), static_cast<std::int64_t>(expected.size()));
      ASSERT_THAT(rows.ids(), ElementsAreArray(expected));
    }
  }
}

}  // namespace
}  // namespace tenon::recovery_checknrun
