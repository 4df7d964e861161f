// For tests: tensors of any dtype that has values, on any device, as vectors of double; a complex number is
// two.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tenon::testing {

/// bfloat16 bits to float, and back with round to nearest, ties to even.
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Calls visit(T{}) with the element type of a dtype, for complex ones that of a component; bf16 is passed as
/// std::uint16_t, which the caller must distinguish.
template <typename Visit>
void with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kF32:
    case DType::kC64:
      return visit(float{});
    case DType::kF64:
    case DType::kC128:
      return visit(double{});
    case DType::kI32:
      return visit(std::int32_t{});
    case DType::kI64:
      return visit(std::int64_t{});
    case DType::kU8:
      return visit(std::uint8_t{});
    case DType::kBF16:
      return visit(std::uint16_t{});
    default:
      fail_run("tests read and write f32, f64, bf16, c64, c128, i32, i64 and u8, not " +
               std::string(dtype_name(dtype)));
  }
}

/// Elements of packed bytes as double.
inline std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> values;
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    values.resize(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        values[i] = from_bf16(element);
      } else {
        values[i] = static_cast<double>(element);
      }
    }
  });
  return values;
}

inline std::vector<double> read(Device& device, TensorView view) {
  if (view.empty()) return {};
  std::vector<std::byte> bytes(view.bytes());
  device.copy(view, {bytes.data(), view.shape, view.dtype, MemorySpace::kHost});
  device.synchronize();
  return to_doubles(view.dtype, bytes);
}

/// Rounds each value to the tensor's dtype.
inline void write(Device& device, TensorView view, std::span<const double> values) {
  if (static_cast<std::int64_t>(values.size()) != view.elements() * (dtype_is_complex(view.dtype) ? 2 : 1)) {
    fail_run("test data: " + std::to_string(values.size()) + " values for a tensor " + view.shape.text());
  }
  if (view.elements() == 0) return;
  std::vector<std::byte> bytes(view.bytes());
  with_element(view.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        element = to_bf16(static_cast<float>(values[i]));
      } else {
        element = static_cast<T>(values[i]);
      }
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  device.copy({bytes.data(), view.shape, view.dtype, MemorySpace::kHost}, view);
  device.synchronize();
}

/// Reproducible test data: standard normal numbers, and integers in [0, bound).
inline std::vector<double> normals(std::int64_t count, std::string_view purpose) {
  std::vector<double> values(count);
  const RandomKey key = random_key(20, purpose);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, 0, i);
  return values;
}
inline std::vector<double> integers(std::int64_t count, std::uint64_t bound, std::string_view purpose) {
  std::vector<double> values(count);
  const RandomKey key = random_key(21, purpose);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(random_below(key, 0, i, bound));
  return values;
}

/// Largest difference, relative to the largest element of `expected` (absolute where that is zero). Infinite
/// for different sizes or anything that is not finite.
inline double relative_error(std::span<const double> found, std::span<const double> expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(found[i] - expected[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
    scale = std::max(scale, std::abs(expected[i]));
  }
  return scale == 0 ? worst : worst / scale;
}

}  // namespace tenon::testing
