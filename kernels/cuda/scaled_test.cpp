// Operands laid out for products of codes: every stored form, odd sizes, both orders of threads, against the
// element and the scale of the definition; and read back as values.
#include "testing.hpp"

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/scaled.hpp>

#include <vector>

namespace tenon::kernels::cuda::scaled_test {
namespace {

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

using Bytes = std::vector<std::uint8_t>;

Bytes some_bytes(std::int64_t count, unsigned seed, unsigned below) {
  Bytes bytes(static_cast<std::size_t>(count));
  unsigned state = seed * 2654435761u + 1;
  for (std::uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>((state >> 16) % below);
  }
  return bytes;
}

struct Case {
  std::int64_t outer, inner;
  bool down, nibbles;
  std::int64_t stored_inner, stored_outer;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [outer, inner] : {std::pair{1, 1}, {5, 33}, {130, 70}, {64, 256}, {300, 97}})
    for (const bool down : {false, true})
      for (const bool nibbles : {false, true})
        for (const auto& [along, across] : {std::pair{1, 1}, {1, 16}, {4, 64}})
          all.push_back({outer, inner, down, nibbles, along * (nibbles ? 16 : 32), across});
  return all;
}

TEST(CudaScaledTest, LaysOutEveryCodeAndScale) {
  for (const Case& c : cases()) {
    const int block = c.nibbles ? 16 : 32;
    const ScaledExtents of{c.outer, c.inner, (c.inner + 31) / 32 * 32, c.down, c.nibbles};
    const std::int64_t rows = c.down ? c.inner : c.outer;
    const Bytes codes = some_bytes(rows * of.stored_stride(), 1, 256);
    const std::int64_t along = (c.inner + c.stored_inner - 1) / c.stored_inner,
                       across = (c.outer + c.stored_outer - 1) / c.stored_outer;
    // Neither the NaN of E4M3 nor that of E8M0.
    const Bytes scales = some_bytes(along * across, 2, 120);
    const auto code_at = [&](std::int64_t o, std::int64_t l) -> std::uint8_t {
      if (l >= c.inner) return 0;
      const std::int64_t row = c.down ? l : o, column = c.down ? o : l;
      if (!c.nibbles) return codes[row * of.stored_columns() + column];
      const std::uint8_t pair = codes[row * of.stored_stride() + column / 2];
      return static_cast<std::uint8_t>(column % 2 != 0 ? pair / 16 : pair % 16);
    };
    const auto scale_at = [&](std::int64_t o, std::int64_t l) -> std::uint8_t {
      const std::int64_t i = l / c.stored_inner, j = o / c.stored_outer;
      return l / block * block >= c.inner ? std::uint8_t{0} : scales[c.down ? i * across + j : j * along + i];
    };
    Bytes plain(static_cast<std::size_t>(c.outer * (of.padded / block)));
    for (std::int64_t o = 0; o < c.outer; ++o)
      for (std::int64_t i = 0; i < of.padded / block; ++i)
        plain[o * (of.padded / block) + i] = scale_at(o, i * block);

    for (const LaunchOrder order : kOrders)
      for (const std::int64_t blocks : {1, 3}) {
        Bytes laid_out(static_cast<std::size_t>(c.outer * of.stride()), 0xEE);
        const LayOutCodes lay_out{of, codes.data(), laid_out.data()};
        launch_on_host(Grid{blocks, 64, LayOutCodes::kShared}, lay_out, order);
        LayOutScales lay_scales{of, block, c.stored_inner, c.stored_outer, scales.data(), nullptr};
        Bytes tiles(static_cast<std::size_t>(lay_scales.bytes()), 0xEE), expected(tiles.size(), 0xEE);
        lay_scales.tiles = tiles.data();
        launch_on_host(Grid{blocks, 32, 0}, lay_scales, order);
        swizzle_scales(plain.data(), c.outer, of.padded / block, expected.data());
        EXPECT_EQ(tiles, expected) << c.outer << "x" << c.inner << (c.down ? " down" : "");

        const Element element = c.nibbles ? Element::kE2M1 : Element::kE4M3;
        std::vector<Bf16> values(c.outer * of.padded);
        launch_on_host(Grid{blocks, 128, 0},
                       ReadLaidOut{of, element, c.nibbles ? Scaling::kTwoLevel : Scaling::kPower, block,
                                   laid_out.data(), tiles.data(), values.data()},
                       order);
        int wrong = 0;
        for (std::int64_t o = 0; o < c.outer; ++o)
          for (std::int64_t l = 0; l < of.padded; ++l) {
            const float scale =
                c.nibbles ? decode(scale_at(o, l), Element::kE4M3) : decode_e8m0(scale_at(o, l));
            const float value = decode(code_at(o, l), element) * scale;
            const float found = to_float(values[o * of.padded + l]);
            // NaN codes of E4M3 stay NaN.
            wrong += value != value ? found == found : found != to_float(to_bf16(value));
          }
        EXPECT_EQ(wrong, 0) << c.outer << "x" << c.inner << (c.down ? " down" : "")
                            << (c.nibbles ? " nibbles" : "");
      }
  }
}

}  // namespace
}  // namespace tenon::kernels::cuda::scaled_test
