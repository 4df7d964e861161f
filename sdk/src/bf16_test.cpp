// Bf16 against the definition: the nearest of its values, of two equally near ones that with an even last
// bit.
#include <tenon/sdk/bf16.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tenon {
namespace {

float through(double value) {
  return static_cast<float>(Bf16(static_cast<float>(value)));
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t upper = 0; upper < 0x7f7fu; ++upper) {  // every finite value and the next one
    const float low = std::bit_cast<float>(upper << 16), high = std::bit_cast<float>((upper + 1) << 16);
    const float middle = std::bit_cast<float>((upper << 16) + 0x8000u);
    for (const float sign : {1.0f, -1.0f}) {
      ASSERT_EQ(through(sign * low), sign * low);
      ASSERT_EQ(through(sign * middle), sign * (upper % 2 == 0 ? low : high)) << upper;
      ASSERT_EQ(through(std::nextafter(sign * middle, sign * low)), sign * low) << upper;
      ASSERT_EQ(through(std::nextafter(sign * middle, sign * high)), sign * high) << upper;
    }
  }
}

TEST(Bf16, KeepsWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(through(infinity), infinity);
  EXPECT_EQ(through(-std::numeric_limits<float>::max()), -infinity);
  EXPECT_TRUE(std::isnan(through(std::bit_cast<float>(0x7f800001u))));  // no bit of it is in the upper half
  EXPECT_TRUE(std::signbit(through(-0.0)));
}

}  // namespace
}  // namespace tenon
