// Elements and E8M0 scales: every code, every tie, the edges, NaN and infinity.
#include <array>
#include <tenon/kernels/formats.hpp>

#include "testing.hpp"

namespace tenon::kernels::formats_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kRz = Rounding::kTowardZero;
constexpr auto kRne = Rounding::kNearestEven;

struct Edge {
  float x;
  int code;
};

void expect_codes(Element element, std::initializer_list<Edge> edges, Rounding rounding = kRne,
                  Overflow overflow = Overflow::kSaturate) {
  for (const Edge& edge : edges)
    EXPECT_EQ(encode(edge.x, element, rounding, overflow), edge.code) << std::hexfloat << edge.x;
}

TEST(E2m1Format, P01_CodesDecodeToTheTableAndBack) {
  const std::array<float, 16> table = {0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                       -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  for (unsigned code = 0; code < 16; ++code) {
    const float value = decode(static_cast<std::uint8_t>(code), Element::kE2M1);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(table[code])) << code;
    EXPECT_EQ(encode(value, Element::kE2M1), code);
    EXPECT_EQ(encode(value, Element::kE2M1, kRz), code);
  }
}

TEST(E2m1Format, P01_TiesGoToTheEvenMantissa) {
  expect_codes(Element::kE2M1,
               {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4}, {3.5f, 6}, {5.0f, 6}});
  for (const float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
    const int above = encode(std::nextafter(tie, 9.0f), Element::kE2M1);
    EXPECT_EQ(encode(std::nextafter(tie, 0.0f), Element::kE2M1), above - 1) << tie;
    EXPECT_EQ(encode(-tie, Element::kE2M1), 8 + encode(tie, Element::kE2M1)) << tie;
    EXPECT_EQ(encode(tie, Element::kE2M1, kRz), above - 1) << tie;
  }
}

TEST(E2m1Format, P01_SaturatesAndHasNeitherInfinityNorNan) {
  for (const Overflow overflow : {Overflow::kSaturate, Overflow::kSpecial})
    for (const Rounding rounding : {kRne, kRz})
      expect_codes(Element::kE2M1,
                   {{6.01f, 7},
                    {1e30f, 7},
                    {-7.0f, 15},
                    {kInf, 7},
                    {-kInf, 15},
                    {kNan, 7},
                    {-kNan, 7},
                    {-1e-9f, 8},
                    {-0.0f, 8},
                    {1e-45f, 0}},
                   rounding, overflow);
}

// Every finite code of every format, both signs, and each float beside it.
TEST(ElementFormats, P02_BytesRoundTrip) {
  for (const Element element :
       {Element::kE2M1, Element::kE2M3, Element::kE3M2, Element::kE4M3, Element::kE5M2}) {
    const ElementLayout layout = layout_of(element);
    for (unsigned code = 0; code < (1u << layout.bits); ++code) {
      const auto byte = static_cast<std::uint8_t>(code);
      const float value = decode(byte, element);
      if (std::isnan(value)) {
        const unsigned sign = code >> 7 << 7;
        EXPECT_EQ(encode(value, element), layout.nan | sign) << code;
        continue;
      }
      EXPECT_EQ(encode(value, element, kRne, Overflow::kSpecial), byte);
      EXPECT_EQ(encode(value, element, kRz, Overflow::kSpecial), byte);
      if (std::isinf(value)) continue;
      EXPECT_EQ(encode(value, element), byte);
      if (value == 0) continue;
      EXPECT_EQ(encode(std::nextafter(value, 0.0f), element), byte);
      EXPECT_EQ(encode(std::nextafter(value, 0.0f), element, kRz), byte - 1);
    }
    EXPECT_EQ(decode(layout.largest_code, element), layout.largest);
    EXPECT_EQ(std::ilogb(layout.largest), layout.largest_exponent);
  }
}

TEST(E4m3Format, P02_Edges) {
  const float above = std::nextafter(464.0f, 1e9f);
  expect_codes(Element::kE4M3,
               {{464, 0x7e}, {above, 0x7e}, {kInf, 0x7e}, {-kInf, 0xfe}, {kNan, 0x7f}, {-kNan, 0xff}});
  expect_codes(Element::kE4M3, {{464, 0x7e}, {above, 0x7f}, {-above, 0xff}, {kInf, 0x7f}}, kRne,
               Overflow::kSpecial);
  expect_codes(Element::kE4M3, {{above, 0x7e}, {1e30f, 0x7e}, {kInf, 0x7f}}, kRz, Overflow::kSpecial);
  expect_codes(Element::kE4M3, {{0x1p-10f, 0}, {-0x1p-10f, 0x80}, {std::nextafter(0x1p-10f, 1.0f), 1}});
  EXPECT_EQ(decode(1, Element::kE4M3), 0x1p-9f);
  EXPECT_EQ(decode(8, Element::kE4M3), 0x1p-6f);
  EXPECT_TRUE(std::isnan(decode(0x7f, Element::kE4M3)));
  EXPECT_TRUE(std::isnan(decode(0xff, Element::kE4M3)));
}

TEST(E5m2Format, P02_Edges) {
  expect_codes(Element::kE5M2, {{61439, 0x7b}, {61440, 0x7b}, {-61440, 0xfb}, {kInf, 0x7b}, {kNan, 0x7e}});
  expect_codes(Element::kE5M2, {{61439, 0x7b}, {61440, 0x7c}, {-61440, 0xfc}, {kInf, 0x7c}}, kRne,
               Overflow::kSpecial);
  expect_codes(Element::kE5M2, {{1e30f, 0x7b}, {-kInf, 0xfc}}, kRz, Overflow::kSpecial);
  EXPECT_EQ(decode(0x7c, Element::kE5M2), kInf);
  EXPECT_EQ(decode(0xfc, Element::kE5M2), -kInf);
  EXPECT_EQ(decode(1, Element::kE5M2), 0x1p-16f);
  EXPECT_EQ(decode(4, Element::kE5M2), 0x1p-14f);
}

TEST(MxElementFormats, P02_LargestAndSmallest) {
  EXPECT_EQ(decode(0x1f, Element::kE2M3), 7.5f);
  EXPECT_EQ(decode(1, Element::kE2M3), 0.125f);
  EXPECT_EQ(decode(0x1f, Element::kE3M2), 28.0f);
  EXPECT_EQ(decode(1, Element::kE3M2), 0.0625f);
  expect_codes(Element::kE2M3, {{kNan, 0x1f}, {-kInf, 0x3f}, {100, 0x1f}, {-0.0625f, 0x20}, {0.1875f, 2}});
  expect_codes(Element::kE3M2, {{kNan, 0x1f}, {-kInf, 0x3f}, {100, 0x1f}, {-0.03125f, 0x20}, {26, 0x1e}});
}

TEST(E8m0Format, P03_CodesArePowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(decode_e8m0(byte), std::ldexp(1.0f, code - 127));
    EXPECT_EQ(inverse_e8m0(byte), std::ldexp(1.0f, 127 - code));
    EXPECT_EQ(encode_e8m0(decode_e8m0(byte), PowerRounding::kUp), code);
    EXPECT_EQ(encode_e8m0(-decode_e8m0(byte), PowerRounding::kTowardZero), code);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
  EXPECT_TRUE(std::isnan(inverse_e8m0(255)));
}

TEST(E8m0Format, P03_RoundsUpByOneCodeOffPowersOfTwo) {
  std::mt19937 generator(3);
  int tried = 0;
  while (tried < 100000) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    if (!(std::abs(x) > 0x1p-127f && std::abs(x) < 0x1p127f)) continue;
    int exponent;
    const bool power = std::abs(std::frexp(x, &exponent)) == 0.5f;
    ASSERT_EQ(encode_e8m0(x, PowerRounding::kUp),
              encode_e8m0(x, PowerRounding::kTowardZero) + (power ? 0 : 1))
        << std::hexfloat << x;
    ++tried;
  }
}

TEST(E8m0Format, P03_ZeroTinyHugeAndNan) {
  for (const auto rounding : {PowerRounding::kUp, PowerRounding::kTowardZero}) {
    for (const float tiny : {0.0f, -0.0f, 1e-45f, 0x1p-128f, 0x1p-127f})
      EXPECT_EQ(encode_e8m0(tiny, rounding), 0);
    EXPECT_EQ(encode_e8m0(kNan, rounding), 255);
    EXPECT_EQ(encode_e8m0(kInf, rounding), 254);
    EXPECT_EQ(encode_e8m0(kInf, rounding, Overflow::kSpecial), 255);
    EXPECT_EQ(encode_e8m0(0x1p127f, rounding, Overflow::kSpecial), 254);
  }
  EXPECT_EQ(encode_e8m0(kFloatMax, PowerRounding::kTowardZero, Overflow::kSpecial), 254);
  EXPECT_EQ(encode_e8m0(kFloatMax, PowerRounding::kUp), 254);
  EXPECT_EQ(encode_e8m0(kFloatMax, PowerRounding::kUp, Overflow::kSpecial), 255);
}

TEST(E2m1Packing, P05_ElementZeroInTheLowHalfAndOddLengthsRefused) {
  const std::uint8_t codes[] = {1, 2, 15, 8, 7};
  std::uint8_t packed[] = {0xaa, 0xaa, 0xaa};
  EXPECT_TRUE(pack_e2m1(codes, 4, packed));
  EXPECT_EQ(packed[0], 0x21);
  EXPECT_EQ(packed[1], 0x8f);
  EXPECT_FALSE(pack_e2m1(codes, 5, packed));
  EXPECT_EQ(packed[2], 0xaa);
}

// Usable in constant expressions, as the tables of device code need it.
static_assert(encode(4.5f, Element::kE2M1) == 6 && decode(0x7e, Element::kE4M3) == 448.0f);

}  // namespace
}  // namespace tenon::kernels::formats_test
