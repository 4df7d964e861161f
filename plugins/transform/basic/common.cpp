#include "common.hpp"

#include <tenon/kernels/half.hpp>
#include <tenon/sdk/bf16.hpp>

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace tenon::transform_basic {
namespace {

/// The nearest float towards zero, with its last bit set unless it is exact. Rounded further to a type of at
/// most 22 bits it gives what rounding `value` itself gives, also below the smallest normal number: that bit
/// says that the value is beyond a tie or not on it.
float towards_odd(double value) noexcept {
  if (std::isnan(value)) return static_cast<float>(value);
  float near = static_cast<float>(value);
  if (static_cast<double>(near) == value) return near;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(near);
  if (std::abs(static_cast<double>(near)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

std::uint16_t bf16_bits(double value) noexcept {
  return std::bit_cast<std::uint16_t>(Bf16(towards_odd(value)));
}

std::uint16_t f16_bits(double value) noexcept {
  return kernels::to_half(towards_odd(value)).bits;
}

}  // namespace

StoredModel& only_source(std::span<StoredModel* const> sources, std::string_view transform) {
  if (sources.size() != 1)
    fail_config(fmt::format("transform {} takes one model, found {}; name one folder in `from`", transform,
                            sources.size()));
  return *sources[0];
}

std::vector<StoredTensor> parameters_of(const StoredModel& source) {
  const std::span<const StoredTensor> parameters = source.parameters();
  return {parameters.begin(), parameters.end()};
}

bool is_floating_point(DType dtype) noexcept {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

double rounded(double value, DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(value);
    case DType::kBF16:
      return static_cast<float>(Bf16(towards_odd(value)));
    case DType::kF16:
      return kernels::to_float(kernels::to_half(towards_odd(value)));
    default:
      return value;
  }
}

void store(std::span<const double> values, const TensorView& view) noexcept {
  const auto put = [&]<typename T>(T* out, auto convert) {
    for (const double value : values) *out++ = convert(value);
  };
  switch (view.dtype) {
    case DType::kF64:
    case DType::kC128:
      return put(view.as<double>(), [](double value) { return value; });
    case DType::kBF16:
      return put(view.as<std::uint16_t>(), bf16_bits);
    case DType::kF16:
      return put(view.as<std::uint16_t>(), f16_bits);
    default:
      return put(view.as<float>(), [](double value) { return static_cast<float>(value); });
  }
}

}  // namespace tenon::transform_basic
