// Checks of a device's quantizers: values, codes, scales and the operand of the product have the bits of the
// plain reference, in every format.
#include "device_rig.hpp"

#include <tenon/kernels/reference/quantize.hpp>
#include <tenon/ops/quant.hpp>

#include <bit>

namespace tenon::conformance {
namespace {

constexpr std::int64_t kRows = 37, kColumns = 144;  ///< the last blocks of 16 x 16, 32 and 128 are partial

struct Case {
  const char* name;
  ElementFormat element;
  BlockScale scale;
  std::int64_t block_rows, block_columns;
  RoundingMode rounding = RoundingMode::kNearestEven;
  int random_bits = 8;
  bool rotate = false;
  PowerRule power = PowerRule::kRoundUp;
};
constexpr Case kCases[] = {
    {"NVFP4 1x16", ElementFormat::kE2M1, BlockScale::kTwoLevel, 1, 16},
    {"NVFP4 16x16", ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, 16},
    {"NVFP4 1x16, stochastic with 24 bits", ElementFormat::kE2M1, BlockScale::kTwoLevel, 1, 16,
     RoundingMode::kStochastic, 24},
    {"NVFP4 16x1, rotated, stochastic", ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, 1,
     RoundingMode::kStochastic, 8, true},
    {"MXFP4 1x32", ElementFormat::kE2M1, BlockScale::kPower, 1, 32, RoundingMode::kNearestEven, 8, false,
     PowerRule::kFloor},
    {"MXFP6 E3M2 1x32", ElementFormat::kE3M2, BlockScale::kPower, 1, 32},
    {"MXFP8 E4M3 32x1", ElementFormat::kE4M3, BlockScale::kPower, 32, 1},
    {"FP8 E4M3 1x128", ElementFormat::kE4M3, BlockScale::kFloat, 1, 128},
    {"FP8 E4M3 128x128", ElementFormat::kE4M3, BlockScale::kFloat, 128, 128},
    {"FP8 E5M2 per tensor", ElementFormat::kE5M2, BlockScale::kTensor, 1, 16},
};

struct Result {
  Values values, codes, scales;
  float amax = 0, decode = 1;
};

QuantizeSpec spec_of(const Case& c, DType input) {
  QuantizeSpec spec;
  spec.rows = kRows, spec.columns = kColumns;
  spec.input = input;
  spec.element = c.element;
  spec.scale = c.scale;
  spec.power = c.power;
  spec.block_rows = c.block_rows, spec.block_columns = c.block_columns;
  spec.rounding = c.rounding;
  spec.random_bits = c.random_bits;
  spec.rotate = c.rotate;
  return spec;
}

QuantizeDraws draws() {
  QuantizeDraws draws;
  draws.key = random_key(7, "conformance");
  draws.step = 3;
  draws.micro = 1;
  draws.origin_row = draws.origin_column = 32;
  return draws;
}

/// Computed by the reference, one element at a time.
template <class S>
Result expected(const QuantizeSpec& spec, const std::vector<S>& x) {
  const bool down = spec.scale != BlockScale::kTensor && spec.block_rows > spec.block_columns;
  const std::int64_t padded = spec.rotate && down ? (kRows + 15) / 16 * 16 : kRows;
  const bool blocks = spec.scale != BlockScale::kTensor;
  const std::int64_t across = (kColumns + spec.block_columns - 1) / spec.block_columns;
  const std::int64_t count = blocks ? across * ((kRows + spec.block_rows - 1) / spec.block_rows) : 0;
  const QuantizeDraws drawn = draws();
  kernels::QuantizeArgs<S> args;
  args.x = x.data();
  args.rows = kRows, args.columns = args.stride = kColumns;
  args.element = static_cast<kernels::Element>(spec.element);
  args.scaling = static_cast<kernels::Scaling>(spec.scale);
  args.power = static_cast<kernels::PowerRule>(spec.power);
  args.block_rows = spec.block_rows, args.block_columns = spec.block_columns;
  args.stochastic = spec.rounding == RoundingMode::kStochastic;
  args.random_bits = spec.random_bits;
  args.rotate = spec.rotate;
  args.key = drawn.key.words[0] | std::uint64_t{drawn.key.words[1]} << 32;
  args.step = drawn.step, args.micro = drawn.micro;
  args.origin_row = drawn.origin_row, args.origin_column = drawn.origin_column;
  Result result;
  const std::uint32_t largest =
      spec.rotate ? kernels::reference::amax_rotated(x.data(), kRows, kColumns, kColumns, down)
                  : kernels::reference::amax(x.data(), kRows, kColumns, kColumns);
  result.amax = std::bit_cast<float>(largest);
  if (spec.scale == BlockScale::kTensor) args.tensor = kernels::tensor_scale(result.amax, args.element);
  if (spec.scale == BlockScale::kTwoLevel) args.tensor = kernels::two_level_scale(result.amax);
  result.decode = args.tensor.decode;
  std::vector<kernels::Bf16> values(static_cast<std::size_t>(padded * kColumns));
  args.packed = spec.element == ElementFormat::kE2M1;
  args.values = values.data(), args.values_stride = kColumns;
  args.codes_stride = args.packed ? kColumns / 2 : kColumns;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(padded * args.codes_stride));
  args.codes = codes.data();
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(count));
  std::vector<float> float_scales(static_cast<std::size_t>(count));
  args.scales_stride = across;
  if (spec.scale == BlockScale::kFloat)
    args.float_scales = float_scales.data();
  else if (blocks)
    args.scales = scales.data();
  kernels::reference::quantize(args);
  for (const kernels::Bf16 value : values)
    result.values.push_back(static_cast<double>(kernels::to_float(value)));
  result.codes.assign(codes.begin(), codes.end());
  if (spec.scale == BlockScale::kFloat)
    result.scales.assign(float_scales.begin(), float_scales.end());
  else
    result.scales.assign(scales.begin(), scales.end());
  return result;
}

Result found(DeviceRig& rig, const QuantizeSpec& spec, TensorView x) {
  const auto kernel = rig.family<QuantOps>().quantizer(spec);
  const auto bytes = [&](std::size_t count) {
    return count == 0 ? TensorView{} : rig.tensor(DType::kU8, Shape{static_cast<std::int64_t>(count)});
  };
  QuantizeOutput out;
  out.values = rig.tensor(DType::kBF16, Shape{kernel->padded_rows(), kColumns});
  out.codes = bytes(kernel->code_bytes());
  if (spec.scale == BlockScale::kFloat)
    out.scales =
        rig.tensor(DType::kF32, Shape{static_cast<std::int64_t>(kernel->scale_bytes() / sizeof(float))});
  else
    out.scales = bytes(kernel->scale_bytes());
  const TensorView scratch = bytes(kernel->scratch_bytes());
  Result result;
  result.amax = kernel->needs_amax() ? kernel->amax(x, scratch) : 0;
  result.decode = kernel->run(x, result.amax, draws(), out, scratch, nullptr);
  result.values = rig.values(out.values);
  result.codes = rig.values(out.codes);
  if (!out.scales.empty()) result.scales = rig.values(out.scales);
  const TensorView again = rig.tensor(DType::kBF16, out.values.shape);
  kernel->decode(out.codes, out.scales, again);
  if (rig.values(again) != result.values)
    fail("decode() of the codes and scales that run() wrote gives other values than run() did");
  return result;
}

void expect_same(const std::string& what, const char* part, const Values& found, const Values& expected) {
  if (found.size() != expected.size()) {
    fail(fmt::format("{}: {} {}, expected {}", what, found.size(), part, expected.size()));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    fail(fmt::format("{}: {} differ from those of the reference: number {} is {:.9g}, expected {:.9g}", what,
                     part, i, found[i], expected[i]));
  }
}

void quantizes(Subject& subject) {
  DeviceRig rig(subject);
  rig.family<QuantOps>();
  Values numbers = testing::normals(kRows * kColumns, "quantized");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i % 97 == 0) numbers[i] *= 1e4;    // an outlier, whose block loses its small numbers
    if (i / 16 % 23 == 0) numbers[i] = 0;  // blocks of zeros
    if (i % 101 == 7) numbers[i] = -numbers[i] / 1e6;
  }
  for (const Case& c : kCases) {
    for (const DType input : {DType::kF32, DType::kBF16}) {
      const std::string what = fmt::format("{} of {}", c.name, dtype_name(input));
      const TensorView x = rig.tensor(input, Shape{kRows, kColumns});
      testing::write(rig.device(), x, numbers);
      const Values stored = rig.values(x);
      const QuantizeSpec spec = spec_of(c, input);
      Result wanted;
      if (input == DType::kF32) {
        wanted = expected(spec, std::vector<float>(stored.begin(), stored.end()));
      } else {
        std::vector<kernels::Bf16> narrow;
        for (const double value : stored) narrow.push_back(kernels::to_bf16(static_cast<float>(value)));
        wanted = expected(spec, narrow);
      }
      const Result result = found(rig, spec, x);
      if (spec.scale == BlockScale::kTensor || spec.scale == BlockScale::kTwoLevel)
        expect_same(what, "largest magnitudes", {static_cast<double>(result.amax)},
                    {static_cast<double>(wanted.amax)});
      expect_same(what, "decode scales", {static_cast<double>(result.decode)},
                  {static_cast<double>(wanted.decode)});
      expect_same(what, "block scales", result.scales, wanted.scales);
      expect_same(what, "codes", result.codes, wanted.codes);
      expect_same(what, "values", result.values, wanted.values);
    }
  }
}

constexpr Check kDeviceQuantChecks[] = {
    {"device.quantizes", "device/1", "number formats, scales, rounding and draws with the reference's bits",
     quantizes},
};

}  // namespace

std::span<const Check> device_quant_checks() {
  return kDeviceQuantChecks;
}

}  // namespace tenon::conformance
