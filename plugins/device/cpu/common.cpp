#include "common.hpp"

#include <tenon/kernels/half.hpp>

#include <cstring>
#include <string>

namespace tenon::device_arguments {

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

// Views of other spaces do not come here: the core stages them.
bool reaches(MemorySpace) {
  return true;
}

const char* device_name() {
  return "cpu";
}

}  // namespace tenon::device_arguments

namespace tenon::cpu {

using kernels::Bf16;
using kernels::Half;

namespace {

void convert_f16(DType from, const void* x, DType to, void* y, std::int64_t n) {
  const bool narrows = to == DType::kF16;
  if (from == to) {
    if (x != y) std::memcpy(y, x, n * sizeof(std::uint16_t));
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
            single = kernels::to_odd(value);
          else
            single = widen(value);
          static_cast<Half*>(y)[i] = kernels::to_half(single);
        } else {
          static_cast<S*>(y)[i] = narrow<S>(kernels::to_float(static_cast<const Half*>(x)[i]));
        }
      }
    });
  });
}

}  // namespace

Bf16 round_to_bf16(double value) {
  return kernels::to_bf16(kernels::to_odd(value));
}

template <class From, class To>
void convert_block(const Kernels& kernels, const From* x, To* y, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    if (x != y) std::memcpy(y, x, n * sizeof(To));
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
