// Quantizers of the CUDA device on the host: every bit of the plain reference's and of the best vector set's,
// in both orders of blocks and threads, and no byte beyond. Formats, blocks, roundings, rotation, ragged
// ends, strides, origins, and data that reach every branch.
#include <tenon/kernels/cuda/quantize_start.hpp>

#include "../src/quantizing.hpp"

namespace tenon::kernels::quantize_test {
namespace {

using namespace testing;
using cuda::LaunchOrder;

struct Size {
  std::int64_t rows, columns;
};
// The last but one has more columns than any tile, and more rows than a tile of rows.
constexpr Size kSizes[] = {{1, 1}, {16, 16}, {37, 53}, {3, 2100}, {131, 301}};

std::vector<Format> formats() {
  using E = Element;
  using C = Scaling;
  std::vector<Format> all;
  const auto add = [&](E element, C scaling, std::initializer_list<Size> blocks,
                       PowerRule power = PowerRule::kRoundUp) {
    for (const auto& [rows, columns] : blocks) all.push_back({element, scaling, rows, columns, power});
  };
  add(E::kE2M1, C::kTwoLevel, {{1, 16}, {16, 1}, {16, 16}});
  // With tiles, and without: odd extents, too few rows, blocks of more rows than columns.
  add(E::kE2M1, C::kPower, {{1, 32}, {32, 1}, {16, 1}, {1, 8}, {1, 5}, {7, 1}, {7, 3}, {32, 16}, {1, 4096}});
  for (const E element : {E::kE4M3, E::kE5M2}) {
    add(element, C::kTensor, {{1, 16}});
    add(element, C::kPower, {{1, 32}, {32, 1}, {32, 32}});
    add(element, C::kFloat, {{1, 128}, {128, 1}, {128, 128}});
  }
  for (const PowerRule power : {PowerRule::kFloor, PowerRule::kCeil, PowerRule::kEven})
    add(E::kE2M1, C::kPower, {{1, 32}, {32, 1}}, power);
  add(E::kE2M3, C::kPower, {{1, 32}, {4, 64}});
  add(E::kE3M2, C::kPower, {{32, 1}, {64, 8}});
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
  for (const Format& format : {kNvfp4, kNvfp4Down, kNvfp4Square}) {
    all.push_back(format);
    all.back().four_over_six = true;
  }
  return all;
}

std::string text(const Format& f, Size size) {
  return "element " + std::to_string(int(f.element)) + " scaling " + std::to_string(int(f.scaling)) +
         " rule " + std::to_string(int(f.power)) + " block " + std::to_string(f.block_rows) + "x" +
         std::to_string(f.block_columns) + (f.rotate ? " rotated" : "") +
         (f.stochastic ? " bits " + std::to_string(f.random_bits) : "") + (f.four_over_six ? " 4/6" : "") +
         " of " + std::to_string(size.rows) + "x" + std::to_string(size.columns);
}

/// Many binades; quarters up to 6, so that scaled elements are ties; other values of a float; one infinity or
/// NaN among the first.
enum class Data { kWide, kTies, kSpecial, kInfinite, kNan };

template <class S>
std::vector<S> numbers(std::size_t n, Data data, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  constexpr float kSpecial[] = {0.0f,  -0.0f,        0x1p-149f, -0x1p-130f, 0x1p-126f,
                                3e38f, -0x1.fep127f, 1.0f,      448.0f,     -0x1.000002p0f};
  std::vector<S> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto draw = static_cast<int>(generator() % 64);
    float x = std::ldexp(normal(generator), draw % 24 - 12);
    if (data == Data::kTies) x = i % 16 == 3 ? 6.0f : static_cast<float>(draw % 49 - 24) / 4;
    if (data == Data::kSpecial && draw < 32) x = kSpecial[generator() % std::size(kSpecial)];
    values[i] = reference::put<S>(x);
  }
  if (data == Data::kInfinite) values[n - 1] = reference::put<S>(-HUGE_VALF);
  if (data == Data::kNan) values[n / 2] = reference::put<S>(std::nanf(""));
  return values;
}

/// All written bytes, each row followed by bytes that must not change.
struct Written {
  std::vector<std::uint8_t> codes, scales;
  std::vector<float> float_scales;
  std::vector<Bf16> values, decoded;
  std::uint32_t magnitude = 0, amax = 0;
};

/// The functions of one kernel set, or these bodies in one order.
template <class S>
struct Set {
  std::string name;
  const QuantizeOps<S>* ops = nullptr;
  LaunchOrder order = LaunchOrder::kAscending;

  auto launch() const {
    return [order = order](const cuda::Grid& grid, const auto& body) {
      cuda::launch_on_host(grid, body, order);
    };
  }
  std::uint32_t amax(const QuantizeArgs<S>& a, bool down) const {
    if (ops != nullptr && a.rotate) return ops->amax_rotated(a.x, a.rows, a.columns, a.stride, down);
    if (ops != nullptr) return ops->amax(a.x, a.rows, a.columns, a.stride);
    std::uint32_t largest = 0;
    cuda::start_largest<S>({a.x, a.rows, a.columns, a.stride, a.rotate, a.rotate && down}, &largest,
                           launch());
    return largest;
  }
  void quantize(const QuantizeArgs<S>& a) const {
    ops != nullptr ? ops->quantize(a) : cuda::start_quantize(a, launch());
  }
  void dequantize(const QuantizeArgs<S>& a) const {
    ops != nullptr ? ops->dequantize(a) : cuda::start_dequantize(a, launch());
  }
};

template <class S>
std::vector<Set<S>> found_sets() {
  return {{"ascending", nullptr, LaunchOrder::kAscending}, {"descending", nullptr, LaunchOrder::kDescending}};
}
template <class S>
std::vector<Set<S>> expected_sets() {
  return {{"reference", &quantize_ops<S>(reference_kernels())},
          {"best", &quantize_ops<S>(*select_kernels("auto", detect_cpu_features()))}};
}

template <class S>
Written write(const Set<S>& set, const Format& f, const std::vector<S>& x, Size size, bool packed,
              std::int64_t gap, const TensorScale* lines = nullptr) {
  Written out;
  QuantizeArgs<S> a;
  a.x = x.data();
  a.rows = size.rows, a.columns = size.columns, a.stride = size.columns + gap;
  a.element = f.element, a.scaling = f.scaling, a.power = f.power;
  a.block_rows = f.block_rows, a.block_columns = f.block_columns;
  a.stochastic = f.stochastic, a.random_bits = f.random_bits;
  a.rotate = f.rotate, a.four_over_six = f.four_over_six;
  a.key = f.key, a.step = f.step, a.micro = f.micro;
  a.origin_row = f.origin_row, a.origin_column = f.origin_column;
  out.amax = set.amax(a, f.down());
  a.tensor = scale_for(f, std::bit_cast<float>(out.amax));
  a.lines = lines;
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
  a.values = out.values.data();
  a.codes = out.codes.data();
  a.scales = f.scaling == Scaling::kTwoLevel || f.scaling == Scaling::kPower ? out.scales.data() : nullptr;
  a.float_scales = f.scaling == Scaling::kFloat ? out.float_scales.data() : nullptr;
  a.magnitude = &out.magnitude;
  set.quantize(a);
  a.rows = rows;
  a.values = out.decoded.data();
  set.dequantize(a);
  return out;
}

void expect_same(const Written& found, const Written& expected, const std::string& what) {
  ASSERT_EQ(found.amax, expected.amax) << what;
  ASSERT_EQ(found.scales, expected.scales) << what;
  ASSERT_TRUE(same_bits(found.float_scales, expected.float_scales)) << what;
  ASSERT_EQ(found.codes, expected.codes) << what;
  ASSERT_TRUE(same_bits(found.values, expected.values)) << what;
  ASSERT_TRUE(same_bits(found.decoded, expected.decoded)) << what;
  ASSERT_EQ(found.magnitude, expected.magnitude) << what;
}

template <class S>
class CudaQuantize : public ::testing::Test {};
using Storages = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(CudaQuantize, Storages);

TYPED_TEST(CudaQuantize, GivesTheBitsOfTheHostsSets) {
  using S = TypeParam;
  unsigned seed = 0;
  for (Format f : formats())
    for (const Size& size : kSizes)
      for (const Data data : {Data::kWide, Data::kTies, Data::kSpecial, Data::kInfinite, Data::kNan}) {
        f.key = 0x0123456789abcdefull * ++seed;
        f.step = seed;
        f.micro = seed % 7;
        f.origin_row = seed % 3 == 0 ? 5 : 64 * (seed % 5);
        f.origin_column = seed % 4 == 0 ? 7 : 16 * (seed % 5);
        const bool packed = f.element == Element::kE2M1 && seed % 2 == 0;
        // Without gaps runs are moved at once, if columns allow it.
        const std::int64_t gap = seed % 3 == 1 ? 0 : seed % 3 == 2 ? 5 : 8;
        const auto x = numbers<S>(static_cast<std::size_t>(size.rows * (size.columns + gap)), data, seed);
        for (const Set<S>& expected : expected_sets<S>()) {
          const Written of_host = write(expected, f, x, size, packed, gap);
          for (const Set<S>& set : found_sets<S>()) {
            expect_same(write(set, f, x, size, packed, gap), of_host,
                        set.name + " against " + expected.name + ", " + text(f, size) + " data " +
                            std::to_string(int(data)));
            if (this->HasFatalFailure()) return;
          }
          if (size.rows * size.columns > 10000 || f.rotate) break;
        }
      }
}

TYPED_TEST(CudaQuantize, LinesHaveScalesOfTheirOwn) {
  using S = TypeParam;
  for (Format f : {kNvfp4, kNvfp4Down})
    for (const bool rotate : {false, true})
      for (const Size& size : {Size{40, 48}, Size{300, 16}, Size{16, 304}}) {
        f.rotate = rotate;
        const std::size_t n = f.down() ? size.columns : size.rows;
        const auto x = numbers<S>(static_cast<std::size_t>(size.rows * size.columns), Data::kWide, 9);
        std::vector<TensorScale> expected(n);
        const QuantizeOps<S>& ops = quantize_ops<S>(reference_kernels());
        for (std::size_t line = 0; line < n; ++line) {
          const S* const from =
              x.data() + (f.down() ? std::int64_t(line) : std::int64_t(line) * size.columns);
          const std::int64_t rows = f.down() ? size.rows : 1, columns = f.down() ? 1 : size.columns;
          const std::uint32_t bits = rotate ? ops.amax_rotated(from, rows, columns, size.columns, f.down())
                                            : ops.amax(from, rows, columns, size.columns);
          expected[line] = two_level_scale(std::bit_cast<float>(bits));
        }
        const Written of_host = write(expected_sets<S>()[0], f, x, size, true, 0, expected.data());
        for (const Set<S>& set : found_sets<S>()) {
          std::vector<std::uint32_t> largest(n);
          std::vector<TensorScale> scales(n);
          std::vector<float> decode(n);
          cuda::start_largest_of_lines<S>({x.data(), size.rows, size.columns, size.columns, rotate, f.down()},
                                          largest.data(), set.launch());
          set.launch()(cuda::Grid{3}, cuda::LineScales{largest.data(), std::int64_t(n), kScaleTop,
                                                       scales.data(), decode.data()});
          ASSERT_EQ(std::memcmp(scales.data(), expected.data(), n * sizeof(TensorScale)), 0) << text(f, size);
          for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(decode[i], expected[i].decode);
          expect_same(write(set, f, x, size, true, 0, scales.data()), of_host,
                      set.name + " " + text(f, size));
          if (this->HasFatalFailure()) return;
        }
      }
}

// The sums are added in another order than a loop would: terms are positive, so a relative error of 2^-40
// leaves room for all 2^12 additions of each.
TYPED_TEST(CudaQuantize, MeasuresTheSameInBothOrders) {
  using S = TypeParam;
  for (const Format& f : {kNvfp4, kNvfp4Down, kMxfp8, kFp8, kFp8Block}) {
    const Size size = {70, 90};
    const auto x = numbers<S>(static_cast<std::size_t>(size.rows * size.columns), Data::kWide, 21);
    std::vector<cuda::MeasuredPart> found;
    for (const Set<S>& set : found_sets<S>()) {
      Written written = write(set, f, x, size, false, 0);
      QuantizeArgs<S> a;
      a.x = x.data();
      a.rows = size.rows, a.columns = a.stride = a.values_stride = size.columns;
      a.element = f.element, a.scaling = f.scaling;
      a.block_rows = f.block_rows, a.block_columns = f.block_columns;
      a.scales_stride = (size.columns + f.block_columns - 1) / f.block_columns;
      a.tensor = scale_for(f, std::bit_cast<float>(written.amax));
      a.values = written.values.data();
      a.scales = written.scales.data();
      a.float_scales = written.float_scales.data();
      std::vector<cuda::MeasuredPart> parts(cuda::kMostParts);
      cuda::start_measure(a, layout_of(f.element).largest * (1 + 0x1p-20), parts.data(), set.launch());
      found.push_back(parts[0]);
      double signal = 0, noise = 0;
      std::int64_t non_zero = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double value = reference::get(x[i]);
        double decoded = to_float(written.values[i]) * double(a.tensor.decode);
        if (f.scaling == Scaling::kFloat) {
          const std::size_t block =
              i / 90 / static_cast<std::size_t>(f.block_rows) * static_cast<std::size_t>(a.scales_stride) +
              i % 90 / static_cast<std::size_t>(f.block_columns);
          decoded = to_float(written.values[i]) * double(written.float_scales[block]);
        }
        signal += value * value;
        noise += (value - decoded) * (value - decoded);
        non_zero += value != 0;
      }
      EXPECT_NEAR(parts[0].signal, signal, signal * 0x1p-40);
      EXPECT_NEAR(parts[0].noise, noise, noise * 0x1p-40);
      EXPECT_EQ(parts[0].non_zero, non_zero);
      EXPECT_EQ(parts[0].elements, size.rows * size.columns);
      EXPECT_EQ(parts[0].amax, written.amax);
    }
    EXPECT_EQ(std::memcmp(&found[0], &found[1], offsetof(cuda::MeasuredPart, amax)), 0) << text(f, {70, 90});
  }
}

/// All bfloat16 numbers, and as many others of f32: each neighbour of half a step, and bits without pattern.
std::vector<float> many_numbers() {
  std::vector<float> all;
  std::mt19937 generator(3);
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    all.push_back(to_float(Bf16{static_cast<std::uint16_t>(i)}));
    all.push_back(std::bit_cast<float>(i << 16 | 1u));
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(generator())));
  }
  return all;
}

template <Element kElement>
void expect_roundings_of_the_formats() {
  const auto same = [](const cuda::CodedElement& found, std::uint8_t code) {
    const float value = decode(code, kElement);
    return found.code == code && std::memcmp(&found.value, &value, sizeof(value)) == 0;
  };
  for (const float x : many_numbers()) {
    ASSERT_TRUE(same(cuda::round_nearest<kElement>(x), encode(x, kElement)))
        << x << " in element " << int(kElement);
    // Each draw meets every exponent: numbers come by 65536.
    const auto draw = (std::bit_cast<std::uint32_t>(x) >> 16) * 37u;
    for (const std::uint32_t drawn : {0u, 255u, draw, draw + 128})
      ASSERT_TRUE(same(cuda::round_by_byte<kElement>(x, drawn & 0xffu),
                       encode_stochastic8(x, kElement, drawn & 0xffu)))
          << x << " with draw " << (drawn & 0xffu) << " in element " << int(kElement);
  }
}

TEST(CudaQuantizeRounding, GivesTheCodesAndValuesOfTheFormats) {
  expect_roundings_of_the_formats<Element::kE2M1>();
  expect_roundings_of_the_formats<Element::kE2M3>();
  expect_roundings_of_the_formats<Element::kE3M2>();
  expect_roundings_of_the_formats<Element::kE4M3>();
  expect_roundings_of_the_formats<Element::kE5M2>();
}

// Common blocks must not fall back to tiles, or to a thread per block, unnoticed.
TEST(CudaQuantizeLines, ServeTheBlocksOfEveryFormat) {
  struct Case {
    Element element;
    Size block;
    bool rotate;
  };
  const auto nothing = [](const cuda::Grid&, const auto&) {};
  for (const Case& c : {Case{Element::kE2M1, {1, 16}, false},
                        {Element::kE2M1, {16, 1}, false},
                        {Element::kE2M1, {16, 1}, true},
                        {Element::kE2M1, {1, 32}, false},
                        {Element::kE4M3, {1, 32}, false},
                        {Element::kE5M2, {32, 1}, false},
                        {Element::kE4M3, {1, 128}, false}}) {
    QuantizeArgs<Bf16> a;
    a.rows = a.columns = 100;
    a.block_rows = c.block.rows, a.block_columns = c.block.columns, a.rotate = c.rotate;
    cuda::with_element(c.element, [&](auto element) {
      EXPECT_TRUE((cuda::start_lines<Bf16, element()>(a, nothing)))
          << c.block.rows << "x" << c.block.columns << " of element " << int(c.element);
    });
  }
}

TEST(CudaQuantizeTiles, ServeTheBlocksOfEveryFormat) {
  for (const Size& block :
       {Size{1, 16}, {16, 1}, {16, 16}, {1, 32}, {32, 1}, {32, 32}, {1, 128}, {128, 1}, {128, 128}})
    for (const Size& size : {Size{1, 1}, Size{20, 20}, Size{4096, 4096}}) {
      QuantizeArgs<float> a;
      a.rows = size.rows, a.columns = size.columns;
      a.scaling = Scaling::kPower;
      a.block_rows = block.rows, a.block_columns = block.columns;
      const cuda::QuantizeTile tile = cuda::tile_of(a);
      EXPECT_GT(tile.rows, 0) << block.rows << "x" << block.columns;
      EXPECT_EQ(tile.rows % block.rows, 0);
      EXPECT_EQ(tile.columns % block.columns, 0);
      EXPECT_LE(tile.bytes, std::size_t{100} << 10) << "of shared memory, so that two blocks fit a processor";
    }
  QuantizeArgs<float> odd;
  odd.rows = odd.columns = 64;
  odd.block_columns = 24;
  EXPECT_EQ(cuda::tile_of(odd).rows, 0);
}

}  // namespace
}  // namespace tenon::kernels::quantize_test
