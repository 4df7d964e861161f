// bf16 is the upper half of f32. A double is converted directly: through f32 it would be rounded twice.
#include "export_weights.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tenon::cli {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t index) {
  T element;
  std::memcpy(&element, bytes.data() + index * sizeof(T), sizeof(T));
  return element;
}

double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? (fraction == 0 ? HUGE_VAL : std::nan(""))
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000u) != 0 ? -size : size;
}

std::uint16_t to_bf16(double value) {
  auto nearest = static_cast<float>(value);
  if (std::isnan(nearest)) return 0x7fc0;
  if (std::isinf(nearest)) {
    if (std::isinf(value)) return std::signbit(value) ? 0xff80 : 0x7f80;
    nearest = std::copysign(std::numeric_limits<float>::max(), nearest);
  }
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  // A float on a tie of bf16 may be the result of rounding: one bit to the side it came from.
  if ((bits & 0xffffu) == 0x8000u && static_cast<double>(nearest) != value) {
    bits += std::abs(value) > std::abs(static_cast<double>(nearest)) ? 1u : -1u;
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

double element(DType from, std::span<const std::byte> bytes, std::size_t index) {
  switch (from) {
    case DType::kF64:
      return load<double>(bytes, index);
    case DType::kF32:
      return load<float>(bytes, index);
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(bytes, index)) << 16);
    default:
      return from_f16(load<std::uint16_t>(bytes, index));
  }
}

bool convertible(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

std::vector<std::byte> convert_elements(DType from, std::span<const std::byte> bytes, double factor,
                                        DType to) {
  const auto count = bytes.size() / static_cast<std::size_t>(dtype_bytes(from, 1));
  std::vector<std::byte> out(count * static_cast<std::size_t>(dtype_bytes(to, 1)));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = element(from, bytes, i) * factor;
    if (to == DType::kBF16) {
      const std::uint16_t rounded = to_bf16(value);
      std::memcpy(out.data() + 2 * i, &rounded, 2);
    } else if (to == DType::kF64) {
      std::memcpy(out.data() + 8 * i, &value, 8);
    } else {
      const auto rounded = static_cast<float>(value);
      std::memcpy(out.data() + 4 * i, &rounded, 4);
    }
  }
  return out;
}

ExportedWeights read_weights(CheckpointReader& reader, const train::StoredWeights& stored,
                             const ExportPlan& plan, std::optional<DType> dtype) {
  for (const ExportedWeight& weight : plan.weights) {
    if (reader.find(stored.tensor(weight.parameter)) == nullptr) {
      fail_config(fmt::format("the model exports a weight '{}' that checkpoint step-{} does not hold",
                              weight.parameter, reader.step()));
    }
  }
  ExportedWeights result;
  StateHasher hasher;
  for (const std::string& parameter : stored.parameters()) {
    const TensorSpec& spec = *reader.find(stored.tensor(parameter));
    const auto named = std::find_if(plan.weights.begin(), plan.weights.end(),
                                    [&](const ExportedWeight& w) { return w.parameter == parameter; });
    const bool renamed = named != plan.weights.end();
    const double factor = renamed ? named->factor : 1;

    std::vector<std::byte> bytes(dtype_bytes(spec.dtype, spec.shape.elements()));
    const TensorView view{bytes.data(), spec.shape, spec.dtype, MemorySpace::kHost};
    reader.read(spec.name, view);
    hasher.add(parameter, view);
    DType to = spec.dtype;
    if (convertible(spec.dtype)) {
      // Scaled f16 is not converted back: f32 holds every product of it.
      to = dtype ? *dtype : spec.dtype == DType::kF16 && factor != 1 ? DType::kF32 : spec.dtype;
      if (to != spec.dtype || factor != 1) bytes = convert_elements(spec.dtype, bytes, factor, to);
    } else if (factor != 1) {
      fail_config(fmt::format("weight '{}' is {} and cannot be scaled", parameter, dtype_name(spec.dtype)));
    }
    result.elements += spec.shape.elements();
    result.memory.push_back(std::move(bytes));
    result.items.push_back({renamed ? named->name : parameter, to, spec.shape, result.memory.back()});
  }
  result.hash = hasher.hex();
  return result;
}

}  // namespace tenon::cli
