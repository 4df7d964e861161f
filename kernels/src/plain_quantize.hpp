// The reference quantizer as plain functions (defined in reference.cpp), for kernel sets without a faster
// one: files of one instruction set may call functions, but not instantiate templates that others share.
#pragma once

#include <tenon/kernels/quantize.hpp>

namespace tenon::kernels::plain {

std::uint32_t amax(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride);
std::uint32_t amax(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride);
std::uint32_t amax_rotated(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           bool along_rows);
std::uint32_t amax_rotated(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           bool along_rows);
void quantize(const QuantizeArgs<float>& args);
void quantize(const QuantizeArgs<Bf16>& args);
void dequantize(const QuantizeArgs<float>& args);
void dequantize(const QuantizeArgs<Bf16>& args);

}  // namespace tenon::kernels::plain
