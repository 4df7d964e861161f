// The first tensor that differs, over slots, ranks and tensors.
#include "witness/witness_comparison.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

namespace tenon::train {
namespace {

constexpr int kTensors = 4;

/// Slots 0, 10, 20 of tensors t0 ... t3; every digest differs from the others.
WitnessRecord record_of(int rank) {
  WitnessRecord record;
  for (int t = 0; t < kTensors; ++t)
    record.names.push_back(
        {t < 2 ? "output" : "weight", "layer" + std::to_string(t), "t" + std::to_string(t)});
  for (const std::int64_t slot : {0, 10, 20}) {
    WitnessSlot& made = record.slots.emplace_back();
    made.slot = slot;
    for (std::size_t t = 0; t < kTensors; ++t)
      made.entries.push_back(
          {t, 0, {static_cast<std::uint64_t>(slot), static_cast<std::uint64_t>(rank) * 10 + t}});
  }
  return record;
}

std::vector<WitnessRecord> ranks(int count) {
  std::vector<WitnessRecord> all;
  for (int rank = 0; rank < count; ++rank) all.push_back(record_of(rank));
  return all;
}

WitnessEntry& entry(std::vector<WitnessRecord>& records, std::size_t rank, std::size_t slot,
                    std::size_t tensor) {
  return records[rank].slots[slot].entries[tensor];
}

std::string refusal(const std::vector<WitnessRecord>& a, const std::vector<WitnessRecord>& b,
                    const SlotRange& range = {}) {
  try {
    compare_witnesses(a, "A", b, "B", range);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(WitnessComparison, CountsAllTensorsOfEqualRecords) {
  const WitnessComparison equal = compare_witnesses(ranks(2), "A", ranks(2), "B");
  EXPECT_FALSE(equal.first.has_value());
  EXPECT_EQ(equal.tensors, 3 * 2 * kTensors);
  EXPECT_EQ(equal.ranks, 2);
  EXPECT_EQ(equal.slots, (std::vector<std::int64_t>{0, 10, 20}));
}

TEST(WitnessComparison, NamesEachTensorThatAloneDiffers) {
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t slot = 0; slot < 3; ++slot) {
      for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        for (const bool high : {false, true}) {
          std::vector<WitnessRecord> other = ranks(2);
          WitnessDigest& digest = entry(other, rank, slot, tensor).digest;
          (high ? digest.high : digest.low) ^= 1;
          const WitnessComparison found = compare_witnesses(ranks(2), "A", other, "B");
          ASSERT_TRUE(found.first.has_value());
          EXPECT_EQ(found.first->name.tensor, "t" + std::to_string(tensor));
          EXPECT_EQ(found.first->slot, static_cast<std::int64_t>(10 * slot));
          EXPECT_EQ(found.first->rank, static_cast<int>(rank));
          EXPECT_EQ(found.first->differing, 1);
          EXPECT_EQ(found.first->compared, 2 * kTensors);
          EXPECT_EQ(found.tensors, 3 * 2 * kTensors);
        }
      }
    }
  }
}

TEST(WitnessComparison, TheEarliestSlotThenTheEarliestTensorOfAllRanksComesFirst) {
  std::vector<WitnessRecord> other = ranks(2);
  entry(other, 0, 2, 0).digest.low ^= 1;
  entry(other, 0, 1, 3).digest.low ^= 1;
  entry(other, 1, 1, 2).digest.low ^= 1;
  const WitnessComparison found = compare_witnesses(ranks(2), "A", other, "B");
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->slot, 10);
  EXPECT_EQ(found.first->rank, 1);
  EXPECT_EQ(found.first->name, (WitnessName{"weight", "layer2", "t2"}));
  EXPECT_EQ(found.first->differing, 2);
}

TEST(WitnessComparison, ASlotThatWentAnotherWayIsADifference) {
  std::vector<WitnessRecord> other = ranks(1);
  other[0].slots[1].entries.resize(2);  // its update was refused
  const WitnessComparison found = compare_witnesses(ranks(1), "A", other, "B");
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->slot, 10);
  EXPECT_EQ(found.first->name.tensor, "t2");
  EXPECT_EQ(found.first->problem, "the first run recorded weight 't2' here, the second nothing more");
  other = ranks(1);
  entry(other, 0, 0, 1).micro = 1;
  EXPECT_TRUE(compare_witnesses(ranks(1), "A", other, "B").first.has_value());
}

TEST(WitnessComparison, OnlySlotsOfTheRangeThatBothHaveCount) {
  std::vector<WitnessRecord> other = ranks(1);
  entry(other, 0, 0, 0).digest.low ^= 1;
  EXPECT_FALSE(compare_witnesses(ranks(1), "A", other, "B", {1, 20}).first.has_value());
  other[0].slots.erase(other[0].slots.begin() + 1);
  EXPECT_EQ(compare_witnesses(ranks(1), "A", other, "B", {1, 20}).slots, std::vector<std::int64_t>{20});
}

TEST(WitnessComparison, RefusesRecordsThatCannotBeCompared) {
  EXPECT_EQ(refusal({}, ranks(1)), "A has no witness; train it with [run] witness_every above 0");
  EXPECT_EQ(
      refusal(ranks(1), ranks(2)),
      "A has witnesses of 1 rank(s) and B of 2; ranks of equal numbers hold unlike parts, so only runs of "
      "equally many ranks can be compared");
  EXPECT_EQ(refusal(ranks(1), ranks(1), {21, 30}),
            "A and B have no recorded slot in common: 0, 10, 20 and 0, 10, 20");
}

TEST(WitnessComparison, ShortensLongListsOfSlots) {
  std::set<std::int64_t> slots;
  for (int i = 0; i < 20; ++i) slots.insert(i * 5);
  EXPECT_EQ(slots_text(slots), "0, 5, ..., 95");
  EXPECT_EQ(slots_text({3, 4}), "3, 4");
}

}  // namespace
}  // namespace tenon::train
