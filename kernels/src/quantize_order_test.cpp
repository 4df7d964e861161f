// The order of operations of every scale, against pseudo-code with its own rounding: nearest value of a
// table, ties to the even code, compared in double. Random data cannot tell orders apart, so blocks are
// searched near ties.
#include "quantizing.hpp"

namespace tenon::kernels::testing::quantize_order_test {
namespace {

/// Nearest of table[0 ... ], whose index is the code; ties to the even code; saturating.
int nearest(double magnitude, const std::vector<double>& table) {
  std::size_t above = 0;
  while (above + 1 < table.size() && table[above] < magnitude) ++above;
  if (above == 0) return 0;
  const double middle = (table[above - 1] + table[above]) / 2;
  if (magnitude == middle) return static_cast<int>(above % 2 == 0 ? above : above - 1);
  return static_cast<int>(magnitude > middle ? above : above - 1);
}

const std::vector<double>& e2m1_table() {
  static const std::vector<double> table = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return table;
}

const std::vector<double>& e4m3_table() {
  static const std::vector<double> table = [] {
    std::vector<double> values;
    for (int code = 0; code <= 0x7e; ++code)
      values.push_back(code < 8 ? code * 0x1p-9 : std::ldexp(1 + code % 8 / 8.0, code / 8 - 7));
    return values;
  }();
  return table;
}

struct Pinned {
  float s_enc, s_dec, k;
};

Pinned pinned(float amax) {
  volatile float s_enc = 2688.0f / amax;
  if (s_enc > kFloatMax) s_enc = kFloatMax;
  if (amax == 0 || s_enc == 0) s_enc = 1;
  volatile float s_dec = 1.0f / s_enc;
  volatile float sixth = 1.0f / 6.0f;
  volatile float k = s_enc * sixth;
  return {s_enc, s_dec, k};
}

int pinned_block(float a, const Pinned& p) {
  volatile float scaled = a * p.k;
  if (scaled > kFloatMax) scaled = kFloatMax;
  return nearest(static_cast<double>(scaled), e4m3_table());
}

int pinned_code(float x, int block, const Pinned& p) {
  volatile float product = static_cast<float>(e4m3_table()[block]) * p.s_dec;
  volatile float e = 1.0f / product;
  if (e > kFloatMax) e = kFloatMax;
  volatile float scaled = x * e;
  return nearest(std::min(std::abs(static_cast<double>(scaled)), 6.0), e2m1_table()) +
         (std::signbit(x) ? 8 : 0);
}

/// Blocks of 16 under `amax`; returns the number of block scales for which the order (a / 6) s_enc would
/// differ.
int compare_blocks(const std::vector<float>& x, float amax) {
  const Pinned p = pinned(amax);
  const auto n = static_cast<std::int64_t>(x.size());
  const auto q = quantize_with(reference_kernels(), x, n / 16, 16, kNvfp4, two_level_scale(amax));
  EXPECT_EQ(q.tensor.encode, p.s_enc);
  EXPECT_EQ(q.tensor.decode, p.s_dec);
  int differ = 0;
  for (std::int64_t block = 0; block < n / 16; ++block) {
    float a = 0;
    for (std::int64_t e = 0; e < 16; ++e) a = std::max(a, std::abs(x[block * 16 + e]));
    const int scale = pinned_block(a, p);
    EXPECT_EQ(q.scales[block], scale) << std::hexfloat << a << " of " << amax;
    volatile float sixth = a / 6.0f;
    const float naive = sixth * p.s_enc;
    differ += nearest(static_cast<double>(std::min(naive, 448.0f)), e4m3_table()) != scale ? 1 : 0;
    for (std::int64_t e = 0; e < 16; ++e) {
      const std::size_t at = block * 16 + e;
      EXPECT_EQ(q.codes[at], pinned_code(x[at], scale, p)) << std::hexfloat << x[at] << " of " << amax;
    }
    if (::testing::Test::HasFailure()) break;
  }
  return differ;
}

TEST(Nvfp4Quantizer, P09_BlockScalesFollowThePinnedOrder) {
  std::mt19937 generator(9);
  std::normal_distribution<float> draw;
  for (int matrix = 0; matrix < 16; ++matrix) {
    std::vector<float> x(std::size_t{1} << 18);
    for (float& value : x) value = to_float(to_bf16(draw(generator)));
    compare_blocks(x, 3.0f + static_cast<float>(matrix) * 0.37f);
  }
}

TEST(Nvfp4Quantizer, P09_BlockScalesFollowThePinnedOrderAtTies) {
  std::mt19937 generator(99);
  int differ = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const float amax = std::exp2(std::uniform_real_distribution<float>(-20.0f, 20.0f)(generator));
    const Pinned p = pinned(amax);
    std::vector<float> x;
    for (std::size_t code = 1; code + 1 < e4m3_table().size(); ++code) {
      const double tie = (e4m3_table()[code] + e4m3_table()[code + 1]) / 2;
      auto a = static_cast<float>(tie / static_cast<double>(p.k));
      for (int ulp = 0; ulp < 4; ++ulp) a = std::nextafter(a, 0.0f);
      for (int ulp = -4; ulp <= 4; ++ulp, a = std::nextafter(a, kFloatMax)) {
        x.push_back(a);
        for (int e = 1; e < 16; ++e) x.push_back(a * std::uniform_real_distribution<float>(-1, 1)(generator));
      }
    }
    differ += compare_blocks(x, amax);
  }
  EXPECT_GT(differ, 1000);  // the search found blocks where the order shows
}

TEST(Fp8TensorScale, P43_TheLargestElementTakesTheLargestCode) {
  std::mt19937 generator(43);
  for (int trial = 0; trial < 100000; ++trial) {
    const float amax = std::exp2(std::uniform_real_distribution<float>(-111.0f, 127.99f)(generator));
    for (const Element element : {Element::kE4M3, Element::kE5M2}) {
      if (amax < (element == Element::kE4M3 ? 1.33e-36f : 1.7e-34f)) continue;
      const TensorScale scale = tensor_scale(amax, element);
      ASSERT_EQ(scale.encode, layout_of(element).largest / amax);
      ASSERT_EQ(encode(amax * scale.encode, element), layout_of(element).largest_code)
          << std::hexfloat << amax;
    }
  }
  // The clamped scale: S = FLT_MAX.
  for (const auto& [element, code] : {std::pair{Element::kE4M3, 0x7b}, {Element::kE5M2, 0x5d}}) {
    const auto q =
        quantize_matrix(std::vector<float>{1e-36f}, 1, 1, {.element = element, .scaling = Scaling::kTensor});
    EXPECT_EQ(q.tensor.encode, kFloatMax);
    EXPECT_EQ(q.codes[0], code);
  }
  for (const float none :
       {0.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(tensor_scale(none, Element::kE4M3).encode, 1.0f);
    EXPECT_EQ(tensor_scale(none, Element::kE5M2).decode, 1.0f);
    EXPECT_EQ(float_block_encode(none, Element::kE4M3, kFloatMax), 1.0f);
  }
  // Block scales are clamped to the largest value of the input's type.
  EXPECT_EQ(float_block_encode(1e-37f, Element::kE4M3, 0x1.fep127f), 0x1.fep127f);
  const auto block = quantize_matrix(std::vector<Bf16>{to_bf16(1e-37f)}, 1, 1, kFp8Block);
  EXPECT_EQ(block.float_scales[0], 1.0f / 0x1.fep127f);
}

TEST(Fp8DelayedScale, P43_HistoryRollsAndMarginHalves) {
  float history[4] = {};
  EXPECT_EQ(roll_amax(history, 4, 3.0f), 3.0f);
  EXPECT_EQ(roll_amax(history, 4, 8.0f), 8.0f);
  EXPECT_EQ(roll_amax(history, 4, 1.0f), 8.0f);
  EXPECT_EQ(roll_amax(history, 4, std::numeric_limits<float>::infinity()), 8.0f);
  EXPECT_EQ(roll_amax(history, 4, 2.0f), 8.0f);
  EXPECT_EQ(roll_amax(history, 4, 0.5f), 2.0f);  // the 8 was dropped
  EXPECT_EQ(history[0], 0.5f);
  EXPECT_EQ(tensor_scale(2.0f, Element::kE4M3).encode, 224.0f);
  EXPECT_EQ(tensor_scale(2.0f, Element::kE4M3, 3).encode, 28.0f);
  EXPECT_EQ(tensor_scale(1e-37f, Element::kE4M3, 3).encode, kFloatMax);
}

TEST(MxScale, P44_RulesFollowTheirDefinitions) {
  std::mt19937 generator(44);
  for (const Element element :
       {Element::kE2M1, Element::kE2M3, Element::kE3M2, Element::kE4M3, Element::kE5M2}) {
    const ElementLayout layout = layout_of(element);
    const int emax = layout.largest_exponent;
    for (int trial = 0; trial < 50000; ++trial) {
      auto bits = static_cast<std::uint32_t>(generator()) & kMagnitudeMask;
      if (trial % 4 == 0) bits &= 0xfff00000u;  // powers of two, ties and the like
      const auto amax = std::bit_cast<float>(bits);
      if (!std::isnormal(amax)) continue;
      const auto clamped = [](int exponent) { return std::clamp(exponent + 127, 0, 254); };
      const int floor = std::ilogb(amax);
      const int ceil = std::ldexp(1.0, floor) == static_cast<double>(amax) ? floor : floor + 1;
      EXPECT_EQ(power_scale(amax, element, PowerRule::kFloor), clamped(floor - emax));
      EXPECT_EQ(power_scale(amax, element, PowerRule::kCeil), clamped(ceil - emax));
      // Round half up to the element's mantissa.
      const double unit = std::ldexp(1.0, floor - layout.mantissa);
      const double even = std::floor(static_cast<double>(amax) / unit + 0.5) * unit;
      EXPECT_EQ(power_scale(amax, element, PowerRule::kEven), clamped(std::ilogb(even) - emax));
      int up = -127;
      while (std::ldexp(static_cast<double>(layout.largest), up) < static_cast<double>(amax)) ++up;
      EXPECT_EQ(power_scale(amax, element, PowerRule::kRoundUp), std::min(up + 127, 254))
          << std::hexfloat << amax;
    }
    for (const PowerRule rule :
         {PowerRule::kFloor, PowerRule::kCeil, PowerRule::kEven, PowerRule::kRoundUp}) {
      EXPECT_EQ(power_scale(0.0f, element, rule), 0);
      EXPECT_EQ(power_scale(1e-45f, element, rule), 0);
      EXPECT_EQ(power_scale(std::numeric_limits<float>::infinity(), element, rule), 255);
      EXPECT_EQ(power_scale(std::numeric_limits<float>::quiet_NaN(), element, rule), 255);
    }
  }
}

TEST(MxScale, P44_RoundingUpNeverSaturatesAndTheFloorDoes) {
  std::mt19937 generator(45);
  int saturated = 0, lost = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    const float mantissa = 1.0f + static_cast<float>(generator() >> 8) * 0x1p-24f;
    const float amax = std::ldexp(mantissa, static_cast<int>(generator() % 200) - 100);
    const float up = amax * inverse_e8m0(power_scale(amax, Element::kE4M3, PowerRule::kRoundUp));
    ASSERT_LE(up, 448.0f);
    ASSERT_GT(up, 224.0f);
    const float floor = amax * inverse_e8m0(power_scale(amax, Element::kE4M3, PowerRule::kFloor));
    ASSERT_GE(floor, 256.0f);
    ASSERT_LT(floor, 512.0f);
    const int code = encode(floor, Element::kE4M3);
    if (mantissa > 1.75f) {
      ASSERT_EQ(code, 0x7e);
      ++saturated;
    }
    // Beyond 464 the element is further away than half a step.
    if (mantissa > 1.8125f) {
      ASSERT_GT(floor - decode(static_cast<std::uint8_t>(code), Element::kE4M3), 16.0f);
      ++lost;
    }
  }
  EXPECT_GT(saturated, 20000);
  EXPECT_GT(lost, 15000);
}

}  // namespace
}  // namespace tenon::kernels::testing::quantize_order_test
