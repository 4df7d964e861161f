// The three increment policies, and proof that their saves suffice for a restore.
#include "increments.hpp"
#include "dirty_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

namespace tenon::recovery_checknrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr IncrementPolicy kPolicies[] = {IncrementPolicy::kOneShot, IncrementPolicy::kConsecutive,
                                         IncrementPolicy::kIntermittent};

void expect(const NextSave& save, bool complete, std::int64_t base, bool clears) {
  EXPECT_EQ(save.complete, complete);
  EXPECT_EQ(save.base, base);
  EXPECT_EQ(save.clears_dirty, clears);
}

TEST(Increments, TheFirstSaveIsComplete) {
  for (const IncrementPolicy policy : kPolicies) expect(Increments(policy).next(), true, -1, true);
}

TEST(Increments, OneShotBuildsOnTheFirstBase) {
  Increments increments(IncrementPolicy::kOneShot);
  increments.committed(10, increments.next(), 0);
  for (std::int64_t slot = 20; slot < 200; slot += 10) {
    const NextSave save = increments.next();
    expect(save, false, 10, false);
    increments.committed(slot, save, 1);  // at any cost
  }
}

TEST(Increments, ConsecutiveBuildsOnTheSaveBefore) {
  Increments increments(IncrementPolicy::kConsecutive);
  increments.committed(10, increments.next(), 0);
  for (std::int64_t slot = 20; slot < 200; slot += 10) {
    const NextSave save = increments.next();
    expect(save, false, slot - 10, true);
    increments.committed(slot, save, 1);
  }
}

// 1 + sum S_j <= (i + 1) S_i; sizes are sums of powers of two, so equality is exact.
TEST(Increments, IntermittentTakesABaseWhenItPays) {
  EXPECT_FALSE(complete_save_pays({}));
  EXPECT_TRUE(complete_save_pays({1})) << "2 <= 2";
  EXPECT_FALSE(complete_save_pays({0.875})) << "1.875 > 1.75";
  EXPECT_TRUE(complete_save_pays({0.5, 0.75})) << "2.25 <= 2.25";
  EXPECT_FALSE(complete_save_pays({0.5, 0.6875})) << "2.1875 > 2.0625";
  EXPECT_FALSE(complete_save_pays({0.5, 0.5, 0.5, 0.5, 0.5, 0.5})) << "they do not grow";
  EXPECT_TRUE(complete_save_pays({0.125, 0.25, 0.375, 0.5})) << "2.25 <= 2.5";
  EXPECT_FALSE(complete_save_pays({0.125, 0.25, 0.375})) << "1.75 > 1.5";

  Increments increments(IncrementPolicy::kIntermittent);
  increments.committed(10, increments.next(), 0);
  for (int i = 1; i <= 4; ++i) {
    const NextSave save = increments.next();
    expect(save, false, 10, false);
    increments.committed(10 + i, save, i / 8.0);
  }
  const NextSave base = increments.next();
  expect(base, true, -1, true);
  increments.committed(15, base, 0);
  EXPECT_THAT(increments.history().sizes, IsEmpty());
  expect(increments.next(), false, 15, false);
}

TEST(Increments, ASaveThatCameToNothingChangesNothing) {
  for (const IncrementPolicy policy : kPolicies) {
    Increments increments(policy, {.complete = 10, .latest = 12, .sizes = {0.25, 1}});
    const NextSave first = increments.next(), again = increments.next();
    expect(again, first.complete, first.base, first.clears_dirty);
  }
}

TEST(Increments, ACompleteSaveMayComeAtAnyTime) {
  for (const IncrementPolicy policy : kPolicies) {
    Increments increments(policy, {.complete = 10, .latest = 12, .sizes = {0.25, 0.5}});
    increments.committed(13, Increments::complete_save(), 1);
    expect(increments.next(), false, 13, policy == IncrementPolicy::kConsecutive);
    EXPECT_THAT(increments.history().sizes, IsEmpty());
  }
}

TEST(Increments, AResumedHistoryGoesOn) {
  for (const IncrementPolicy policy : kPolicies) {
    Increments whole(policy);
    for (std::int64_t slot = 1; slot < 12; ++slot) {
      Increments resumed(policy, whole.history());
      const NextSave expected = whole.next();
      expect(resumed.next(), expected.complete, expected.base, expected.clears_dirty);
      whole.committed(slot, expected, static_cast<double>(slot % 5) / 4);
    }
  }
  Increments increments(IncrementPolicy::kConsecutive, {.complete = 3, .latest = 7, .sizes = {0.5}});
  expect(increments.next(), false, 7, true);
  EXPECT_THAT(increments.history().sizes, ElementsAre(0.5));
}

/// A table of one number per row and its saves, some of which are aborted.
struct SavedTable {
  std::vector<int> table = std::vector<int>(200, 0);
  struct Saved {
    std::int64_t base;
    std::map<std::int64_t, int> rows;
  };
  std::map<std::int64_t, Saved> saves;
  DirtyRows dirty{0, 200};

  void touch(std::mt19937& random) {
    std::vector<std::int64_t> ids(random() % 12);
    for (std::int64_t& id : ids) table[id = random() % table.size()]++;
    dirty.set(ids);
  }
  std::vector<int> restored(std::int64_t slot) const {
    const Saved& save = saves.at(slot);
    std::vector<int> rows = save.base < 0 ? std::vector<int>(table.size(), -1) : restored(save.base);
    for (const auto& [id, value] : save.rows) rows[id] = value;
    return rows;
  }
};

// Dirty bits are taken when the copy is made; bits that a save does not clear, or does not commit, return.
TEST(Increments, P24_BaseAndIncrementsGiveTheWholeTable) {
  for (const IncrementPolicy policy : kPolicies) {
    std::mt19937 random(11);
    SavedTable run;
    Increments increments(policy);
    int complete = 0, saved = 0;
    for (std::int64_t slot = 1; slot <= 300; ++slot) {
      run.touch(random);
      const NextSave save = increments.next();
      const std::vector<int> copied = run.table;
      const std::vector<std::int64_t> taken = run.dirty.take();
      SavedTable::Saved rows{.base = save.base, .rows = {}};
      for (const std::int64_t id : taken) rows.rows[id] = copied[id];
      if (save.complete) {
        for (std::size_t id = 0; id < copied.size(); ++id)
          rows.rows[static_cast<std::int64_t>(id)] = copied[id];
      }
      const double size = static_cast<double>(rows.rows.size()) / static_cast<double>(copied.size());
      run.touch(random);  // while it is written
      const bool aborted = random() % 4 == 0;
      if (aborted || !save.clears_dirty) run.dirty.or_back(taken);
      if (aborted) continue;
      run.saves[slot] = rows;
      increments.committed(slot, save, size);
      complete += save.complete ? 1 : 0;
      ++saved;
      ASSERT_EQ(run.restored(slot), copied) << "slot " << slot;
    }
    EXPECT_GT(saved, 150);
    if (policy == IncrementPolicy::kIntermittent) {
      EXPECT_GT(complete, 5);
      EXPECT_LT(complete, saved / 2);
    } else {
      EXPECT_EQ(complete, 1);
    }
  }
}

TEST(Increments, BitWidthFollowsTheExpectedRestores) {
  EXPECT_EQ(bits_for_restores(0), 2);
  EXPECT_EQ(bits_for_restores(1), 2);
  EXPECT_EQ(bits_for_restores(1.01), 3);
  EXPECT_EQ(bits_for_restores(3), 3);
  EXPECT_EQ(bits_for_restores(3.5), 4);
  EXPECT_EQ(bits_for_restores(20), 4);
  EXPECT_EQ(bits_for_restores(20.5), 8);
  EXPECT_EQ(bits_for_restores(std::numeric_limits<double>::infinity()), 8);
  EXPECT_EQ(bits_for_restores(std::numeric_limits<double>::quiet_NaN()), 8);
}

}  // namespace
}  // namespace tenon::recovery_checknrun
