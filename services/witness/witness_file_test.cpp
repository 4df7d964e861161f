// Records of witnesses as text: what is written reads back, and every damaged byte is noticed.
#include "witness/witness_file.hpp"

#include "store/testing/memory_files.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

namespace tenon::train {
namespace {

const std::string kOnes(32, '1'), kTwos(32, '2'), kEfs = std::string(16, 'e') + std::string(16, 'f');

/// Slots 0, 4 and 8 of two tensors, the second one new in slot 4.
std::string three_slots() {
  WitnessText text;
  std::string all = WitnessText::header();
  text.begin_slot(0);
  text.add("input", "data", "tok ens%", 0, kOnes);
  all += text.end_slot();
  text.begin_slot(4);
  text.add("input", "data", "tok ens%", 0, kTwos);
  text.add("gradient", "h.0.mlp", "h.0.mlp.weight", 0, kEfs);
  all += text.end_slot();
  text.begin_slot(8);
  text.add("input", "data", "tok ens%", 1, kOnes);
  text.add("gradient", "h.0.mlp", "h.0.mlp.weight", 0, kTwos);
  return all + std::string(text.end_slot());
}

std::string refusal(std::string_view text) {
  try {
    parse_witness(text, "w");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    return error.what();
  }
  return "";
}

TEST(WitnessFile, ReadsBackWhatWasWritten) {
  const WitnessRecord record = parse_witness(three_slots(), "w");
  ASSERT_EQ(record.names.size(), 2u);
  EXPECT_EQ(record.names[0], (WitnessName{"input", "data", "tok ens%"}));
  EXPECT_EQ(record.names[1], (WitnessName{"gradient", "h.0.mlp", "h.0.mlp.weight"}));
  ASSERT_EQ(record.slots.size(), 3u);
  ASSERT_NE(record.find(8), nullptr);
  EXPECT_EQ(record.find(5), nullptr);
  EXPECT_EQ(record.find(8)->entries[0].micro, 1);
  EXPECT_EQ(record.find(4)->entries[1].name, 1u);
  EXPECT_EQ(record.find(4)->entries[1].digest, (WitnessDigest{0xeeeeeeeeeeeeeeeeu, 0xffffffffffffffffu}));
}

TEST(WitnessFile, ALineOfATensorTakesAtMost64Bytes) {
  WitnessText text;
  text.begin_slot(0);
  for (int i = 0; i < 100000; ++i) text.add("output", "n", std::to_string(i), 0, kOnes);
  text.end_slot();
  text.begin_slot(std::int64_t{1} << 40);
  const std::size_t empty = text.end_slot().size();
  text.begin_slot(std::int64_t{1} << 41);
  text.add("output", "n", "99999", 2147483646, kOnes);
  EXPECT_LE(text.end_slot().size() - empty, 64u);
}

TEST(WitnessFile, EveryFlippedBitIsRefusedWithItsPlace) {
  const std::string whole = three_slots();
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const std::string why = refusal(damaged);
      EXPECT_TRUE(why.starts_with("w:")) << "byte " << at << ", bit " << bit << ": " << why;
    }
  }
}

TEST(WitnessFile, EveryCutIsRefusedUnlessItIsBetweenSlots) {
  const std::string whole = three_slots();
  int accepted = 0;
  for (std::size_t size = 0; size < whole.size(); ++size)
    accepted += refusal(whole.substr(0, size)).empty() ? 1 : 0;
  EXPECT_EQ(accepted, 3);  // after the header, the first and the second slot
}

TEST(WitnessFile, SaysWhatIsWrong) {
  const std::string head = WitnessText::header();
  const struct {
    std::string text, message;
  } cases[] = {
      {"",
       "w:1: damaged witness: the file ends within a slot, as it does when a run is killed; --resume drops "
       "such a slot, found ''"},
      {"tenon witness 2\n", "w:1: damaged witness: expected 'tenon witness 1', found 'tenon witness 2'"},
      {head + "slot 007\n", "w:2: damaged witness: expected 'slot' and its number, found 'slot 007'"},
      {head + "slot 1\n0 0 " + kOnes + "\n",
       "w:3: damaged witness: tensor 0 has no name, found '0 0 " + kOnes + "'"},
      {head + "slot 1\nname 1 input a b\n",
       "w:3: damaged witness: expected 'name 0', phase, layer and tensor, found 'name 1 input a b'"},
      {head + "slot 1\nname 0 inputs a b\n",
       "w:3: damaged witness: expected a phase, a layer and a tensor, found 'name 0 inputs a b'"},
      {head + "slot 1\nend 1 0 " + kOnes + "\n",
       "w:3: damaged witness: the lines of slot 1 have another digest than its end says, found 'end 1 0 " +
           kOnes + "'"},
      {head + "slot 1\nend 1 2 " + kOnes + "\n",
       "w:3: damaged witness: expected 'end 1 0' and 32 digits, found 'end 1 2 " + kOnes + "'"},
      {three_slots() + three_slots().substr(head.size()),
       "w:15: damaged witness: slot 0 follows slot 8; slots must ascend, found 'slot 0'"},
  };
  for (const auto& one : cases) EXPECT_EQ(refusal(one.text), one.message);
}

TEST(WitnessFile, ARunGoesOnAfterTheSlotsBeforeItsOwn) {
  const std::string whole = three_slots();
  const WitnessHead head = witness_head(whole, "w", 8);
  EXPECT_EQ(head.damage, "");
  ASSERT_EQ(head.names.size(), 2u);
  WitnessText text(head.names);
  text.begin_slot(8);
  text.add("input", "data", "tok ens%", 1, kOnes);
  text.add("gradient", "h.0.mlp", "h.0.mlp.weight", 0, kTwos);
  EXPECT_EQ(whole.substr(0, head.bytes) + std::string(text.end_slot()), whole);
  // Names of dropped slots are dropped with them.
  EXPECT_EQ(witness_head(whole, "w", 4).names.size(), 1u);
  EXPECT_EQ(witness_head(whole, "w", 0).bytes, WitnessText::header().size());
}

TEST(WitnessFile, WhatIsDamagedIsLeftOutWhereARunGoesOn) {
  const std::string whole = three_slots();
  const WitnessHead head = witness_head(whole.substr(0, whole.size() - 5), "w", 100);
  EXPECT_EQ(head.bytes, whole.find("slot 8"));
  EXPECT_NE(head.damage.find("ends within a slot"), std::string::npos);
  EXPECT_EQ(witness_head("nonsense", "w", 100).bytes, 0u);
}

TEST(WitnessFile, ASlotThatWasNotCompletedLeavesNoNames) {
  WitnessText text;
  text.begin_slot(0);
  text.add("input", "data", "x", 0, kOnes);
  text.begin_slot(1);
  text.add("input", "data", "x", 0, kOnes);
  const WitnessRecord record = parse_witness(WitnessText::header() + std::string(text.end_slot()), "w");
  EXPECT_EQ(record.slots.at(0).slot, 1);
}

TEST(WitnessFile, AMissingRankIsNamed) {
  testing::MemoryFiles files;
  files.make_directories("/run");
  EXPECT_TRUE(read_witnesses(files, "/run").empty());
  files.write_text_atomically("/run/witness.rank0.txt", three_slots());
  EXPECT_EQ(read_witnesses(files, "/run").size(), 1u);
  files.write_text_atomically("/run/witness.rank2.txt", three_slots());
  try {
    read_witnesses(files, "/run");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "/run/witness.rank1.txt is missing, and the attempt has witnesses of 2 ranks; expected one of each");
  }
}

}  // namespace
}  // namespace tenon::train
