// The record of a canary reads back to the same bits, and any other text is refused.
#include "store/canary.hpp"

#include "store/testing/store_fixture.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

namespace tenon::canary_test {
namespace {

using checkpoint::CanaryRecord;
using ::testing::HasSubstr;
using testing::message_of;

CanaryRecord sample(double sum) {
  return {40,
          1280,
          3,
          std::bit_cast<std::uint64_t>(sum),
          std::bit_cast<std::uint64_t>(32.0),
          "0123456789abcdef0123456789abcdef",
          "ranks 4, kernels avx2"};
}

TEST(CanaryRecord, ReadsBackToTheSameBits) {
  for (const double sum :
       {0.0, -0.0, 2.718281828459045, std::numeric_limits<double>::denorm_min(),
        std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const CanaryRecord record = sample(sum);
    EXPECT_EQ(checkpoint::parse_canary(checkpoint::canary_text(record), "c"), record) << sum;
  }
}

TEST(CanaryRecord, P15_EveryFlippedBitAndEveryTruncationIsRefused) {
  const std::string text = checkpoint::canary_text(sample(2.5));
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_THAT(message_of([&] { checkpoint::parse_canary(damaged, "step-4/rank3.canary"); }),
                HasSubstr("step-4/rank3.canary: no record of a loss, or its CRC-32C differs"))
        << bit;
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_NE(message_of([&] { checkpoint::parse_canary(text.substr(0, size), "c"); }), "no error") << size;
  EXPECT_NE(message_of([&] { checkpoint::parse_canary(text + "\n", "c"); }), "no error");
}

TEST(CanaryRecord, NamesAreThoseOfRanks) {
  EXPECT_EQ(checkpoint::canary_name(12), "rank12.canary");
  EXPECT_EQ(checkpoint::canary_rank("rank12.canary"), 12);
  for (const char* other : {"rank12.safetensors", "rank.canary", "rank012.canary", "rank-1.canary",
                            "rank1.canary.tmp", "canary", "rank99999999999.canary", "MANIFEST.json"})
    EXPECT_EQ(checkpoint::canary_rank(other), std::nullopt) << other;
}

class CanaryFile : public testing::StoreFixture {
 protected:
  void SetUp() override {
    for (const std::int64_t step : {1, 2, 3}) testing::save_step(store_, step, 1);
  }
  void put(std::int64_t step, const CanaryRecord& record) {
    files_.write_text_atomically(
        std::string(testing::kFolder) + "/step-" + std::to_string(step) + "/rank3.canary",
        checkpoint::canary_text(record));
  }
};

TEST_F(CanaryFile, P15_ADamagedOneIsDamageOfItsGeneration) {
  CanaryRecord record = sample(2.5);
  record.slot = 3;
  put(3, record);
  EXPECT_EQ(store_.recover(false).step, 3);
  const std::string path = std::string(testing::kFolder) + "/step-3/rank3.canary";
  std::string damaged = files_.content(path);
  damaged[30] = static_cast<char>(damaged[30] ^ 4);
  files_.overwrite(path, damaged);
  const RestorePoint point = store_.recover(false);
  EXPECT_EQ(point.step, 2);
  ASSERT_EQ(point.rejected.size(), 1u);
  EXPECT_THAT(point.rejected[0].reason, HasSubstr(path));
}

TEST_F(CanaryFile, IsThatOfItsGenerationAndRank) {
  put(3, sample(2.5));  // of slot 40
  EXPECT_THAT(message_of([&] { store_.verify(3); }),
              HasSubstr("the canary of rank 3 of slot 40; expected that of rank 3 of slot 3"));
}

}  // namespace
}  // namespace tenon::canary_test
