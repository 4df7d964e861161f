// Products of codes.
#include "probe_bench.hpp"
#include "probes.hpp"

#include <tenon/ops/quant.hpp>

namespace tenon::cuda {
namespace {

/// Formats that the GPU's units may read, each with a product of odd rows whose sums f32 holds exactly.
struct CodeFormat {
  const char* name;
  ScaledOperand operand;
};
constexpr CodeFormat kCodeFormats[] = {
    {"fp8", {ElementFormat::kE4M3, BlockScale::kTensor, 1, 1}},
    {"fp8 with a scale per row", {ElementFormat::kE4M3, BlockScale::kFloat, 1, 96}},
    {"mxfp8", {ElementFormat::kE4M3, BlockScale::kPower, 1, 32}},
    {"nvfp4", {ElementFormat::kE2M1, BlockScale::kTwoLevel, 1, 16}}};
constexpr std::int64_t kCodeRows = 33, kCodeColumns = 48, kCodeDepth = 96;

ScaledProductSpec product_of(const CodeFormat& format) {
  ScaledProductSpec spec;
  spec.product = {.m = kCodeRows, .n = kCodeColumns, .k = kCodeDepth, .transpose_b = true};
  spec.a = spec.b = format.operand;
  return spec;
}

/// Rows of codes of 0, +-1 and +-2 under scales of 1 and 2, and the values that they represent.
struct ProbeCodes {
  ScaledMatrix matrix;
  std::vector<double> values;

  ProbeCodes(ProbeBench& bench, const ScaledOperand& operand, std::int64_t rows, int seed)
      : values(static_cast<std::size_t>(rows * kCodeDepth)) {
    const bool fours = operand.element == ElementFormat::kE2M1;
    const std::uint8_t codes_of[] = {0, static_cast<std::uint8_t>(fours ? 2 : 0x38),
                                     static_cast<std::uint8_t>(fours ? 4 : 0x40)};
    const std::int64_t block = operand.scale == BlockScale::kTensor ? kCodeDepth : operand.block_columns;
    const std::int64_t blocks = kCodeDepth / block;
    std::vector<std::uint8_t> codes(values.size() / (fours ? 2 : 1)), bits;
    std::vector<float> floats;
    for (std::int64_t i = 0; i < rows * blocks; ++i) {
      const bool twice = (i * 5 + seed) % 3 == 0 && operand.scale != BlockScale::kTensor;
      floats.push_back(twice ? 2.0f : 1.0f);
      bits.push_back(static_cast<std::uint8_t>(operand.scale == BlockScale::kPower ? (twice ? 128 : 127)
                                                                                   : (twice ? 0x40 : 0x38)));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int pick = (static_cast<int>(i) * 7 + seed) % 5, size = pick % 3;
      const bool negative = pick > 2 && size > 0;
      const int code = codes_of[size] | (negative ? (fours ? 8 : 0x80) : 0);
      codes[fours ? i / 2 : i] |= static_cast<std::uint8_t>(fours && i % 2 != 0 ? code << 4 : code);
      values[i] = size * (negative ? -1.0 : 1.0) * floats[i / static_cast<std::size_t>(block)];
    }
    matrix.codes = bench.copied(codes, DType::kU8);
    if (operand.scale == BlockScale::kFloat) matrix.scales = bench.copied(floats, DType::kF32);
    if (operand.scale == BlockScale::kPower || operand.scale == BlockScale::kTwoLevel)
      matrix.scales = bench.copied(bits, DType::kU8);
  }
};

std::string try_codes(ProbeBench& bench, ScaledProducts& family, const CodeFormat& format) {
  const auto product = family.prepare(product_of(format));
  const ProbeCodes a(bench, format.operand, kCodeRows, 1), b(bench, format.operand, kCodeColumns, 2);
  const TensorView c = bench.room(DType::kF32, {kCodeRows, kCodeColumns}),
                   scratch = bench.room(DType::kU8, {static_cast<std::int64_t>(product->scratch_bytes())});
  product->run(a.matrix, b.matrix, c, {}, 1, scratch);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < kCodeRows; ++i)
    for (std::int64_t j = 0; j < kCodeColumns; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < kCodeDepth; ++l)
        sum += a.values[static_cast<std::size_t>(i * kCodeDepth + l)] *
               b.values[static_cast<std::size_t>(j * kCodeDepth + l)];
      expected.push_back(sum);
    }
  return difference(bench.values(c), expected);
}

}  // namespace

void probe_codes(Device& device, FactReport& report) {
  auto* const family = static_cast<ScaledProducts*>(device.query(ScaledProducts::kId));
  if (family == nullptr) return;
  for (const CodeFormat& format : kCodeFormats) {
    const std::string name = fmt::format("products of codes, {}", format.name);
    guarded(report, name, [&] {
      const std::string reason = family->refusal(product_of(format));
      if (!reason.empty()) return report.fact(name, "none: " + reason);
      run_probe(device, report, name, kEqual,
                [&](ProbeBench& bench) { return try_codes(bench, *family, format); });
    });
  }
}

}  // namespace tenon::cuda
