// The elements of a host tensor as real numbers, for code that looks at values without a device: observers,
// comparisons of checkpoints. Header only; complex numbers are pairs of reals; integers, booleans and packed
// formats have none.
#pragma once

#include <tenon/tensor.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

TENON_ABI_BEGIN

inline float real_of_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// IEEE binary16, subnormals and non-finite values included.
inline float real_of_f16(std::uint16_t bits) noexcept {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VALF : std::nanf("");
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                        : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return sign * magnitude;
}

/// True for the types that for_each_real can read.
inline bool has_real_values(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
    case DType::kF16:
    case DType::kC64:
    case DType::kC128:
      return true;
    default:
      return false;
  }
}

/// Calls use(double) for each real number of a host view in the order of memory; nothing for other types.
template <typename Use>
void for_each_real(const TensorView& view, Use&& use) {
  if (view.empty()) return;
  const std::int64_t n = view.elements();
  const auto walk = [&]<typename T>(const T* values, std::int64_t count, auto convert) {
    for (std::int64_t i = 0; i < count; ++i) use(static_cast<double>(convert(values[i])));
  };
  const auto same = [](auto value) { return value; };
  switch (view.dtype) {
    case DType::kF32:
      return walk(view.as<const float>(), n, same);
    case DType::kF64:
      return walk(view.as<const double>(), n, same);
    case DType::kBF16:
      return walk(view.as<const std::uint16_t>(), n, real_of_bf16);
    case DType::kF16:
      return walk(view.as<const std::uint16_t>(), n, real_of_f16);
    case DType::kC64:
      return walk(view.as<const float>(), 2 * n, same);
    case DType::kC128:
      return walk(view.as<const double>(), 2 * n, same);
    default:
      return;
  }
}

/// Writes real numbers into a host view of f32 or f64 elements, rounding to nearest; `values` has as many as
/// the view.
inline void write_reals(std::span<const double> values, const TensorView& view) noexcept {
  if (view.dtype == DType::kF64) {
    std::copy(values.begin(), values.end(), view.as<double>());
  } else {
    std::transform(values.begin(), values.end(), view.as<float>(),
                   [](double value) { return static_cast<float>(value); });
  }
}

// Buffers whose size differs from step to step: they grow so that a steady step soon allocates nothing, and
// become flat tensors for a communicator.

/// All of `values` as one tensor in host memory, valid until they are resized.
template <typename T>
TensorView flat_view(std::vector<T>& values, DType dtype) {
  TensorView view;
  view.data = values.data();
  view.dtype = dtype;
  view.shape = Shape{static_cast<std::int64_t>(values.size())};
  return view;
}

/// Reserves room for `count` elements; if it must grow, for twice as many, or for `least` if that is more.
template <typename T>
void make_room(std::vector<T>& values, std::size_t count, std::size_t least) {
  if (values.capacity() < count) values.reserve(std::max(2 * count, least));
}

/// resize() with that room.
template <typename T>
void resize_with_room(std::vector<T>& values, std::size_t count, std::size_t least) {
  make_room(values, count, least);
  values.resize(count);
}

TENON_ABI_END
