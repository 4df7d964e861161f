// Dot products of pairs of short vectors (contract: interaction.hpp). The vectors of the usual models have 16
// to 128 elements, so lanes run over the second vector of a pair, 16 of them transposed in a tile: no sum
// over lanes, and rows of the triangle are stored in the order of y. In backward lanes run along the
// elements. Sums have the order of the reference, each step fused where the set can.
#pragma once

#include <tenon/kernels/interaction.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Elements of its 16 vectors in one tile, vectors that it is multiplied with before it is made again, and
/// those that share its loads.
constexpr std::int64_t kTileElements = 256, kTileMeetings = 64, kAbreast = 4;
static_assert(kTileMeetings % kAbreast == 0);

template <class S>
TENON_INLINE const S* interacting(const InteractionArgs<S>& args, std::int64_t sample, std::int64_t i) {
  return i == 0 ? args.z0 + sample * args.width : args.z + (sample * (args.vectors - 1) + i - 1) * args.width;
}

/// Column of t_i . t_0.
template <class S>
TENON_INLINE std::int64_t first_pair(const InteractionArgs<S>& args, std::int64_t i) {
  return args.width + (args.itself ? i * (i + 1) : i * (i - 1)) / 2;
}

/// tile[k][l] = element k0 + k of vector j0 + l; zeros after the last vector.
template <class S>
TENON_INLINE void turn_vectors(const InteractionArgs<S>& args, std::int64_t sample, std::int64_t j0,
                               std::int64_t k0, std::int64_t count, float (*tile)[kLanes]) {
  for (std::int64_t l = 0; l < kLanes; ++l) {
    if (j0 + l < args.vectors) {
      const S* t = interacting(args, sample, j0 + l) + k0;
      for (std::int64_t k = 0; k < count; ++k) tile[k][l] = load_one(t + k);
    } else {
      for (std::int64_t k = 0; k < count; ++k) tile[k][l] = 0.0f;
    }
  }
}

/// sums[i - i0][l] (+)= over k of vector i's element k times tile[k][l], for i of [i0, i1).
template <class S>
TENON_INLINE void meet_tile(const InteractionArgs<S>& args, std::int64_t sample, std::int64_t i0,
                            std::int64_t i1, std::int64_t k0, std::int64_t count, float (*tile)[kLanes],
                            float (*sums)[kLanes]) {
  for (std::int64_t i = i0; i < i1; i += kAbreast) {
    const S* t[kAbreast];
    F sum[kAbreast];
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kAbreast; ++q) {
      t[q] = interacting(args, sample, i + q < i1 ? i + q : i1 - 1) + k0;  // a short group repeats its last
      sum[q] = k0 == 0 ? splat(0.0f) : load(sums[i - i0 + q]);
    }
    for (std::int64_t k = 0; k < count; ++k) {
      const F v = load(tile[k]);
#pragma GCC unroll 4
      for (std::int64_t q = 0; q < kAbreast; ++q) sum[q] = mul_add(splat(load_one(t[q] + k)), v, sum[q]);
    }
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kAbreast; ++q) store(sums[i - i0 + q], sum[q]);
  }
}

template <class S>
void interaction_forward(const InteractionArgs<S>& args, std::int64_t sample_begin, std::int64_t sample_end) {
  float tile[kTileElements][kLanes], sums[kTileMeetings][kLanes];
  const std::int64_t itself = args.itself ? 1 : 0;
  for (std::int64_t s = sample_begin; s < sample_end; ++s) {
    S* y = args.y + s * args.columns;
    __builtin_memcpy(y, args.z0 + s * args.width, args.width * sizeof(S));
    for (std::int64_t j0 = 0; j0 < args.vectors; j0 += kLanes)
      for (std::int64_t i0 = j0 + 1 - itself; i0 < args.vectors; i0 += kTileMeetings) {
        const std::int64_t i1 = i0 + kTileMeetings < args.vectors ? i0 + kTileMeetings : args.vectors;
        for (std::int64_t k0 = 0; k0 < args.width; k0 += kTileElements) {
          const std::int64_t rest = args.width - k0, count = rest < kTileElements ? rest : kTileElements;
          turn_vectors(args, s, j0, k0, count, tile);
          meet_tile(args, s, i0, i1, k0, count, tile, sums);
        }
        for (std::int64_t i = i0; i < i1; ++i) {
          const std::int64_t pairs = i + itself - j0;
          store_group(y + first_pair(args, i) + j0, load(sums[i - i0]), pairs < kLanes ? pairs : kLanes);
        }
      }
  }
}

/// Elements [k, k + n) of the gradients of vectors i0 ... i0 + 3.
template <class S>
TENON_INLINE void vector_gradients(const InteractionArgs<S>& args, std::int64_t sample, std::int64_t i0,
                                   std::int64_t k, std::int64_t n) {
  const S* dy = args.dy + sample * args.columns;
  F sum[kAbreast];
#pragma GCC unroll 4
  for (std::int64_t q = 0; q < kAbreast; ++q) sum[q] = splat(0.0f);
  if (i0 == 0) sum[0] = load_group(dy + k, n);
  const auto add = [&](std::int64_t j, auto gradient) TENON_BODY {
    const F v = load_group(interacting(args, sample, j) + k, n);
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kAbreast; ++q) sum[q] = mul_add(splat(gradient(q)), v, sum[q]);
  };
  const std::int64_t last = args.vectors - 1, i1 = i0 + kAbreast;
  const std::int64_t row[kAbreast] = {first_pair(args, i0), first_pair(args, i0 + 1 < last ? i0 + 1 : last),
                                      first_pair(args, i0 + 2 < last ? i0 + 2 : last),
                                      first_pair(args, i0 + 3 < last ? i0 + 3 : last)};
  std::int64_t j = 0;
  for (; j < i0; ++j) add(j, [&](std::int64_t q) TENON_BODY { return load_one(dy + row[q] + j); });
  for (; j < i1 && j <= last; ++j)
    add(j, [&](std::int64_t q) TENON_BODY {
      const std::int64_t i = i0 + q;
      if (i > last) return 0.0f;
      if (i == j) return args.itself ? 2.0f * load_one(dy + row[q] + j) : 0.0f;
      return load_one(dy + (i > j ? row[q] + j : first_pair(args, j) + i));
    });
  for (; j <= last; ++j) {
    const S* column = dy + first_pair(args, j) + i0;
    add(j, [&](std::int64_t q) TENON_BODY { return load_one(column + q); });
  }
  for (std::int64_t q = 0; q < kAbreast && i0 + q <= last; ++q) {
    const bool first = i0 + q == 0;
    S* out = first ? args.dz0 : args.dz;
    if (out == nullptr) continue;
    out += (first ? sample : sample * last + i0 + q - 1) * args.width + k;
    const bool accumulate = first ? args.accumulate_z0 : args.accumulate_z;
    store_group(out, accumulate ? load_group(out, n) + sum[q] : sum[q], n);
  }
}

template <class S>
void interaction_backward(const InteractionArgs<S>& args, std::int64_t sample_begin,
                          std::int64_t sample_end) {
  for (std::int64_t s = sample_begin; s < sample_end; ++s)
    for (std::int64_t i0 = 0; i0 < args.vectors; i0 += kAbreast)
      for_lanes(0, args.width,
                [&](std::int64_t k, std::int64_t n) TENON_BODY { vector_gradients(args, s, i0, k, n); });
}

}  // namespace
}  // namespace tenon::kernels
