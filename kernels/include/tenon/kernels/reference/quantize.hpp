// Reference quantizer: the order of operations of quantize.hpp, scales.hpp and stochastic.hpp, one element at
// a time. Every kernel set produces the same bits. Not meant to be fast.
#pragma once

#include <algorithm>
#include <tenon/kernels/hadamard.hpp>
#include <tenon/kernels/reference/scalar.hpp>
#include <tenon/kernels/scales.hpp>
#include <tenon/kernels/stochastic.hpp>

namespace tenon::kernels::reference {

/// Largest finite value of storage type S.
template <class S>
TENON_BOTH constexpr float largest_of() {
  return sizeof(S) == sizeof(Bf16) ? 0x1.fep127f : kFloatMax;
}

/// Blocks run down the columns: groups of draws, rotation and lines go that way.
template <class S>
TENON_BOTH constexpr bool runs_down(const QuantizeArgs<S>& a) {
  return a.scaling != Scaling::kTensor && a.block_rows > a.block_columns;
}

/// Rows that are written: rotating along rows fills the last 16.
template <class S>
TENON_BOTH constexpr std::int64_t written_rows(const QuantizeArgs<S>& a) {
  return a.rotate && runs_down(a) ? (a.rows + 15) / 16 * 16 : a.rows;
}

/// v becomes the 16 rotated elements of the group that begins at (i, j); beyond its end the matrix is zero.
template <class S>
TENON_BOTH void rotated_group(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                              bool along_rows, std::int64_t i, std::int64_t j, float* v) {
  for (std::int64_t e = 0; e < 16; ++e) {
    const std::int64_t r = along_rows ? i + e : i;
    const std::int64_t c = along_rows ? j : j + e;
    v[e] = r < rows && c < columns ? to_float(to_bf16(get(x[r * stride + c]))) : 0.0f;
  }
  rotate16(v);
}

template <class S>
std::uint32_t amax(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      largest = std::max(largest, magnitude_bits(get(x[i * stride + j])));
  return largest;
}

template <class S>
std::uint32_t amax_rotated(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           bool along_rows) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < rows; i += along_rows ? 16 : 1)
    for (std::int64_t j = 0; j < columns; j += along_rows ? 1 : 16) {
      float v[16];
      rotated_group(x, rows, columns, stride, along_rows, i, j, v);
      for (const float y : v) largest = std::max(largest, magnitude_bits(y));
    }
  return largest;
}

/// Rows [row, end_row) and columns [column, end_column) of the band.
struct Block {
  std::int64_t row, end_row, column, end_column;
};

/// Reads elements of one block, rotated if the band is.
template <class S>
class Elements {
 public:
  TENON_BOTH Elements(const QuantizeArgs<S>& a, const Block& block) : a_(a), block_(block) {
    if (a.rotate)
      rotated_group(a.x, a.rows, a.columns, a.stride, runs_down(a), block.row, block.column, rotated_);
  }
  TENON_BOTH float operator()(std::int64_t i, std::int64_t j) const {
    return a_.rotate ? rotated_[(i - block_.row) + (j - block_.column)] : get(a_.x[i * a_.stride + j]);
  }

 private:
  const QuantizeArgs<S>& a_;
  const Block block_;
  float rotated_[16] = {};
};

/// The scale of one block: stored bits (kTwoLevel, kPower), the factor of elements, and the factor of codes
/// (1 for kTensor and kFloat, whose scales stay apart).
struct BlockNumbers {
  std::uint8_t bits = 0;
  float encode = 1, decode = 1;
};

template <class S>
TENON_BOTH float block_amax(const Elements<S>& x, const Block& block) {
  std::uint32_t largest = 0;
  for (std::int64_t i = block.row; i < block.end_row; ++i)
    for (std::int64_t j = block.column; j < block.end_column; ++j)
      largest = std::max(largest, magnitude_bits(x(i, j)));
  return std::bit_cast<float>(largest);
}

TENON_BOTH inline BlockNumbers two_level_numbers(std::uint8_t bits, const TensorScale& tensor) {
  return {bits, two_level_encode(bits, tensor), kernels::decode(bits, Element::kE4M3)};
}

/// Sum of (x s_enc - code S_b)^2 for four over six, under rounding to nearest. Sixteen lanes, column j of the
/// block in lane j % 16, rows in order; then the lanes by halves.
template <class X>
TENON_BOTH float block_error(const X& elements, const Block& block, const BlockNumbers& numbers,
                             const TensorScale& tensor) {
  float lanes[kLanes] = {};
  for (std::int64_t i = block.row; i < block.end_row; ++i)
    for (std::int64_t j = block.column; j < block.end_column; ++j) {
      const float x = elements(i, j);
      const float code = kernels::decode(encode(clamp6(x * numbers.encode), Element::kE2M1), Element::kE2M1);
      const float error = x * tensor.encode - code * numbers.decode;
      lanes[(j - block.column) % kLanes] += error * error;
    }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

/// `index`: of the block's scale.
template <class S>
TENON_BOTH void store_scale(const QuantizeArgs<S>& a, std::int64_t index, const BlockNumbers& numbers) {
  if (a.scales != nullptr) a.scales[index] = numbers.bits;
  if (a.float_scales != nullptr) a.float_scales[index] = 1.0f / numbers.encode;
}

/// Without four over six; `largest`: the block's amax.
template <class S>
TENON_BOTH BlockNumbers numbers_of(const QuantizeArgs<S>& a, float largest, const TensorScale& tensor) {
  switch (a.scaling) {
    case Scaling::kTensor:
      return {0, tensor.encode, 1.0f};
    case Scaling::kTwoLevel:
      return two_level_numbers(two_level_block(largest, tensor), tensor);
    case Scaling::kPower: {
      const std::uint8_t bits = power_scale(largest, a.element, a.power);
      return {bits, inverse_e8m0(bits), decode_e8m0(bits)};
    }
    case Scaling::kFloat:
      break;
  }
  return {0, float_block_encode(largest, a.element, largest_of<S>()), 1.0f};
}

/// `x(i, j)`: the block's elements.
template <class S, class X>
TENON_BOTH BlockNumbers block_numbers(const QuantizeArgs<S>& a, const X& x, const Block& block, float largest,
                                      const TensorScale& tensor) {
  if (a.scaling != Scaling::kTwoLevel || !a.four_over_six) return numbers_of(a, largest, tensor);
  const BlockNumbers six = two_level_numbers(four_over_six_block(largest, tensor, false), tensor);
  const BlockNumbers four = two_level_numbers(four_over_six_block(largest, tensor, true), tensor);
  return block_error(x, block, four, tensor) < block_error(x, block, six, tensor) ? four : six;
}

template <class S>
TENON_BOTH std::uint8_t encode_element(const QuantizeArgs<S>& a, float x, const BlockNumbers& numbers,
                                       std::int64_t i, std::int64_t j) {
  float scaled = x * numbers.encode;
  if (a.scaling == Scaling::kTwoLevel) scaled = clamp6(scaled);
  if (!a.stochastic) return encode(scaled, a.element);
  const auto row = static_cast<std::uint64_t>(a.origin_row + i);
  const auto column = static_cast<std::uint64_t>(a.origin_column + j);
  const std::uint32_t draw = runs_down(a) ? draw_of({a.key, a.step, a.micro}, row, column, a.random_bits)
                                          : draw_of({a.key, a.step, a.micro}, column, row, a.random_bits);
  return encode_stochastic(scaled, a.element, draw, a.random_bits);
}

template <class S>
TENON_BOTH std::uint8_t& code_place(const QuantizeArgs<S>& a, std::int64_t i, std::int64_t j) {
  return a.codes[i * a.codes_stride + (a.packed ? j / 2 : j)];
}

/// Packed, an even column clears the other half, which the odd column, written later, fills.
template <class S>
TENON_BOTH void store_code(const QuantizeArgs<S>& a, std::int64_t i, std::int64_t j, std::uint8_t code) {
  std::uint8_t& place = code_place(a, i, j);
  place = a.packed && j % 2 != 0 ? pack_e2m1(place, code) : code;
}

template <class S>
TENON_BOTH std::uint8_t load_code(const QuantizeArgs<S>& a, std::int64_t i, std::int64_t j) {
  const std::uint8_t byte = code_place(a, i, j);
  return a.packed ? (j % 2 != 0 ? byte >> 4 : byte & 15) : byte;
}

/// Calls fn(block, index of its scale, its line) for each written block.
template <class S, class Fn>
void for_each_block(const QuantizeArgs<S>& a, Fn fn) {
  const bool whole = a.scaling == Scaling::kTensor;
  const std::int64_t rows = written_rows(a);
  const std::int64_t down = whole ? std::max<std::int64_t>(rows, 1) : a.block_rows;
  const std::int64_t across = whole ? std::max<std::int64_t>(a.columns, 1) : a.block_columns;
  for (std::int64_t row = 0; row < rows; row += down)
    for (std::int64_t column = 0; column < a.columns; column += across)
      fn(Block{row, std::min(row + down, rows), column, std::min(column + across, a.columns)},
         row / down * a.scales_stride + column / across, runs_down(a) ? column : row);
}

/// Quantizes one block; returns the bits of its largest magnitude (0 for kTensor, which does not compute it).
template <class S>
TENON_BOTH std::uint32_t quantize_block(const QuantizeArgs<S>& a, const Block& block, std::int64_t index,
                                        std::int64_t line) {
  const TensorScale& tensor = a.lines != nullptr ? a.lines[line] : a.tensor;
  const Elements<S> x(a, block);
  const float largest = a.scaling == Scaling::kTensor ? 0.0f : block_amax(x, block);
  const BlockNumbers numbers = block_numbers(a, x, block, largest, tensor);
  store_scale(a, index, numbers);
  for (std::int64_t i = block.row; i < block.end_row; ++i)
    for (std::int64_t j = block.column; j < block.end_column; ++j) {
      const std::uint8_t code = encode_element(a, x(i, j), numbers, i, j);
      if (a.codes != nullptr) store_code(a, i, j, code);
      if (a.values != nullptr)
        a.values[i * a.values_stride + j] = to_bf16(kernels::decode(code, a.element) * numbers.decode);
    }
  return magnitude_bits(largest);
}

template <class S>
TENON_BOTH void dequantize_block(const QuantizeArgs<S>& a, const Block& block, std::int64_t index) {
  float scale = 1.0f;
  if (a.scaling == Scaling::kTwoLevel) scale = kernels::decode(a.scales[index], Element::kE4M3);
  if (a.scaling == Scaling::kPower) scale = decode_e8m0(a.scales[index]);
  for (std::int64_t i = block.row; i < block.end_row; ++i)
    for (std::int64_t j = block.column; j < block.end_column; ++j)
      a.values[i * a.values_stride + j] = to_bf16(kernels::decode(load_code(a, i, j), a.element) * scale);
}

template <class S>
void quantize(const QuantizeArgs<S>& a) {
  for_each_block(a, [&](const Block& block, std::int64_t index, std::int64_t line) {
    const std::uint32_t largest = quantize_block(a, block, index, line);
    if (a.magnitude != nullptr) *a.magnitude = std::max(*a.magnitude, largest);
  });
}

template <class S>
void dequantize(const QuantizeArgs<S>& a) {
  for_each_block(
      a, [&](const Block& block, std::int64_t index, std::int64_t) { dequantize_block(a, block, index); });
}

}  // namespace tenon::kernels::reference
