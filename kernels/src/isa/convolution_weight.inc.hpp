// Gradients of the weights of convolutions (contract: convolution.hpp). Lanes are points, so both operands
// are read as they are stored: dy in place, x from the copies of forward or in place. A tile is a few
// features times a few pairs of channel and offset, 16 lanes each, in registers over the points of a region.
#pragma once

#include "isa/convolution.inc.hpp"

#if TENON_SIMD_BYTES > 16

namespace tenon::kernels {
namespace {

constexpr int kConvWeightRows = TENON_SIMD_BYTES == 64 ? 4 : 3;
constexpr int kConvWeightColumns = TENON_SIMD_BYTES == 64 ? 6 : 4;

struct ConvWeightTile {
  const float* dy = nullptr;
  std::int64_t dy_row = 0;
  const float* x[kConvWeightColumns];
  std::int64_t runs = 0, groups = 0, rest = 0;  ///< of a run: groups of 16 points, and points after them
  const std::int32_t* at = nullptr;  ///< where each group, and each rest, is in x; in dy they follow
  float* out = nullptr;              ///< columns follow one another
  std::int64_t out_row = 0, columns = 0;
  bool set = false;
};

/// One part of the lanes of R rows times all columns.
template <int R, class Load>
TENON_INLINE void conv_weight_terms(Part (&sums)[R][kConvWeightColumns], Load load_of, const float* dy,
                                    std::int64_t dy_row, const float* const* x, std::int64_t at) {
  Part a[R];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
    a[i] = load_of(dy + i * dy_row);
    conv_hold(a[i]);
  }
#pragma GCC unroll 8
  for (int j = 0; j < kConvWeightColumns; ++j) {
    Part b = load_of(x[j] + at);
    conv_hold(b);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) sums[i][j] = mul_add_part(a[i], b, sums[i][j]);
  }
}

/// Part p of the lanes of all sums: a register each, in one walk over the points.
template <int R>
TENON_INLINE void conv_weight_part(const ConvWeightTile& t, int p, Part (&sums)[R][kConvWeightColumns]) {
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kConvWeightColumns; ++j) sums[i][j] = Part{};
  const float* x[kConvWeightColumns];
#pragma GCC unroll 8
  for (int j = 0; j < kConvWeightColumns; ++j) x[j] = t.x[j] + p * kPartLanes;
  const float* dy = t.dy + p * kPartLanes;
  const std::int64_t dy_row = t.dy_row, left = t.rest - p * kPartLanes;
  const std::int32_t* at = t.at;
  for (std::int64_t run = 0; run < t.runs; ++run) {
    for (const std::int32_t* const end = at + t.groups; at != end; ++at, dy += kLanes)
      conv_weight_terms<R>(
          sums, [](const float* from) TENON_BODY { return load_part(from); }, dy, dy_row, x, *at);
    if (t.rest == 0) continue;
    if (left > 0) {
      const std::int64_t n = left < kPartLanes ? left : kPartLanes;
      conv_weight_terms<R>(
          sums, [&](const float* from) TENON_BODY { return load_part_first(from, n); }, dy, dy_row, x, *at);
    }
    dy += t.rest;
    ++at;
  }
}

template <int R>
[[gnu::noinline]] void conv_weight_tile(const ConvWeightTile& t) {
  Part sums[kParts][R][kConvWeightColumns];
  for (int p = 0; p < kParts; ++p) {
    Part part[R][kConvWeightColumns];
    conv_weight_part<R>(t, p, part);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kConvWeightColumns; ++j) sums[p][i][j] = part[i][j];
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kConvWeightColumns; ++j) {
      F lanes;
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) lanes.v[p] = sums[p][i][j];
      const float sum = sum_lanes(lanes);
      if (j < t.columns) {
        float* to = t.out + i * t.out_row + j;
        *to = t.set ? sum : *to + sum;
      }
    }
}

template <int R = kConvWeightRows>
TENON_INLINE void conv_weight_tile_of(std::int64_t rows, const ConvWeightTile& t) {
  if (rows == R) return conv_weight_tile<R>(t);
  if constexpr (R > 1) conv_weight_tile_of<R - 1>(rows, t);
}

TENON_INLINE bool conv_weight_direct(const ConvolutionArgs& args, const ConvolutionWeightShares& shares) {
  return shares.groups == 1 && !args.accumulate;
}
// Where a region has several samples, its rows of dy are far apart in each: a copy in the shared memory has
// the region's points of a feature side by side. It comes first, then the sums of the groups.
TENON_INLINE std::int64_t conv_weight_copied(const ConvolutionArgs& args, const ConvolutionRegions& regions) {
  if (regions.samples == 1) return 0;
  return conv_ceil(args.batch * args.features * regions.rows * args.window.out[2], kLanes) * kLanes;
}
std::int64_t conv_weight_shared(const ConvolutionArgs& args) {
  const ConvolutionWeightShares shares = convolution_weight_shares(args);
  return conv_weight_copied(args, shares.regions) + shares.groups * conv_weights_shared(args);
}
/// Items: the planes of one feature in one region.
std::int64_t conv_weight_prepare_items(const ConvolutionArgs& args) {
  const ConvolutionRegions regions = convolution_weight_shares(args).regions;
  return regions.samples == 1 ? 0 : regions.count * args.features;
}
void conv_weight_prepare(const ConvolutionArgs& args, std::int64_t begin, std::int64_t end, float* shared) {
  const ConvolutionRegions regions = convolution_weight_shares(args).regions;
  const std::int64_t places = args.window.out[1] * args.window.out[2];
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t sample = item / args.features * regions.samples, feature = item % args.features,
                       samples = conv_least(regions.samples, args.batch - sample);
    float* to = shared + (sample * args.features + feature * samples) * places;
    for (std::int64_t i = 0; i < samples; ++i)
      conv_take(args.dy + ((sample + i) * args.features + feature) * places, places, to + i * places);
  }
}
std::int64_t conv_weight_workspace(const ConvolutionArgs& args) {
  const ConvolutionWeightShares shares = convolution_weight_shares(args);
  if (shares.regions.count == 0) return 0;
  ConvGrids grids;
  conv_forward_grids(args.window, grids);
  const ConvCopy copy = conv_copy_of(grids, shares.regions.rows, kLanes);
  return conv_stage(copy) + shares.channels * shares.regions.samples * copy.floats + kLanes +
         shares.regions.samples * conv_ceil(shares.regions.rows * grids.columns, kLanes);
}
std::int64_t conv_weight_items(const ConvolutionArgs& args) {
  const ConvolutionWeightShares shares = convolution_weight_shares(args);
  return shares.regions.count == 0 ? 0 : shares.blocks * shares.groups;
}

/// One region for channels [channel, channel + channels).
inline void conv_weight_region(const ConvolutionArgs& args, ConvGrids& grids,
                               const ConvolutionRegions& regions, std::int64_t region, std::int64_t channel,
                               std::int64_t channels, bool set, const float* copied, float* out,
                               float* workspace) {
  const ConvGrid& grid = grids.grid[0];
  const std::int64_t elements = args.window.in[1] * args.window.in[2], places = grids.rows * grids.columns;
  const ConvBand band = conv_band(regions, region, args.batch, grids.rows);
  const std::int64_t sample = band.sample, samples = band.samples, a = band.row, rows = band.rows,
                     points = rows * grids.columns;
  const ConvCopy copy = conv_copy_of(grids, rows, kLanes);
  const bool in_place = conv_in_place(grids);
  float* const source = workspace + conv_stage(copy);
  auto* const at = reinterpret_cast<std::int32_t*>(source + samples * channels * copy.floats + kLanes);
  for (std::int64_t c = 0; !in_place && c < channels; ++c)
    for (std::int64_t i = 0; i < samples; ++i)
      conv_copy(grids, copy, args.x + ((sample + i) * args.channels + channel + c) * elements, a, workspace,
                source + (c * samples + i) * copy.floats);
  ConvWeightTile t;
  std::int64_t groups = 0;
  for (std::int64_t i = 0; i < samples; ++i)
    for (std::int64_t point = 0; point < points; point += kLanes)
      at[groups++] = static_cast<std::int32_t>(in_place ? i * args.channels * elements + point
                                                        : i * copy.floats + conv_point(copy, point));
  t.at = at, t.rest = points % kLanes;
  t.runs = t.rest == 0 ? 1 : samples, t.groups = t.rest == 0 ? groups : points / kLanes;
  t.out_row = args.channels * grid.offsets, t.set = set;
  const std::int64_t columns = channels * grid.offsets, tiles = conv_ceil(args.features, kConvWeightRows);
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t row = args.features * tile / tiles, end = args.features * (tile + 1) / tiles;
    t.dy = regions.samples > 1 ? copied + (sample * args.features + row * samples) * places
                               : args.dy + (sample * args.features + row) * places + a * grids.columns;
    t.dy_row = samples * places;
    // The next rows of dy come from far away: each tile of columns asks for a share of them.
    const float* ahead = t.dy + (end - row) * t.dy_row;
    const std::int64_t next = tile + 1 < tiles ? args.features * (tile + 2) / tiles - end : 0;
    const std::int64_t column_tiles = conv_ceil(columns, kConvWeightColumns), length = samples * points;
    std::int64_t asked = 0, asking = 0, ahead_at = 0;
    for (std::int64_t column = 0; column < columns; column += kConvWeightColumns) {
      for (const std::int64_t until = ++asking * next * length / column_tiles; asked < until;
           asked += kLanes) {
        __builtin_prefetch(ahead + ahead_at, 0, 2);
        if (ahead_at += kLanes; ahead_at >= length) ahead_at -= length, ahead += t.dy_row;
      }
      t.columns = conv_least(kConvWeightColumns, columns - column);
      for (std::int64_t j = 0; j < kConvWeightColumns; ++j) {
        const std::int64_t at = column + conv_least(j, t.columns - 1);
        t.x[j] = in_place ? args.x + (sample * args.channels + channel + at) * elements + a * grids.columns
                          : source + at / grid.offsets * samples * copy.floats + grid.at[at % grid.offsets];
      }
      t.out = out + row * t.out_row + channel * grid.offsets + column;
      conv_weight_tile_of(end - row, t);
    }
  }
}

void conv_weight_run(const ConvolutionArgs& args, std::int64_t begin, std::int64_t end, float* shared,
                     float* workspace) {
  const ConvolutionWeightShares shares = convolution_weight_shares(args);
  ConvGrids grids;
  conv_forward_grids(args.window, grids);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t block = item / shares.groups, group = item % shares.groups;
    const std::int64_t channel = block * shares.channels,
                       channels = conv_least(shares.channels, args.channels - channel);
    const std::int64_t first = group * shares.regions.count / shares.groups,
                       last = (group + 1) * shares.regions.count / shares.groups;
    float* const sums = shared + conv_weight_copied(args, shares.regions);
    float* out = conv_weight_direct(args, shares) ? args.dw : sums + group * conv_weights_shared(args);
    for (std::int64_t region = first; region < last; ++region)
      conv_weight_region(args, grids, shares.regions, region, channel, channels, region == first, shared, out,
                         workspace);
  }
}

std::int64_t conv_weight_finish_items(const ConvolutionArgs& args) {
  return conv_weight_direct(args, convolution_weight_shares(args)) ? 0 : conv_weights_shared(args);
}
void conv_weight_finish(const ConvolutionArgs& args, std::int64_t begin, std::int64_t end, float* shared) {
  const ConvolutionWeightShares shares = convolution_weight_shares(args);
  const std::int64_t elements = conv_weights_shared(args);
  const float* const sums = shared + conv_weight_copied(args, shares.regions);
  for_lanes(begin, end, [&](std::int64_t i, std::int64_t n) TENON_BODY {
    F sum = load_group(sums + i, n);
    for (std::int64_t g = 1; g < shares.groups; ++g) sum = sum + load_group(sums + g * elements + i, n);
    store_group(args.dw + i, args.accumulate ? load_group(args.dw + i, n) + sum : sum, n);
  });
}
constexpr ConvolutionOps make_convolution_ops() {
  return {.forward = make_convolution_pass<ConvForward>(),
          .backward_input = make_convolution_pass<ConvBackward>(),
          .backward_weight = {.shared = conv_weight_shared,
                              .workspace = conv_weight_workspace,
                              .prepare_items = conv_weight_prepare_items,
                              .prepare = conv_weight_prepare,
                              .items = conv_weight_items,
                              .run = conv_weight_run,
                              .finish_items = conv_weight_finish_items,
                              .finish = conv_weight_finish}};
}

}  // namespace
}  // namespace tenon::kernels

#endif
