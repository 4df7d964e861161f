// Operands of products of codes: the contracted dimension along the rows, padded with zeros, and block scales
// in tiles of 128 x 4 (scales.hpp). Kernel bodies that convert a quantizer's output to this layout, and one
// that reads it back as values. Nothing is rounded.
#pragma once

#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/formats.hpp>
#include <tenon/kernels/scales.hpp>

namespace tenon::kernels::cuda {

/// The inner dimension is the one that a product sums over.
struct ScaledExtents {
  std::int64_t outer = 0, inner = 0;
  std::int64_t padded = 0;  ///< inner, as laid out; even
  bool down = false;        ///< stored [inner, outer] instead of [outer, inner]
  bool nibbles = false;     ///< two codes per byte along a row, the first in the low half
  TENON_BOTH std::int64_t stored_columns() const { return down ? outer : inner; }
  TENON_BOTH std::int64_t stored_stride() const {
    return nibbles ? (stored_columns() + 1) / 2 : stored_columns();
  }
  TENON_BOTH std::int64_t stride() const { return nibbles ? padded / 2 : padded; }
};

/// laid_out [outer, padded] from codes as stored. A block of threads moves a square of codes through shared
/// memory, so that both sides are read and written along their rows.
struct LayOutCodes {
  static constexpr int kSide = 64;
  static constexpr int kRow = kSide + 4;
  static constexpr std::size_t kShared = std::size_t{kSide} * kRow;

  ScaledExtents of;
  const std::uint8_t* codes = nullptr;
  std::uint8_t* laid_out = nullptr;

  TENON_BOTH std::int64_t across() const { return (of.padded + kSide - 1) / kSide; }
  TENON_BOTH std::int64_t squares() const { return (of.outer + kSide - 1) / kSide * across(); }

  TENON_BOTH void operator()(const Block& block) const {
    const LayOutCodes& a = *this;
    auto* const square = block.shared<std::uint8_t>();
    for (std::int64_t at = block.index(); at < squares(); at += block.blocks()) {
      const std::int64_t first = at / across() * kSide, begin = at % across() * kSide;
      block.each([&](int thread) {
        for (int i = thread; i < kSide * kSide; i += block.threads()) {
          const int o = a.of.down ? i % kSide : i / kSide, l = a.of.down ? i / kSide : i % kSide;
          square[o * kRow + l] = a.stored(first + o, begin + l);
        }
      });
      block.each([&](int thread) {
        const int each = a.of.nibbles ? 2 : 1;
        for (int i = thread; i < kSide * kSide / each; i += block.threads()) {
          const int o = i / (kSide / each), l = i % (kSide / each) * each;
          if (first + o >= a.of.outer || begin + l >= a.of.padded) continue;
          const std::uint8_t* const from = square + o * kRow + l;
          a.laid_out[(first + o) * a.of.stride() + (begin + l) / each] =
              a.of.nibbles ? static_cast<std::uint8_t>(from[0] | from[1] << 4) : from[0];
        }
      });
    }
  }

 private:
  TENON_BOTH std::uint8_t stored(std::int64_t o, std::int64_t l) const {
    if (o >= of.outer || l >= of.inner) return 0;
    const std::int64_t row = of.down ? l : o, column = of.down ? o : l;
    if (!of.nibbles) return codes[row * of.stored_stride() + column];
    const std::uint8_t pair = codes[row * of.stored_stride() + column / 2];
    return static_cast<std::uint8_t>(column % 2 == 0 ? pair & 15 : pair >> 4);
  }
};

/// Scales of `block` elements along the inner dimension each, in tiles, from those of stored blocks, which
/// are as long or a multiple, and may span several rows. Padding of tiles is zero.
struct LayOutScales {
  ScaledExtents of;
  int block = 16;
  std::int64_t stored_inner = 16, stored_outer = 1;  ///< extents of a stored block
  const std::uint8_t* scales = nullptr;
  std::uint8_t* tiles = nullptr;

  TENON_BOTH std::int64_t inner() const { return of.padded / block; }
  TENON_BOTH std::int64_t bytes() const { return swizzled_outer(of.outer) * swizzled_inner(inner()); }

  TENON_BOTH void operator()(const Block& threads) const {
    const LayOutScales& a = *this;
    const std::int64_t width = swizzled_inner(a.inner());
    const std::int64_t stored_columns = a.of.down ? (a.of.outer + a.stored_outer - 1) / a.stored_outer
                                                  : (a.of.inner + a.stored_inner - 1) / a.stored_inner;
    for_each_element(threads, a.bytes(), [&](std::int64_t at) {
      const std::int64_t o = at / width, i = at % width;
      std::uint8_t scale = 0;
      if (o < a.of.outer && i * a.block < a.of.inner) {
        const std::int64_t across = o / a.stored_outer, along = i * a.block / a.stored_inner;
        scale = a.scales[a.of.down ? along * stored_columns + across : across * stored_columns + along];
      }
      a.tiles[swizzled_offset(o, i, a.inner())] = scale;
    });
  }
};

/// values [outer, padded]: code times the scale of its block, which bf16 holds exactly.
struct ReadLaidOut {
  ScaledExtents of;
  Element element = Element::kE2M1;
  Scaling scaling = Scaling::kTensor;  ///< kTwoLevel, kPower: by block
  int block = 16;
  const std::uint8_t *laid_out = nullptr, *tiles = nullptr;
  Bf16* values = nullptr;

  TENON_BOTH void operator()(const Block& threads) const {
    const ReadLaidOut& a = *this;
    for_each_element(threads, a.of.outer * a.of.padded, [&](std::int64_t at) {
      const std::int64_t o = at / a.of.padded, l = at % a.of.padded;
      const std::uint8_t byte = a.laid_out[o * a.of.stride() + (a.of.nibbles ? l / 2 : l)];
      const auto code = static_cast<std::uint8_t>(!a.of.nibbles ? byte : l % 2 == 0 ? byte & 15 : byte >> 4);
      a.values[at] = to_bf16(decode(code, a.element) * a.scale(o, l / a.block));
    });
  }

 private:
  TENON_BOTH float scale(std::int64_t o, std::int64_t i) const {
    if (scaling != Scaling::kTwoLevel && scaling != Scaling::kPower) return 1.0f;
    const std::uint8_t bits = tiles[swizzled_offset(o, i, of.padded / block)];
    return scaling == Scaling::kTwoLevel ? decode(bits, Element::kE4M3) : decode_e8m0(bits);
  }
};

}  // namespace tenon::kernels::cuda
