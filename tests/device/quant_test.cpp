// Quantizers of the device: one matrix against its parts, threads, kernel sets and stored codes;
// unrepresentable values; the f64 measurement; partial products under scales; binary16. That codes and scales
// are the formats' own is tested beside the kernels.
#include "device_test.hpp"

#include <tenon/ops/quant.hpp>

#include <bit>
#include <limits>

namespace tenon::testing::quant_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Named {
  const char* name;
  QuantizeSpec spec;
};

std::vector<Named> formats() {
  using E = ElementFormat;
  using B = BlockScale;
  constexpr auto kStochastic = RoundingMode::kStochastic;
  return {
      {"nvfp4", {}},
      {"nvfp4 stochastic", {.rounding = kStochastic}},
      {"nvfp4 down", {.block_rows = 16, .block_columns = 1}},
      {"nvfp4 down, rotated, stochastic",
       {.block_rows = 16, .block_columns = 1, .rounding = kStochastic, .rotate = true}},
      {"nvfp4 down, rotated, 24 bits",
       {.block_rows = 16, .block_columns = 1, .rounding = kStochastic, .random_bits = 24, .rotate = true}},
      {"nvfp4 square", {.block_rows = 16, .block_columns = 16}},
      {"nvfp4 square, stochastic", {.block_rows = 16, .block_columns = 16, .rounding = kStochastic}},
      {"nvfp4 four over six", {.four_over_six = true}},
      {"nvfp4 a scale per row", {.line_scale = true}},
      {"nvfp4 a scale per column", {.block_rows = 16, .block_columns = 1, .line_scale = true}},
      {"mxfp4", {.scale = B::kPower, .block_columns = 32}},
      {"mxfp6", {.element = E::kE2M3, .scale = B::kPower, .block_columns = 32}},
      {"mxfp6 wide",
       {.element = E::kE3M2, .scale = B::kPower, .power = PowerRule::kEven, .block_columns = 32}},
      {"mxfp8 down", {.element = E::kE4M3, .scale = B::kPower, .block_rows = 32, .block_columns = 1}},
      {"mxfp8 stochastic",
       {.element = E::kE5M2, .scale = B::kPower, .block_columns = 32, .rounding = kStochastic}},
      {"fp8", {.element = E::kE4M3, .scale = B::kTensor}},
      {"fp8 block", {.element = E::kE4M3, .scale = B::kFloat, .block_columns = 128}},
      {"fp8 block down", {.element = E::kE4M3, .scale = B::kFloat, .block_rows = 128, .block_columns = 1}},
      {"fp8 square", {.element = E::kE4M3, .scale = B::kFloat, .block_rows = 128, .block_columns = 128}},
  };
}

/// A quantizer with memory for all its inputs and outputs.
struct Quantized {
  Quantized(Device& device, QuantizeSpec spec)
      : kernel(device.family<QuantOps>().quantizer(spec)),
        values(device, {kernel->padded_rows(), spec.columns}, DType::kBF16),
        codes(device, {std::int64_t(kernel->code_bytes())}, DType::kU8),
        scales(device, {std::int64_t(kernel->scale_bytes()) / (spec.scale == BlockScale::kFloat ? 4 : 1)},
               spec.scale == BlockScale::kFloat ? DType::kF32 : DType::kU8),
        lines(device, {spec.block_rows > 1 ? spec.columns : spec.rows}, DType::kF32),
        scratch(device, {std::int64_t(kernel->scratch_bytes())}, DType::kU8),
        spec_(spec) {}

  float amax(TensorView x) { return kernel->needs_amax() ? kernel->amax(x, scratch) : 0; }
  float run(TensorView x, float amax, QuantizeDraws draws, QuantizeStats* stats = nullptr) {
    return kernel->run(x, amax, draws, output(), scratch, stats);
  }
  QuantizeOutput output() const {
    return {values, codes, scales, spec_.line_scale ? TensorView(lines) : TensorView{}};
  }
  std::vector<std::byte> all_bytes() const {
    std::vector<std::byte> bytes = values.bytes();
    for (const Owned* owned : {&codes, &scales, &lines}) {
      const auto more = owned->bytes();
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return bytes;
  }

  std::unique_ptr<QuantizeKernel> kernel;
  Owned values, codes, scales, lines, scratch;

 private:
  QuantizeSpec spec_;
};

const QuantizeDraws kDraws{.key = {{0x1234567u, 0x89abcdefu}}, .step = 41, .micro = 3};

/// Values over many binades, with zeros.
std::vector<double> wide_numbers(std::int64_t count, std::string_view purpose, DType dtype) {
  auto values = normals(count, purpose);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i % 97 == 5 ? 0.0 : std::ldexp(values[i], static_cast<int>(i * 31 % 23) - 11);
  return rounded(values, dtype);
}

class Quantizers : public OnEveryChoice {};

// Ragged sizes; the last is so wide that bands are split along columns too.
TEST_P(Quantizers, GiveTheBitsOfThePlainLoopsForAnyNumberOfThreads) {
  // The device that every build has.
  Bench plain("cpu", "reference", 1);
  for (const auto& [name, format] : formats())
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const auto& [rows, columns] : {std::pair{5, 33}, {150, 272}, {33, 2100}}) {
        QuantizeSpec spec = format;
        spec.rows = rows;
        spec.columns = columns;
        spec.input = dtype;
        const auto numbers = wide_numbers(rows * columns, name, dtype);
        const auto result = [&](Device& device, int threads) {
          set_parallel_threads(threads);
          const Owned x(device, {rows, columns}, dtype, numbers);
          Quantized q(device, spec);
          const float scale = q.run(x, q.amax(x), kDraws);
          set_parallel_threads(1);
          return std::pair{q.all_bytes(), std::bit_cast<std::uint32_t>(scale)};
        };
        const auto expected = result(*plain.device, 1);
        EXPECT_EQ(result(device_, 1), expected) << name << " " << rows << "x" << columns;
        EXPECT_EQ(result(device_, 2), expected) << name << " " << rows << "x" << columns;
      }
}

// Draws, blocks and scales are functions of the position: rows quantized separately equal the rows of the
// whole.
TEST_P(Quantizers, PartsGiveTheRowsOfTheWhole) {
  constexpr std::int64_t kRows = 256, kColumns = 96, kCut = 128;
  for (const auto& [name, format] : formats()) {
    if (format.line_scale && format.block_rows > 1) continue;  // a column's scale depends on all rows
    QuantizeSpec spec = format;
    spec.columns = kColumns;
    const auto numbers = wide_numbers(kRows * kColumns, name, DType::kBF16);
    const auto result = [&](std::int64_t begin, std::int64_t end, float amax) {
      spec.rows = end - begin;
      const std::vector<double> part(numbers.begin() + begin * kColumns, numbers.begin() + end * kColumns);
      const Owned x(device_, {spec.rows, kColumns}, DType::kBF16, part);
      Quantized q(device_, spec);
      QuantizeDraws draws = kDraws;
      draws.origin_row = 64 + begin;
      q.run(x, amax, draws);
      return q.values.bytes();
    };
    const auto whole = result(0, kRows, 3000);
    auto parts = result(0, kCut, 3000);
    const auto rest = result(kCut, kRows, 3000);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << name;
  }
}

TEST_P(Quantizers, DecodeStoredCodesToTheValues) {
  for (const auto& [name, format] : formats()) {
    QuantizeSpec spec = format;
    spec.rows = 37;
    spec.columns = 75;
    spec.input = DType::kF32;
    const Owned x(device_, {37, 75}, DType::kF32, wide_numbers(37 * 75, name, DType::kF32));
    Quantized q(device_, spec);
    q.run(x, q.amax(x), kDraws);
    Owned again(device_, {q.kernel->padded_rows(), 75}, DType::kBF16);
    q.kernel->decode(q.codes, q.scales, again);
    EXPECT_EQ(again.bytes(), q.values.bytes()) << name;
  }
}

// Also in the last column and row, so that a missed end shows.
TEST_P(Quantizers, ShowElementsThatAreNotFinite) {
  for (const auto& [name, format] : formats())
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const double bad : {std::nan(""), double{kInfinity}, -double{kInfinity}})
        for (const std::size_t at : {std::size_t{0}, std::size_t{34 * 75 - 1}}) {
          QuantizeSpec spec = format;
          spec.rows = 34;
          spec.columns = 75;
          spec.input = dtype;
          auto numbers = wide_numbers(34 * 75, name, dtype);
          Quantized q(device_, spec);
          Owned x(device_, {34, 75}, dtype, numbers);
          EXPECT_TRUE(std::isfinite(q.run(x, q.amax(x), kDraws))) << name;
          numbers[at] = bad;
          x.fill(numbers);
          const float amax = q.amax(x);
          EXPECT_FALSE(q.kernel->needs_amax() && std::isfinite(amax)) << name;
          EXPECT_TRUE(std::isnan(q.run(x, amax, kDraws))) << name << " " << bad << " at " << at;
        }
}

TEST_P(Quantizers, EveryLineHasItsOwnScale) {
  constexpr std::int64_t kRows = 32, kColumns = 48;
  const auto numbers = wide_numbers(kRows * kColumns, "lines", DType::kF32);
  for (const bool down : {false, true}) {
    QuantizeSpec spec{.rows = kRows, .columns = kColumns, .input = DType::kF32, .line_scale = true};
    if (down) std::swap(spec.block_rows, spec.block_columns);
    Quantized q(device_, spec);
    EXPECT_FALSE(q.kernel->needs_amax());
    EXPECT_EQ(q.run(Owned(device_, {kRows, kColumns}, DType::kF32, numbers), 0, kDraws), 1.0f);
    const auto values = q.values.values(), lines = q.lines.values();
    for (std::int64_t line = 0; line < (down ? kColumns : kRows); ++line) {
      const std::int64_t length = down ? kRows : kColumns;
      const auto place = [&](std::int64_t e) {
        return static_cast<std::size_t>(down ? e * kColumns + line : line * kColumns + e);
      };
      std::vector<double> alone;
      for (std::int64_t e = 0; e < length; ++e) alone.push_back(numbers[place(e)]);
      Quantized one(device_, {.rows = 1, .columns = length, .input = DType::kF32});
      const Owned x(device_, {1, length}, DType::kF32, alone);
      EXPECT_EQ(one.run(x, one.amax(x), kDraws), static_cast<float>(lines[line]));
      const auto expected = one.values.values();
      for (std::int64_t e = 0; e < length; ++e) EXPECT_EQ(values[place(e)], expected[e]) << line << " " << e;
    }
  }
}

// Against sums over the output of decode(); with rows that rotation adds, only figures that do not need the
// rotated matrix itself.
TEST_P(Quantizers, MeasureWhatTheyDid) {
  constexpr std::int64_t kRows = 45, kColumns = 61;
  for (const auto& [name, format] : formats()) {
    if (format.rotate) continue;
    QuantizeSpec spec = format;
    spec.rows = kRows;
    spec.columns = kColumns;
    spec.input = DType::kF32;
    const auto numbers = wide_numbers(kRows * kColumns, name, DType::kF32);
    const Owned x(device_, {kRows, kColumns}, DType::kF32, numbers);
    Quantized q(device_, spec);
    QuantizeStats stats, alone;
    const float scale = q.run(x, q.amax(x), kDraws, &stats);
    q.kernel->run(x, q.amax(x), kDraws, {q.values, {}, {}, {}}, q.scratch, &alone);
    EXPECT_EQ(std::memcmp(&stats, &alone, sizeof stats), 0) << name << ": without stored scales";
    const auto values = q.values.values(), lines = q.lines.values(), scales = q.scales.values();
    double amax = 0, signal = 0, noise = 0, relative = 0;
    int non_zero = 0, underflow = 0;
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j) {
        const std::size_t at = i * kColumns + j;
        double decoded = values[at] * scale;
        if (spec.line_scale) decoded *= lines[spec.block_rows > 1 ? j : i];
        if (spec.scale == BlockScale::kFloat) {
          const std::int64_t across = (kColumns + spec.block_columns - 1) / spec.block_columns;
          decoded *= scales[i / spec.block_rows * across + j / spec.block_columns];
        }
        const double value = numbers[at], error = std::abs(decoded - value);
        amax = std::max(amax, std::abs(value));
        signal += value * value;
        noise += error * error;
        if (value == 0) continue;
        ++non_zero;
        relative += error / std::abs(value);
        underflow += decoded == 0 ? 1 : 0;
      }
    EXPECT_EQ(stats.amax, amax) << name;
    // Sums of 2745 non-negative terms in two orders differ by less than 2745 roundings.
    const double bound = 2745 * 0x1p-52;
    EXPECT_NEAR(stats.signal / signal, 1, bound) << name;
    EXPECT_NEAR(stats.noise / noise, 1, bound) << name;
    EXPECT_NEAR(stats.relative_error / (relative / non_zero), 1, bound) << name;
    EXPECT_DOUBLE_EQ(stats.underflow, double(underflow) / non_zero) << name;
    EXPECT_GT(stats.noise, 0) << name;
    EXPECT_LT(stats.noise, signal / 20) << name;
    EXPECT_LE(stats.scale_min, stats.scale_max) << name;
    EXPECT_GT(stats.scale_min, 0) << name;
  }
}

// Rotation keeps the sum of squares but for rounding to bf16, 2^-8 of each element; errors are of the rotated
// matrix.
TEST_P(Quantizers, MeasureTheRotatedMatrix) {
  QuantizeSpec spec{.rows = 50, .columns = 64, .block_rows = 16, .block_columns = 1, .rotate = true};
  const auto numbers = wide_numbers(50 * 64, "rotated", DType::kBF16);
  const Owned x(device_, {50, 64}, DType::kBF16, numbers);
  Quantized q(device_, spec);
  QuantizeStats stats;
  const float amax = q.amax(x);
  q.run(x, amax, kDraws, &stats);
  double signal = 0;
  for (const double value : numbers) signal += value * value;
  EXPECT_EQ(stats.amax, amax);
  EXPECT_NEAR(stats.signal / signal, 1, 0x1p-7);
  EXPECT_LT(stats.noise, signal / 20);
}

// Three of 32 elements exceed the range of the block's power of two (floor of 7 / 4 is 1, so 6 is the most),
// one is lost; the block of zeros does not affect the scales' extremes.
TEST_P(Quantizers, CountSaturationAndUnderflow) {
  std::vector<double> numbers(64, 0.0);
  numbers[0] = 7;
  numbers[1] = -6.5;
  numbers[2] = 6.25;
  numbers[3] = 6;
  numbers[4] = 0.1;
  const Owned x(device_, {1, 64}, DType::kF32, numbers);
  Quantized q(device_, {.rows = 1,
                        .columns = 64,
                        .input = DType::kF32,
                        .scale = BlockScale::kPower,
                        .power = PowerRule::kFloor,
                        .block_columns = 32});
  QuantizeStats stats;
  q.run(x, 0, kDraws, &stats);
  EXPECT_EQ(stats.saturated, 3.0 / 64);
  EXPECT_EQ(stats.underflow, 1.0 / 5);
  EXPECT_EQ(stats.scale_max, 1.0);
  EXPECT_EQ(stats.scale_min, 0x1p-127);
}

// Integers and powers of two: every product is exact.
TEST_P(Quantizers, ScaleProductsByBlocks) {
  auto& ops = device_.family<QuantOps>();
  constexpr std::int64_t kRows = 70, kColumns = 301;
  const auto p = integers(kRows * kColumns, 100, "p"), before = integers(kRows * kColumns, 50, "c");
  const auto scale_of = [](std::int64_t block, int factor) {
    return std::ldexp(factor, static_cast<int>(block % 5) - 2);
  };
  /// As a row of a matrix of scales, or as its column 2 of 5.
  const auto scales = [&](std::int64_t extent, std::int64_t lines, bool column, int factor) {
    const std::int64_t step = column ? 5 : 1, first = column ? 2 : 0;
    std::vector<double> values((extent + lines - 1) / lines * step, 1e9);
    for (std::int64_t block = 0; block * lines < extent; ++block)
      values[first + block * step] = scale_of(block, factor);
    return std::pair(values, ProductScales{{}, lines, first, step});
  };
  for (const auto& [a_rows, b_rows] : {std::pair{1, 1}, {1, 128}, {128, 1}, {16, 7}}) {
    for (const bool column : {false, true}) {
      for (const bool accumulate : {false, true}) {
        auto [a_values, a] = scales(kRows, a_rows, column, 1);
        auto [b_values, b] = scales(kColumns, b_rows, column, 3);
        const Owned a_scales(device_, {std::int64_t(a_values.size())}, DType::kF32, a_values);
        const Owned b_scales(device_, {std::int64_t(b_values.size())}, DType::kF32, b_values);
        a.scales = a_scales, b.scales = b_scales;
        const Owned c(device_, {kRows, kColumns}, DType::kF32, before);
        ops.scale_product(Owned(device_, {kRows, kColumns}, DType::kF32, p), a, b, c, accumulate);
        const auto found = c.values();
        for (std::int64_t at = 0; at < kRows * kColumns; ++at) {
          const double scale = scale_of(at / kColumns / a_rows, 1) * scale_of(at % kColumns / b_rows, 3);
          const std::size_t i = at;
          ASSERT_EQ(found[i], scale * p[i] + (accumulate ? before[i] : 0)) << at;
        }
      }
    }
  }
}

TEST_P(Quantizers, ScaleProductsWithoutScales) {
  auto& ops = device_.family<QuantOps>();
  const auto p = integers(6, 100, "p");
  const Owned c(device_, {2, 3}, DType::kF32, std::vector<double>(6, 0)),
      b(device_, {3}, DType::kF32, {1, 2, 4});
  ops.scale_product(Owned(device_, {2, 3}, DType::kF32, p), {}, {}, c, false);
  EXPECT_EQ(c.values(), p);
  ops.scale_product(Owned(device_, {2, 3}, DType::kF32, p), {}, {b}, c, false);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(c.values()[i], p[i] * (1 << i % 3));
  EXPECT_THROW(ops.scale_product(Owned(device_, {2, 3}, DType::kF32, p), {}, {b, 1, 1}, c, false), Error)
      << "beyond the last scale";
}

/// Nearest multiple of the format's step, ties to even (the default rounding mode), in double.
float half_in_double(float x) {
  if (std::isnan(x) || std::isinf(x)) return x;
  const int exponent = std::max(x == 0 ? -100 : std::ilogb(x), -14);
  const double step = std::ldexp(1, exponent - 10), rounded = std::nearbyint(x / step) * step;
  return std::abs(rounded) > 65504 ? std::copysign(kInfinity, x)
                                   : static_cast<float>(std::copysign(rounded, x));
}

// Edges, their neighbours, and a walk through all bit patterns in steps of a prime.
TEST_P(Quantizers, RoundToBinary16) {
  std::vector<float> inputs;
  for (const float edge : {0.0f, 0x1p-25f, 0x1.8p-24f, 0x1p-24f, 0x1p-14f, 0x1.ffcp-15f, 0x1.ffap-15f, 1.0f,
                           0x1.002p0f, 0x1.006p0f, 65504.0f, 65520.0f, 65536.0f, 3e38f, kInfinity})
    for (const float x : {edge, std::nextafter(edge, 0.0f), std::nextafter(edge, kInfinity)}) {
      inputs.push_back(x);
      inputs.push_back(-x);
    }
  inputs.push_back(std::nanf(""));
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 8191)
    inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  Owned x(device_, {std::int64_t(inputs.size())}, DType::kF32);
  x.put(inputs);
  const auto counts = device_.family<QuantOps>().round_to_f16(x, x);
  const std::vector<float> found = x.elements<float>();
  std::int64_t overflow = 0, underflow = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float expected = half_in_double(inputs[i]);
    overflow += std::isinf(expected) && !std::isinf(inputs[i]) ? 1 : 0;
    underflow += expected == 0 && inputs[i] != 0 ? 1 : 0;
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(found[i])) << i;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected)) << inputs[i];
  }
  EXPECT_EQ(counts.overflow, overflow);
  EXPECT_EQ(counts.underflow, underflow);
  EXPECT_GT(overflow, 0);
  EXPECT_GT(underflow, 0);
}

INSTANTIATE_TEST_SUITE_P(Device, Quantizers, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::quant_test
