#include "convert.hpp"

#include <tenon/kernels/bf16.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

namespace tenon::cpu {

using kernels::Bf16;

void refuse_dtype(DType dtype, const char* where) {
  fail_config(std::string("device cpu: ") + where + ": dtype " + std::string(dtype_name(dtype)) +
              " is not supported here; use f32, f64 or, for activations, bf16");
}

void refuse_view(const TensorView& view, DType dtype, std::int64_t elements, const char* where,
                 const char* name) {
  fail_run(std::string("device cpu: ") + where + ": " + name + " is " + std::string(dtype_name(view.dtype)) +
           " " + view.shape.text() + (view.data == nullptr ? " without memory" : "") + ", expected " +
           std::to_string(elements) + " elements of " + std::string(dtype_name(dtype)));
}

namespace {

/// Round to odd: the last bit of the float then keeps that something was cut off, and rounding again is
/// exact.
float to_odd(double value) {
  auto single = static_cast<float>(value);
  if (static_cast<double>(single) != value && !std::isnan(value)) {
    auto bits = std::bit_cast<std::uint32_t>(single);
    if (std::fabs(static_cast<double>(single)) > std::fabs(value)) --bits;
    single = std::bit_cast<float>(bits | 1u);
  }
  return single;
}

/// IEEE binary16, for tensors on their way between replicas.
std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, body = bits & 0x7fffffffu;
  std::uint32_t code = 0;
  if (body > 0x7f800000u) {
    code = 0x7e00u;
  } else if (body >= 0x477ff000u) {
    code = 0x7c00u;  // rounds to 2^16 or beyond
  } else if (body < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves a multiple of 2^-24, the step of subnormals.
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(body) + 0.5f) - 0x3f000000u;
  } else {
    code = (body - 0x38000000u + 0xfffu + ((body >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | code);
}

float from_f16(std::uint16_t code) {
  const std::uint32_t sign = std::uint32_t{code & 0x8000u} << 16, body = code & 0x7fffu;
  if (body >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (body & 0x3ffu) << 13);
  // Thirteen bits up and times 2^112: normals get their exponent, subnormals are exact.
  const float magnitude = std::bit_cast<float>(body << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

void convert_f16(DType from, const void* x, DType to, void* y, std::int64_t n) {
  const bool narrows = to == DType::kF16;
  if (from == to) {
    if (x != y) std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(std::uint16_t));
    return;
  }
  with_storage(narrows ? from : to, "convert", [&](auto tag) {
    using S = typename decltype(tag)::type;
    parallel_for(n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (narrows) {
          const S value = static_cast<const S*>(x)[i];
          float single = 0;
          if constexpr (std::is_same_v<S, double>)
            single = to_odd(value);
          else if constexpr (std::is_same_v<S, Bf16>)
            single = kernels::to_float(value);
          else
            single = value;
          static_cast<std::uint16_t*>(y)[i] = to_f16(single);
        } else {
          const float value = from_f16(static_cast<const std::uint16_t*>(x)[i]);
          if constexpr (std::is_same_v<S, Bf16>)
            static_cast<S*>(y)[i] = kernels::to_bf16(value);
          else
            static_cast<S*>(y)[i] = static_cast<S>(value);
        }
      }
    });
  });
}

}  // namespace

Bf16 round_to_bf16(double value) {
  return kernels::to_bf16(to_odd(value));
}

template <class From, class To>
void convert_block(const Kernels& kernels, const From* x, To* y, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    if (x != y) std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(To));
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Bf16>) {
    kernels.table->convert.f32_to_bf16(x, y, n);
  } else if constexpr (std::is_same_v<From, Bf16> && std::is_same_v<To, float>) {
    kernels.table->convert.bf16_to_f32(x, y, n);
  } else if constexpr (std::is_same_v<To, Bf16>) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = round_to_bf16(x[i]);
  } else if constexpr (std::is_same_v<From, Bf16>) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = kernels::to_float(x[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
  }
}

template void convert_block(const Kernels&, const float*, float*, std::int64_t);
template void convert_block(const Kernels&, const float*, Bf16*, std::int64_t);
template void convert_block(const Kernels&, const float*, double*, std::int64_t);
template void convert_block(const Kernels&, const Bf16*, float*, std::int64_t);
template void convert_block(const Kernels&, const Bf16*, Bf16*, std::int64_t);
template void convert_block(const Kernels&, const Bf16*, double*, std::int64_t);
template void convert_block(const Kernels&, const double*, float*, std::int64_t);
template void convert_block(const Kernels&, const double*, Bf16*, std::int64_t);
template void convert_block(const Kernels&, const double*, double*, std::int64_t);

void convert_array(const Kernels& kernels, DType from, const void* x, DType to, void* y, std::int64_t n) {
  if (from == DType::kF16 || to == DType::kF16) return convert_f16(from, x, to, y, n);
  convert_rows(kernels, from, x, n, to, y, n, 1, n);
}

void convert_rows(const Kernels& kernels, DType from, const void* x, std::int64_t x_stride, DType to, void* y,
                  std::int64_t y_stride, std::int64_t rows, std::int64_t columns) {
  with_storage(from, "convert", [&](auto from_tag) {
    with_storage(to, "convert", [&](auto to_tag) {
      using From = typename decltype(from_tag)::type;
      using To = typename decltype(to_tag)::type;
      const auto* source = static_cast<const From*>(x);
      auto* target = static_cast<To*>(y);
      if (rows == 1 || (x_stride == columns && y_stride == columns)) {
        parallel_for(rows * columns, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
          convert_block(kernels, source + begin, target + begin, end - begin);
        });
        return;
      }
      parallel_for(rows, row_block(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          convert_block(kernels, source + row * x_stride, target + row * y_stride, columns);
      });
    });
  });
}

}  // namespace tenon::cpu
