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

Bf16 round_to_bf16(double value) {
  auto single = static_cast<float>(value);
  // Round to odd first: the last bit of the float then keeps that something was cut off, and rounding again
  // is exact.
  if (static_cast<double>(single) != value && !std::isnan(value)) {
    auto bits = std::bit_cast<std::uint32_t>(single);
    if (std::fabs(static_cast<double>(single)) > std::fabs(value)) --bits;
    single = std::bit_cast<float>(bits | 1u);
  }
  return kernels::to_bf16(single);
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
