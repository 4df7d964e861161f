// Stochastic rounding to the formats of formats.hpp, and the source of its random words.
// 8 bits: the rule of TransformerEngine's fallback kernel, computed in float: t = |x| + u step(|x|), then t
// is truncated to the grid at t. It rounds up with a probability truncated to 1/256 and is biased toward zero
// by 1/512 step on average. 24 bits: exact, up iff f + u >= 1 with f the position in the cell and u = draw /
// 2^24.
#pragma once

#include <Random123/philox.h>

#include <tenon/kernels/formats.hpp>

namespace tenon::kernels {

/// Distance between the neighbours of a magnitude: 2^(exponent - mantissa), constant below the smallest
/// normal and beyond the largest value.
TENON_BOTH constexpr float step_at(float magnitude, const ElementLayout& layout) noexcept {
  int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(magnitude) >> 23) - 127;
  if (exponent < 1 - layout.bias) exponent = 1 - layout.bias;
  if (exponent > layout.largest_exponent) exponent = layout.largest_exponent;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent - layout.mantissa + 127) << 23);
}

/// `draw`: only the lowest 8 bits count.
TENON_BOTH constexpr std::uint8_t encode_stochastic8(float x, Element element, std::uint32_t draw) noexcept {
  const ElementLayout layout = layout_of(element);
  if (magnitude_bits(x) >= magnitude_bits(layout.largest)) return encode(x, element);
  const float magnitude = std::bit_cast<float>(magnitude_bits(x));
  const float uniform = static_cast<float>(draw & 0xffu) * 0x1p-8f;
  const float moved = magnitude + uniform * step_at(magnitude, layout);
  return with_sign(encode(moved, element, Rounding::kTowardZero), std::bit_cast<std::uint32_t>(x) >> 31,
                   layout);
}

/// `draw`: only the lowest 24 bits count.
TENON_BOTH constexpr std::uint8_t encode_stochastic24(float x, Element element, std::uint32_t draw) noexcept {
  const ElementLayout layout = layout_of(element);
  if (magnitude_bits(x) >= magnitude_bits(layout.largest)) return encode(x, element);
  const Cell cell = cell_of(magnitude_bits(x), layout);
  // Up iff rest / 2^shift >= (2^24 - draw) / 2^24; from 2^48 on, the cell is too wide for any draw.
  const std::uint64_t needed = 0x1000000u - (draw & 0xffffffu);
  const bool up = cell.shift <= 24 ? std::uint64_t{cell.rest} << (24 - cell.shift) >= needed
                                   : cell.shift < 48 && cell.rest >= needed << (cell.shift - 24);
  return with_sign(cell.below + (up ? 1u : 0u), std::bit_cast<std::uint32_t>(x) >> 31, layout);
}

TENON_BOTH constexpr std::uint8_t encode_stochastic(float x, Element element, std::uint32_t draw,
                                                    int random_bits) noexcept {
  return random_bits == 8 ? encode_stochastic8(x, element, draw) : encode_stochastic24(x, element, draw);
}

/// The draws of one tensor (QuantizeArgs: key, step, micro).
struct DrawStream {
  std::uint64_t key = 0;
  std::uint64_t step = 0;
  std::uint32_t micro = 0;
};

/// Four words: counter {group, line, step, micro * 4 + part}, all truncated to 32 bits.
TENON_BOTH inline r123::Philox4x32::ctr_type draw_words(const DrawStream& stream, std::uint64_t group,
                                                        std::uint64_t line, std::uint32_t part) {
  const r123::Philox4x32::ctr_type counter{
      {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(line),
       static_cast<std::uint32_t>(stream.step), stream.micro * 4 + part}};
  const r123::Philox4x32::key_type words{
      {static_cast<std::uint32_t>(stream.key), static_cast<std::uint32_t>(stream.key >> 32)}};
  return r123::Philox4x32{}(counter, words);
}

/// The draw of the element at global position `along` of its line (`line`: its position in the other
/// dimension): 16 positions are a group.
TENON_BOTH inline std::uint32_t draw_of(const DrawStream& stream, std::uint64_t along, std::uint64_t line,
                                        int random_bits) {
  const auto e = static_cast<unsigned>(along % 16);
  if (random_bits == 8) return draw_words(stream, along / 16, line, 0)[e / 4] >> (8 * (e % 4)) & 0xffu;
  return draw_words(stream, along / 16, line, e / 4)[e % 4] & 0xffffffu;
}

}  // namespace tenon::kernels
