// Selections of each tracker, against plain loops.
#include "trackers.hpp"
#include "tables_in_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace tenon::recovery_cpr::trackers_test {
namespace {

using Ids = std::vector<std::int64_t>;
using Counts = std::vector<std::uint32_t>;

constexpr FailureDomains kHashed{8, true};

std::int64_t rows_of(const TrackedTable& table, int group) {
  std::int64_t rows = 0;
  for (std::int64_t row = 0; row < table.held; ++row) rows += table.group_of(row) == group ? 1 : 0;
  return rows;
}

TEST(Trackers, P9_MfuSavesTheMostReadRowsOfEachShard) {
  const MemorySet set({997, 64}, 4);
  const auto tables = tracked(set, kHashed, 8);
  Mfu mfu(tables);
  std::map<std::int64_t, std::uint64_t> counted;
  std::mt19937 random(3);
  for (int round = 0; round < 6; ++round) {
    for (int slot = 0; slot < 40; ++slot) {
      std::map<std::int64_t, std::uint32_t> batch;
      for (int i = 0; i < 64; ++i) ++batch[static_cast<std::int64_t>(std::pow(random() % 997, 2)) / 997];
      Ids ids;
      Counts counts;
      for (const auto& [id, count] : batch) {
        ids.push_back(id);
        counts.push_back(count);
        counted[id] += count;
      }
      mfu.accessed(0, ids, counts, slot);
    }
    Ids expected;
    for (int group = 0; group < 8; ++group) {
      std::vector<std::pair<std::int64_t, std::uint64_t>> rows;
      for (const auto& [id, count] : counted) {
        if (count > 0 && tables[0].group_of(id) == group) rows.emplace_back(id, count);
      }
      std::stable_sort(rows.begin(), rows.end(),
                       [](const auto& a, const auto& b) { return a.second > b.second; });
      const std::size_t most = (rows_of(tables[0], group) + 7) / 8;
      if (rows.size() > most) rows.resize(most);
      for (const auto& [id, count] : rows) expected.push_back(id);
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(mfu.select(0), expected);
    for (const std::int64_t id : expected) counted[id] = 0;
    for (std::int64_t row = 0; row < 997; ++row)
      EXPECT_EQ(mfu.count(0, row), counted.contains(row) ? counted[row] : 0) << row;
    // A failed save restores the counts; a committed one does not.
    if (round % 2 == 0) {
      mfu.answered(true);
    } else {
      const Ids again = mfu.select(0);
      mfu.answered(false);
      for (const std::int64_t id : again) EXPECT_EQ(mfu.count(0, id), counted[id]);
      for (const std::int64_t id : expected) counted[id] = mfu.count(0, id);
    }
  }
  EXPECT_THAT(mfu.select(1), ::testing::IsEmpty()) << "nothing of it was read";
}

TEST(Trackers, P9_CountersStopAtTheLargestNumberAndFallToZeroWithTheirShard) {
  const MemorySet set({16}, 1);
  const auto tables = tracked(set, kHashed, 8);
  Mfu mfu(tables);
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  mfu.accessed(0, Ids{3, 9}, Counts{most - 1, 5}, 0);
  mfu.accessed(0, Ids{3}, Counts{7}, 1);
  EXPECT_EQ(mfu.count(0, 3), most);
  mfu.restored(tables[0].group_of(3));
  EXPECT_EQ(mfu.count(0, 3), 0u);
  EXPECT_EQ(mfu.count(0, 9), tables[0].group_of(9) == tables[0].group_of(3) ? 0u : 5u);
}

TEST(Trackers, P10_SsuListsAreShortFreeOfDuplicatesAndOfReadRowsOnly) {
  const MemorySet set({800}, 4);
  const auto tables = tracked(set, kHashed, 8);
  Ssu first(tables, 5), second(tables, 5), other(tables, 6);
  std::mt19937 random(1);
  std::set<std::int64_t> read;
  for (int slot = 0; slot < 300; ++slot) {
    std::set<std::int64_t> batch;
    for (int i = 0; i < 30; ++i) batch.insert(static_cast<std::int64_t>(random() % 700));
    const Ids ids(batch.begin(), batch.end());
    const Counts counts(ids.size(), 1);
    read.insert(ids.begin(), ids.end());
    for (Ssu* ssu : {&first, &second, &other}) ssu->accessed(0, ids, counts, slot);
    for (int group = 0; group < 8; ++group) {
      Ids listed = first.listed(0, group);
      EXPECT_LE(listed.size(), static_cast<std::size_t>((rows_of(tables[0], group) + 7) / 8));
      for (const std::int64_t id : listed) {
        EXPECT_EQ(tables[0].group_of(id), group);
        EXPECT_TRUE(read.contains(id));
      }
      std::sort(listed.begin(), listed.end());
      EXPECT_EQ(std::unique(listed.begin(), listed.end()), listed.end());
    }
  }
  const Ids chosen = first.select(0);
  EXPECT_EQ(second.select(0), chosen) << "one seed, one list";
  EXPECT_NE(other.select(0), chosen);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  for (int group = 0; group < 8; ++group) EXPECT_TRUE(first.listed(0, group).empty()) << "taken";
  first.answered(false);
  EXPECT_EQ(first.select(0), chosen) << "a save that came to nothing gives the rows back";
  first.answered(true);
  EXPECT_TRUE(first.select(0).empty());
  second.answered(true);
  other.restored(2);
  EXPECT_TRUE(other.listed(0, 2).empty());
}

// A row that is read in every slot enters the list with probability p = 1/2 and, as all other entries evict
// one of n places, stays for a while: in equilibrium it is present with p / (p + (1 - p) / n), if each slot
// brings one other new row.
TEST(Trackers, P10_PresenceOfARowFollowsItsRateOfReads) {
  constexpr int kPlaces = 4, kSlots = 60000;
  const MemorySet set({100000}, 1);
  std::vector<TrackedTable> tables = tracked(set, {1, true}, 1);
  tables[0].quota[0] = kPlaces;
  Ssu ssu(tables, 11);
  int there = 0, counted = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    // Alternates between the row itself and another one that was never read before.
    const bool mine = slot % 2 == 0;
    ssu.accessed(0, Ids{mine ? 7 : 100 + slot}, Counts{1}, slot);
    if (mine) continue;
    if (slot > 1000) {
      const Ids listed = ssu.listed(0, 0);
      there += std::find(listed.begin(), listed.end(), 7) != listed.end() ? 1 : 0;
      ++counted;
    }
  }
  // Per pair of slots: it enters with 1/2 when outside, and then leaves with 1/2 x 1/n when inside. Just
  // after the other row's slot it is present with the stationary share times its survival.
  const double p = 0.5, out = 0.5 / kPlaces;
  const double inside = (1 - out) * p / (p + out - p * out);
  const double share = static_cast<double>(there) / counted;
  // Consecutive samples are correlated over about 1 / (p + out) pairs.
  const double error = std::sqrt(inside * (1 - inside) / counted * 2 / (p + out));
  EXPECT_NEAR(share, inside, 3 * error);
}

TEST(Trackers, P10_SamplingDoesNotPassOverARowThatIsReadInEverySlot) {
  const MemorySet set({64}, 1);
  const auto tables = tracked(set, {1, true}, 1);
  Ssu ssu(tables, 2);
  for (int slot = 0; slot < 64; ++slot) {
    Ids ids;
    for (std::int64_t row = 0; row < 64; ++row) ids.push_back(row);
    ssu.accessed(0, ids, Counts(64, 1), slot);
  }
  EXPECT_EQ(ssu.listed(0, 0).size(), 64u);
}

TEST(Trackers, P11_ScarSavesTheFarthestRowsAndKeepsTheirSavedBytes) {
  constexpr std::int64_t kRows = 500, kWidth = 6;
  MemorySet set({kRows}, kWidth);
  std::vector<float>& values = set.tables[0]->values;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  const auto tables = tracked(set, kHashed, 8);
  Scar scar(tables);
  std::vector<float> saved = values;
  const auto distance = [&](std::int64_t row) {
    if (std::memcmp(values.data() + row * kWidth, saved.data() + row * kWidth, kWidth * sizeof(float)) == 0)
      return 0.0;
    double sum = 0;
    for (std::int64_t i = row * kWidth; i < (row + 1) * kWidth; ++i) {
      const double change = static_cast<double>(values[i]) - saved[i];
      sum += change * change;
    }
    return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
  };
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 900; ++i) values[random() % values.size()] += normal(random);
    values[static_cast<std::size_t>(round) * 31] = std::nanf("");  // the largest distance
    Ids expected;
    for (int group = 0; group < 8; ++group) {
      Ids rows;
      for (std::int64_t row = 0; row < kRows; ++row) {
        if (tables[0].group_of(row) == group && distance(row) > 0) rows.push_back(row);
      }
      std::stable_sort(rows.begin(), rows.end(),
                       [&](std::int64_t a, std::int64_t b) { return distance(a) > distance(b); });
      const std::size_t most = (rows_of(tables[0], group) + 7) / 8;
      if (rows.size() > most) rows.resize(most);
      expected.insert(expected.end(), rows.begin(), rows.end());
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(scar.select(0), expected);
    const bool committed = round != 2;
    scar.answered(committed);
    for (const std::int64_t row : expected) {
      const auto at = static_cast<std::ptrdiff_t>(row * kWidth);
      if (committed) std::copy_n(values.begin() + at, kWidth, saved.begin() + at);
    }
    for (std::int64_t row = 0; row < kRows; ++row)
      EXPECT_EQ(std::memcmp(scar.saved(0, row).data(), saved.data() + row * kWidth, kWidth * sizeof(float)),
                0);
  }
  for (float& value : values) value += 1;
  scar.saved_all();
  scar.answered(false);
  EXPECT_FALSE(scar.select(0).empty()) << "a complete save that came to nothing";
  scar.answered(true);
  scar.saved_all();
  scar.answered(true);
  EXPECT_TRUE(scar.select(0).empty());
}

TEST(Trackers, P12_MemoryIsWhatTheSheetSays) {
  constexpr std::int64_t kRows = 4096;
  const double counters[] = {6.25, 1.5625, 0.78125}, lists[] = {0.78125, 0.1953125, 0.09765625};
  int index = 0;
  for (const std::int64_t width : {16, 64, 128}) {
    const MemorySet set({kRows}, width);
    const auto tables = tracked(set, {1, true}, 8);
    const double bytes = static_cast<double>(kRows * width) * 4;
    const Mfu mfu(tables);
    const Ssu ssu(tables, 1);
    const Scar scar(tables);
    EXPECT_DOUBLE_EQ(100 * static_cast<double>(mfu.bytes()) / bytes, counters[index]);
    const double bitmap = kRows / 8.0;  // in addition to the list: the bits of listed rows
    EXPECT_DOUBLE_EQ(100 * (static_cast<double>(ssu.bytes()) - bitmap) / bytes, lists[index]);
    EXPECT_EQ(static_cast<double>(scar.bytes()), bytes);
    ++index;
  }
}

}  // namespace
}  // namespace tenon::recovery_cpr::trackers_test
