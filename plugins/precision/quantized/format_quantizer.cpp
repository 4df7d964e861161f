// Passes requests of interface `tenon.quantizer/1` to the device's quantizers; codes are unpacked and decoded
// here.
#include "policy.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/formats.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::quantized {
namespace {

constexpr std::int64_t kPad = 16;

/// Memory of a device for one tensor.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, DType dtype, const Shape& shape)
      : device_(device), view_{nullptr, shape, dtype, device.space()} {
    view_.data = device.allocate(size());
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { device_.release(view_.data, size()); }
  const TensorView& view() const { return view_; }

 private:
  std::size_t size() const { return view_.bytes(); }
  Device& device_;
  TensorView view_;
};

PowerRule power_rule(std::string_view scale, PowerRule otherwise) {
  if (scale.empty()) return otherwise;
  for (std::size_t i = 0; i < kPowerRules.values.size(); ++i)
    if (scale == kPowerRules.names[i]) return kPowerRules.values[i];
  fail_config("there is no scale rule '" + std::string(scale) + "'; expected floor, ceil, even or rceil");
}

bool float_scales(std::string_view scale, bool otherwise) {
  if (scale == "float") return true;
  if (scale == "power") return false;
  if (scale.empty()) return otherwise;
  fail_config("there is no scale '" + std::string(scale) +
              "' of FP8 blocks; expected float (f32) or power (of two)");
}

class FormatQuantizer final : public Quantizer {
 public:
  FormatQuantizer(std::span<const std::string_view> formats, const Recipe& recipe)
      : formats_(formats), recipe_(recipe) {}

  std::span<const std::string_view> formats() const override { return formats_; }

  QuantizeShape shape(const QuantizeRequest& request) const override {
    const QuantizeSpec spec = spec_for(request);
    QuantizeShape shape;
    shape.rows = padded_rows(spec);
    shape.columns = spec.columns;
    if (spec.scale == BlockScale::kTensor) return shape;
    shape.scale_rows = (shape.rows + spec.block_rows - 1) / spec.block_rows;
    shape.scale_columns = (shape.columns + spec.block_columns - 1) / spec.block_columns;
    shape.scale = spec.scale == BlockScale::kFloat ? DType::kF32 : DType::kU8;
    return shape;
  }

  QuantizeReport run(const QuantizeRequest& request, Device& device, TensorView x, TensorView codes,
                     TensorView block_scales, TensorView dequantized) override {
    const QuantizeSpec spec = spec_for(request);
    const auto kernel = device.family<QuantOps>().quantizer(spec);
    const auto bytes = [](std::size_t count) { return Shape{static_cast<std::int64_t>(count)}; };
    const DeviceMemory packed(device, DType::kU8, bytes(kernel->code_bytes())),
        scratch(device, DType::kU8, bytes(kernel->scratch_bytes())),
        values(device, DType::kBF16, {kernel->padded_rows(), spec.columns});
    QuantizeOutput out;
    out.codes = packed.view();
    out.values = values.view();  // measured against the input
    out.scales = block_scales;
    const float amax = kernel->amax(x, scratch.view());
    QuantizeDraws draws;
    draws.key = random_key(request.seed, "tenon.quantize");
    QuantizeStats stats;
    QuantizeReport report;
    report.tensor_scale = kernel->run(x, amax, draws, out, scratch.view(), &stats);
    HostStage stored, unpacked, scales, decoded;
    unpack(spec, stored.read(device, out.codes), unpacked.room(codes));
    decode(spec, unpacked.room(codes), scales.read(device, block_scales), report.tensor_scale,
           decoded.room(dequantized));
    unpacked.write(device, codes);
    decoded.write(device, dequantized);
    report.sqnr_db = stats.noise > 0 ? 10 * std::log10(stats.signal / stats.noise) : 0;
    if (stats.noise == 0 && stats.signal > 0) report.sqnr_db = std::numeric_limits<double>::infinity();
    if (!std::isfinite(stats.noise)) report.sqnr_db = std::numeric_limits<double>::quiet_NaN();
    report.mean_relative_error = stats.relative_error;
    report.underflow_fraction = stats.underflow;
    report.saturated_fraction = stats.saturated;
    report.amax = stats.amax;
    report.decision = std::string(format_for(request));
    return report;
  }

 private:
  std::string_view format_for(const QuantizeRequest& request) const {
    if (request.format.empty()) return formats_.front();
    const auto found = std::find(formats_.begin(), formats_.end(), request.format);
    if (found != formats_.end()) return *found;
    std::string names;
    for (const std::string_view name : formats_) names += (names.empty() ? "" : ", ") + std::string(name);
    fail_config("this precision does not round to '" + std::string(request.format) + "'; it offers " + names);
  }

  QuantizeSpec spec_for(const QuantizeRequest& request) const {
    const Format& format = format_of(format_for(request));
    OperandPlan plan;
    plan.format = &format;
    const bool mx = format.scale == BlockScale::kPower && format.block == 32;
    const bool fp8_block = format.scale == BlockScale::kPower && format.block == 128;
    if (!mx && !fp8_block && !request.scale.empty())
      fail_config(
          "format " + std::string(format.name) + " has no scale rule '" + std::string(request.scale) +
          "': rules choose the power of two of MX formats, and float or power the scales of fp8_block");
    if (mx) plan.power = power_rule(request.scale, recipe_.power);
    plan.float_scales = fp8_block ? float_scales(request.scale, recipe_.float_scales) : recipe_.float_scales;
    if (!request.rounding.empty() && request.rounding != "rne" && request.rounding != "sr")
      fail_config("there is no rounding '" + std::string(request.rounding) + "'; expected rne or sr");
    if (request.rounding == "sr") plan.rounding = RoundingMode::kStochastic;
    plan.random_bits = recipe_.random_bits;
    if (!request.transform.empty() && request.transform != "none" && request.transform != "rht16")
      fail_config("there is no transform '" + std::string(request.transform) + "'; expected none or rht16");
    plan.rotate = request.transform == "rht16";
    QuantizeSpec spec = spec_of(plan, Use::kFpropX, request.rows, request.columns, DType::kF32);
    const bool asks = request.block_rows != 0 || request.block_columns != 0;
    if (asks && spec.scale == BlockScale::kTensor)
      fail_config("format " + std::string(format.name) + " has one scale per tensor and no blocks");
    if (request.block_rows != 0) spec.block_rows = request.block_rows;
    if (request.block_columns != 0) spec.block_columns = request.block_columns;
    return spec;
  }

  static std::int64_t padded_rows(const QuantizeSpec& spec) {
    const bool down = spec.rotate && spec.block_rows > spec.block_columns;
    return down ? (spec.rows + kPad - 1) / kPad * kPad : spec.rows;
  }

  /// Unpacks to one code per byte.
  static void unpack(const QuantizeSpec& spec, TensorView stored, TensorView codes) {
    const auto* const from = stored.as<std::uint8_t>();
    auto* const to = codes.as<std::uint8_t>();
    if (spec.element != ElementFormat::kE2M1) {
      std::copy(from, from + codes.elements(), to);
      return;
    }
    const std::int64_t rows = codes.elements() / std::max<std::int64_t>(spec.columns, 1);
    const std::int64_t line = (spec.columns + 1) / 2;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < spec.columns; ++j) {
        const std::uint8_t pair = from[i * line + j / 2];
        to[i * spec.columns + j] = j % 2 != 0 ? pair >> 4 : pair & 15;
      }
    }
  }

  /// (code x block scale) x tensor scale, in f32.
  static void decode(const QuantizeSpec& spec, TensorView codes, TensorView scales, float tensor_scale,
                     TensorView values) {
    const auto element = static_cast<kernels::Element>(spec.element);
    const std::int64_t columns = spec.columns;
    const std::int64_t across =
        spec.scale == BlockScale::kTensor ? 0 : (columns + spec.block_columns - 1) / spec.block_columns;
    for (std::int64_t at = 0; at < codes.elements(); ++at) {
      const std::int64_t i = at / columns, j = at % columns;
      float scale = 1;
      if (across > 0) {
        const std::int64_t block = i / spec.block_rows * across + j / spec.block_columns;
        scale = spec.scale == BlockScale::kFloat ? scales.as<float>()[block]
                : spec.scale == BlockScale::kPower
                    ? kernels::decode_e8m0(scales.as<std::uint8_t>()[block])
                    : kernels::decode(scales.as<std::uint8_t>()[block], kernels::Element::kE4M3);
      }
      values.as<float>()[at] = kernels::decode(codes.as<std::uint8_t>()[at], element) * scale * tensor_scale;
    }
  }

  std::span<const std::string_view> formats_;
  Recipe recipe_;
};

}  // namespace

std::unique_ptr<Quantizer> make_quantizer(std::span<const std::string_view> formats, const Recipe& recipe) {
  return std::make_unique<FormatQuantizer>(formats, recipe);
}

}  // namespace tenon::quantized
