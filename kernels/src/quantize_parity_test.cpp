// Every kernel set against the reference quantizer, bit for bit, including the bytes that it must not touch:
// formats, blocks, roundings, ragged ends, strides, origins, and data that reach every branch of rounding.
#include "quantizing.hpp"

namespace tenon::kernels::quantize_parity_test {
namespace {

using namespace testing;

struct Size {
  std::int64_t rows, columns;
};
constexpr Size kSizes[] = {{1, 1}, {16, 16}, {17, 37}, {2, 2100}, {131, 301}};

std::vector<Format> formats() {
  using E = Element;
  using C = Scaling;
  std::vector<Format> all;
  const auto add = [&](E element, C scaling, std::initializer_list<Size> blocks,
                       PowerRule power = PowerRule::kRoundUp) {
    for (const auto& [rows, columns] : blocks) all.push_back({element, scaling, rows, columns, power});
  };
  add(E::kE2M1, C::kTwoLevel, {{1, 16}, {16, 1}, {16, 16}});
  add(E::kE2M1, C::kPower, {{1, 32}, {32, 1}, {16, 1}, {1, 5}, {7, 1}, {32, 16}});
  for (const E element : {E::kE4M3, E::kE5M2}) {
    add(element, C::kTensor, {{1, 16}});
    add(element, C::kPower, {{1, 32}, {32, 1}, {32, 32}});
    add(element, C::kFloat, {{1, 128}, {128, 1}, {128, 128}});
  }
  for (const PowerRule power : {PowerRule::kFloor, PowerRule::kCeil, PowerRule::kEven})
    for (const E element : {E::kE2M1, E::kE4M3, E::kE5M2}) add(element, C::kPower, {{1, 32}, {32, 1}}, power);
  add(E::kE2M3, C::kPower, {{1, 32}});
  add(E::kE3M2, C::kPower, {{32, 1}});
  const auto plain = all;
  for (Format format : plain) {
    format.stochastic = true;
    for (const int bits : {8, 24}) {
      format.random_bits = bits;
      if (format.power == PowerRule::kRoundUp) all.push_back(format);
    }
  }
  const auto drawn = all;
  for (Format format : drawn) {
    if (format.block_rows * format.block_columns != 16 || format.scaling == Scaling::kTensor) continue;
    format.rotate = true;
    all.push_back(format);
  }
  all.push_back({.four_over_six = true});
  return all;
}

std::string text(const Format& f) {
  return "element " + std::to_string(int(f.element)) + " scaling " + std::to_string(int(f.scaling)) +
         " rule " + std::to_string(int(f.power)) + " block " + std::to_string(f.block_rows) + "x" +
         std::to_string(f.block_columns) + (f.rotate ? " rotated" : "") +
         (f.stochastic ? " bits " + std::to_string(f.random_bits) : "");
}

/// Kinds of data: many binades; quarters up to 8, so that scaled elements are ties; all values of a float
/// except infinity and NaN; zeros and ones of both signs, whose rotated sums are often zeros of either sign;
/// and the first again with one element that is not finite.
enum class Data { kWide, kTies, kSpecial, kCancelling, kInfinite, kNan };
constexpr Data kData[] = {Data::kWide,       Data::kTies,     Data::kSpecial,
                          Data::kCancelling, Data::kInfinite, Data::kNan};

template <class S>
std::vector<S> numbers(std::size_t n, Data data, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  constexpr float kSpecial[] = {0.0f,   -0.0f,         0x1p-149f,     -0x1p-130f, 0x1p-126f,
                                3e38f,  -0x1.fep127f,  0x1p-20f,      1.0f,       -6.0f,
                                448.0f, 0x1.fffffep3f, -0x1.000002p0f};
  std::vector<S> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto draw = static_cast<int>(generator() % 64);
    float x = std::ldexp(normal(generator), draw % 24 - 12);
    if (data == Data::kTies) x = i % 16 == 3 ? 6.0f : static_cast<float>(draw - 32) / 4;
    if (data == Data::kSpecial && draw < 32) x = kSpecial[generator() % std::size(kSpecial)];
    if (data == Data::kTies && std::abs(x) > 6) x = 0.25f;
    if (data == Data::kCancelling) x = (draw % 2 == 0 ? 0.0f : 1.0f) * (draw % 4 < 2 ? 1.0f : -1.0f);
    values[i] = reference::put<S>(x);
  }
  if (data == Data::kInfinite) values[n - 1] = reference::put<S>(-HUGE_VALF);
  if (data == Data::kNan) values[n / 2] = reference::put<S>(std::nanf(""));
  return values;
}

/// All bytes that quantizing and decoding write, each row followed by bytes that must not change.
template <class S>
struct Written {
  std::vector<std::uint8_t> codes, scales;
  std::vector<float> float_scales;
  std::vector<Bf16> values, decoded;
  std::uint32_t magnitude = 0, amax = 0;
};

/// Results that a call requests.
struct Asked {
  bool packed = false, values = true, codes = true;
  std::int64_t gap = 5;  ///< elements after each row
  float amax = 1;        ///< relative to the largest magnitude of the matrix: below 1, blocks saturate
};

template <class S>
Written<S> write(const KernelTable& set, const Format& f, const std::vector<S>& x, Size size,
                 const Asked& asked) {
  const std::int64_t gap = asked.gap;
  const bool packed = asked.packed;
  Written<S> out;
  const QuantizeOps<S>& ops = quantize_ops<S>(set);
  QuantizeArgs<S> a;
  a.x = x.data();
  a.rows = size.rows;
  a.columns = size.columns;
  a.stride = size.columns + gap;
  a.element = f.element;
  a.scaling = f.scaling;
  a.power = f.power;
  a.block_rows = f.block_rows;
  a.block_columns = f.block_columns;
  a.stochastic = f.stochastic;
  a.random_bits = f.random_bits;
  a.rotate = f.rotate;
  a.four_over_six = f.four_over_six;
  a.key = f.key;
  a.step = f.step;
  a.micro = f.micro;
  a.origin_row = f.origin_row;
  a.origin_column = f.origin_column;
  out.amax = f.rotate ? ops.amax_rotated(a.x, a.rows, a.columns, a.stride, f.down())
                      : ops.amax(a.x, a.rows, a.columns, a.stride);
  a.tensor = scale_for(f, asked.amax * std::bit_cast<float>(out.amax));
  const std::int64_t rows = f.rotate && f.down() ? (size.rows + 15) / 16 * 16 : size.rows;
  const std::int64_t across = (size.columns + f.block_columns - 1) / f.block_columns;
  const std::size_t blocks = (rows + f.block_rows - 1) / f.block_rows * (across + gap);
  a.values_stride = size.columns + gap;
  a.packed = packed;
  a.codes_stride = (packed ? (size.columns + 1) / 2 : size.columns) + gap;
  a.scales_stride = across + gap;
  out.values.assign(rows * a.values_stride, Bf16{0xeeee});
  out.decoded = out.values;
  out.codes.assign(rows * a.codes_stride, 0xee);
  out.scales.assign(blocks, 0xee);
  out.float_scales.assign(blocks, -1.0f);
  a.values = asked.values ? out.values.data() : nullptr;
  a.codes = asked.codes ? out.codes.data() : nullptr;
  a.scales = f.scaling == Scaling::kTwoLevel || f.scaling == Scaling::kPower ? out.scales.data() : nullptr;
  a.float_scales = f.scaling == Scaling::kFloat ? out.float_scales.data() : nullptr;
  a.magnitude = &out.magnitude;
  ops.quantize(a);
  if (!asked.codes) return out;
  a.rows = rows;
  a.values = out.decoded.data();
  ops.dequantize(a);
  return out;
}

template <class S>
class QuantizeParity : public ::testing::Test {};
TYPED_TEST_SUITE(QuantizeParity, Storages);

TYPED_TEST(QuantizeParity, EverySetGivesTheBitsOfTheReference) {
  using S = TypeParam;
  unsigned seed = 0;
  for (Format f : formats())
    for (const Size& size : kSizes)
      for (const Data data : kData) {
        // Random words at places that are no multiple of 16 are drawn, too.
        f.key = 0x0123456789abcdefull * ++seed;
        f.step = seed;
        f.micro = seed % 7;
        f.origin_row = seed % 3 == 0 ? 5 : 64 * (seed % 5);
        f.origin_column = seed % 4 == 0 ? 7 : 16 * (seed % 5);
        const bool packed = f.element == Element::kE2M1 && seed % 2 == 0;
        const auto x = numbers<S>(static_cast<std::size_t>(size.rows * (size.columns + 5)), data, seed);
        const auto expected = write(reference_kernels(), f, x, size, {.packed = packed});
        for (const KernelTable* set : all_sets()) {
          const auto found = write(*set, f, x, size, {.packed = packed});
          ASSERT_EQ(found.amax, expected.amax) << set->name << " " << text(f);
          ASSERT_EQ(found.scales, expected.scales) << set->name << " " << text(f);
          ASSERT_TRUE(same_bits(found.float_scales, expected.float_scales)) << set->name << " " << text(f);
          ASSERT_EQ(found.codes, expected.codes) << set->name << " " << text(f) << " data " << int(data)
                                                 << " " << size.rows << "x" << size.columns;
          ASSERT_TRUE(same_bits(found.values, expected.values))
              << set->name << " " << text(f) << " data " << int(data) << " " << size.rows << "x"
              << size.columns;
          ASSERT_TRUE(same_bits(found.decoded, expected.decoded)) << set->name << " " << text(f);
          ASSERT_EQ(found.magnitude, expected.magnitude) << set->name << " " << text(f);
        }
      }
}

// Training requests only values or only packed codes of NVFP4, of matrices without gaps whose columns fill
// registers; and a scale that is not that of the matrix saturates.
TYPED_TEST(QuantizeParity, Nvfp4WithoutWhatIsNotAskedFor) {
  using S = TypeParam;
  constexpr Size kWhole[] = {{16, 512}, {48, 352}, {33, 304}, {64, 32}};
  unsigned seed = 1000;
  for (const Format& block :
       {kNvfp4, kNvfp4Down, Format{.block_rows = 16, .block_columns = 1, .rotate = true}})
    for (const bool stochastic : {false, true})
      for (const Size& size : kWhole)
        for (const Data data : kData)
          for (const Asked& asked :
               {Asked{.codes = false, .gap = 0}, Asked{.packed = true, .values = false, .gap = 0},
                Asked{.packed = true, .gap = 0, .amax = 0.75f},
                Asked{.codes = false, .gap = 16, .amax = 0.25f}}) {
            Format f = block;
            f.stochastic = stochastic;
            f.key = 0x9e3779b97f4a7c15ull * ++seed;
            f.step = seed;
            f.origin_row = 16 * (seed % 5), f.origin_column = 16 * (seed % 3);
            const auto x =
                numbers<S>(static_cast<std::size_t>(size.rows * (size.columns + asked.gap)), data, seed);
            const auto expected = write(reference_kernels(), f, x, size, asked);
            for (const KernelTable* set : all_sets()) {
              const auto found = write(*set, f, x, size, asked);
              const std::string where = std::string(set->name) + " " + text(f) + " data " +
                                        std::to_string(int(data)) + " " + std::to_string(size.rows) + "x" +
                                        std::to_string(size.columns);
              ASSERT_EQ(found.amax, expected.amax) << where;
              ASSERT_EQ(found.scales, expected.scales) << where;
              ASSERT_EQ(found.codes, expected.codes) << where;
              ASSERT_TRUE(same_bits(found.values, expected.values)) << where;
              ASSERT_TRUE(same_bits(found.decoded, expected.decoded)) << where;
              ASSERT_EQ(found.magnitude, expected.magnitude) << where;
            }
          }
}

// The pass reads in parts: the largest number may be anywhere in them or after the last whole one.
TYPED_TEST(QuantizeParity, LargestMagnitudeWhereverItIs) {
  using S = TypeParam;
  for (const std::int64_t columns : {1, 17, 127, 128, 129, 255, 256, 257, 600})
    for (std::int64_t at = 0; at < columns; at += at < 4 || columns - at < 5 ? 1 : 61) {
      std::vector<S> x(static_cast<std::size_t>(2 * columns + 5), reference::put<S>(1.0f));
      const auto row = x.data() + columns + 5;  // the second of two with a gap
      row[at] = reference::put<S>(-3.0f);
      for (const KernelTable* set : all_sets()) {
        const auto& ops = quantize_ops<S>(*set);
        EXPECT_EQ(std::bit_cast<float>(ops.amax(row, 1, columns, columns)), 3.0f) << set->name << " " << at;
        EXPECT_EQ(std::bit_cast<float>(ops.amax(x.data(), 2, columns, columns + 5)), 3.0f)
            << set->name << " " << at;
      }
    }
}

// All bytes as codes, with all bytes as scales: NaN and infinity too.
TYPED_TEST(QuantizeParity, EverySetDecodesAllCodesUnderAllScales) {
  using S = TypeParam;
  for (const Format& f : formats()) {
    if (f.scaling == Scaling::kFloat || f.stochastic) continue;
    for (const auto& [finite, packed] :
         {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
      if (packed && f.element != Element::kE2M1) continue;
      constexpr std::int64_t kRows = 64, kColumns = 256;
      std::vector<std::uint8_t> codes(kRows * kColumns), scales(kRows * kColumns);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        codes[i] = static_cast<std::uint8_t>(finite ? i % 0x7c : i);
        if (f.element == Element::kE2M1 || f.element == Element::kE2M3 || f.element == Element::kE3M2)
          codes[i] &= packed ? 255 : f.element == Element::kE2M1 ? 15 : 63;
        scales[i] = static_cast<std::uint8_t>(i * 37 % (finite ? 0x7f : 256));
      }
      QuantizeArgs<S> a;
      a.rows = kRows;
      a.columns = a.codes_stride = a.values_stride = a.scales_stride = kColumns;
      a.element = f.element;
      a.scaling = f.scaling;
      a.block_rows = f.block_rows;
      a.block_columns = f.block_columns;
      a.codes = codes.data();
      a.packed = packed;
      a.scales = scales.data();
      const auto decoded = [&](const KernelTable& set) {
        std::vector<Bf16> values(codes.size());
        a.values = values.data();
        quantize_ops<S>(set).dequantize(a);
        return values;
      };
      const auto expected = decoded(reference_kernels());
      for (const KernelTable* set : all_sets())
        ASSERT_TRUE(same_bits(decoded(*set), expected)) << set->name << " " << text(f);
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::quantize_parity_test
