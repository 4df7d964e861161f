// Shared by the tests of quantizers: a matrix, its quantized form with owned memory, and random data of the
// distributions that the literature uses.
#pragma once

#include <tenon/kernels/scales.hpp>

#include "testing.hpp"

namespace tenon::kernels::testing {

/// Settings of a quantizer; the counterpart of QuantizeArgs without pointers.
struct Format {
  Element element = Element::kE2M1;
  Scaling scaling = Scaling::kTwoLevel;
  std::int64_t block_rows = 1, block_columns = 16;
  PowerRule power = PowerRule::kRoundUp;
  bool stochastic = false;
  int random_bits = 8;
  bool rotate = false, four_over_six = false;
  std::uint64_t key = 0, step = 0;
  std::uint32_t micro = 0;
  std::int64_t origin_row = 0, origin_column = 0;

  bool down() const { return scaling != Scaling::kTensor && block_rows > block_columns; }
};

inline constexpr Format kNvfp4 = {};
inline constexpr Format kNvfp4Square = {.block_rows = 16};
inline constexpr Format kNvfp4Down = {.block_rows = 16, .block_columns = 1};
inline constexpr Format kMxfp4 = {.scaling = Scaling::kPower, .block_columns = 32};
inline constexpr Format kMxfp8 = {.element = Element::kE4M3, .scaling = Scaling::kPower, .block_columns = 32};
inline constexpr Format kFp8 = {.element = Element::kE4M3, .scaling = Scaling::kTensor};
inline constexpr Format kFp8Block = {
    .element = Element::kE4M3, .scaling = Scaling::kFloat, .block_columns = 128};

template <class S>
struct Quantized {
  std::int64_t rows, columns;  ///< written
  std::vector<std::uint8_t> codes, scales;
  std::vector<float> float_scales;
  std::vector<Bf16> values;
  TensorScale tensor;

  /// (code x scale) x s_dec in float.
  std::vector<float> decoded() const {
    std::vector<float> result;
    for (const Bf16 value : values) result.push_back(to_float(value) * tensor.decode);
    return result;
  }
};

template <class S>
const QuantizeOps<S>& quantize_ops(const KernelTable& set) {
  if constexpr (std::is_same_v<S, float>)
    return set.quantize_f32;
  else
    return set.quantize_bf16;
}

/// The scale that `format` uses for a matrix of this largest magnitude.
inline TensorScale scale_for(const Format& format, float amax) {
  switch (format.scaling) {
    case Scaling::kTensor:
      return tensor_scale(amax, format.element);
    case Scaling::kTwoLevel:
      return two_level_scale(amax, format.four_over_six ? kScaleTopOfSix : kScaleTop);
    case Scaling::kPower:
    case Scaling::kFloat:
      break;
  }
  return {};
}

template <class S>
Quantized<S> quantize_with(const KernelTable& set, const std::vector<S>& x, std::int64_t rows,
                           std::int64_t columns, const Format& format, const TensorScale& tensor) {
  Quantized<S> q;
  q.rows = format.rotate && format.down() ? (rows + 15) / 16 * 16 : rows;
  q.columns = columns;
  q.tensor = tensor;
  const std::int64_t across = (columns + format.block_columns - 1) / format.block_columns;
  const std::int64_t blocks = (q.rows + format.block_rows - 1) / format.block_rows * across;
  q.codes.assign(q.rows * columns, 0xee);
  q.values.assign(q.codes.size(), Bf16{0xeeee});
  q.scales.assign(blocks, 0xee);
  q.float_scales.assign(blocks, -1.0f);
  QuantizeArgs<S> args;
  args.x = x.data();
  args.rows = rows;
  args.columns = args.stride = args.values_stride = args.codes_stride = columns;
  args.element = format.element;
  args.scaling = format.scaling;
  args.power = format.power;
  args.block_rows = format.block_rows;
  args.block_columns = format.block_columns;
  args.stochastic = format.stochastic;
  args.random_bits = format.random_bits;
  args.rotate = format.rotate;
  args.four_over_six = format.four_over_six;
  args.tensor = tensor;
  args.key = format.key;
  args.step = format.step;
  args.micro = format.micro;
  args.origin_row = format.origin_row;
  args.origin_column = format.origin_column;
  args.values = q.values.data();
  args.codes = q.codes.data();
  if (format.scaling == Scaling::kTwoLevel || format.scaling == Scaling::kPower)
    args.scales = q.scales.data();
  if (format.scaling == Scaling::kFloat) args.float_scales = q.float_scales.data();
  args.scales_stride = across;
  quantize_ops<S>(set).quantize(args);
  return q;
}

template <class S>
float amax_of(const KernelTable& set, const std::vector<S>& x, std::int64_t rows, std::int64_t columns,
              const Format& format) {
  const QuantizeOps<S>& o = quantize_ops<S>(set);
  return std::bit_cast<float>(format.rotate ? o.amax_rotated(x.data(), rows, columns, columns, format.down())
                                            : o.amax(x.data(), rows, columns, columns));
}

template <class S>
Quantized<S> quantize_matrix(const std::vector<S>& x, std::int64_t rows, std::int64_t columns,
                             const Format& format, const KernelTable& set = reference_kernels()) {
  return quantize_with(set, x, rows, columns, format,
                       scale_for(format, amax_of(set, x, rows, columns, format)));
}

}  // namespace tenon::kernels::testing
