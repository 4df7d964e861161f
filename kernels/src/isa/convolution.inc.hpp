// Convolutions of planes (contract: convolution.hpp): y and dx. Lanes are points of the grid that is summed;
// a tile is a few rows (features of y, channels of dx) times two vectors of points, in registers. The source
// of a region is copied so that a vector's points are neighbours for every offset of the window, whatever the
// strides; dx of strided windows is a grid for each remainder of the row and column. Windows of one point
// have panels in place of copies.
#pragma once

#include <tenon/kernels/convolution.hpp>

#include "isa/simd.inc.hpp"

#if TENON_SIMD_BYTES > 16

namespace tenon::kernels {
namespace {

constexpr int kConvRows = TENON_SIMD_BYTES == 64 ? 13 : 6;
constexpr int kConvVectors = 2;
constexpr std::int64_t kConvPoints = 512;             ///< of a region, at most
constexpr std::int64_t kConvSourceFloats = 48 << 10;  ///< of a region's copies: they stay in the second cache
constexpr std::int64_t kConvWeightFloats = 6 << 10;   ///< of a tile's rows: they stay in the first
constexpr std::int64_t kConvItems = 16;

TENON_INLINE std::int64_t conv_ceil(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
TENON_INLINE std::int64_t conv_floor(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}
TENON_INLINE std::int64_t conv_least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
TENON_INLINE std::int64_t conv_most(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

/// Keeps a value that is used more than once in a register: the compiler would load it anew for each use.
TENON_INLINE void conv_hold(Part& value) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(value));
#elif TENON_SIMD_BYTES == 32
  __asm__("" : "+x"(value));
#endif
}

/// Sums over offsets of a window at each point (a, b) of a grid: of the source's elements
/// (a step + row, b step + column) of each offset.
struct ConvGrid {
  std::int64_t offsets = 0;  ///< offsets of the window that add something, as follows
  std::int64_t index[kConvolutionOffsets], row[kConvolutionOffsets], column[kConvolutionOffsets];
  std::int64_t at[kConvolutionOffsets];  ///< where point 0 of each offset's elements is in the copy
};

/// One grid for y; for dx one for each remainder of row and column by the strides, all of the first one's
/// size.
constexpr int kConvGrids = kConvolutionStride * kConvolutionStride;
struct ConvGrids {
  std::int64_t count = 1, rows = 0, columns = 0, step[2] = {1, 1};
  std::int64_t source[2] = {0, 0};  ///< extents of the source's planes
  ConvGrid grid[kConvGrids];
};

/// Distinct remainders by the step, each with the least and the greatest quotient.
struct ConvSteps {
  std::int64_t count = 0, remainder[kConvolutionOffsets], low[kConvolutionOffsets], high[kConvolutionOffsets];

  /// Adds an offset; returns the index of its remainder.
  TENON_INLINE std::int64_t add(std::int64_t offset, std::int64_t step) {
    const std::int64_t quotient = conv_floor(offset, step), rest = offset - quotient * step;
    std::int64_t i = 0;
    while (i < count && remainder[i] != rest) ++i;
    if (i == count) remainder[count] = rest, low[count] = high[count] = quotient, ++count;
    low[i] = conv_least(low[i], quotient), high[i] = conv_most(high[i], quotient);
    return i;
  }
  TENON_INLINE std::int64_t span() const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) most = conv_most(most, high[i] - low[i]);
    return most;
  }
};

/// The copy of a source for `rows` rows of its grids. First a padded one: for each remainder of the column,
/// and of the row, rows of `pitch` floats. Where vectors of points do not cross rows, it is the copy.
/// Elsewhere the copy has for each distinct column of an offset rows of the grid's length, so that the points
/// of all rows are neighbours.
struct ConvCopy {
  ConvSteps down, across;
  bool by_rows = true;
  std::int64_t rows = 0, columns = 0, pitch = 0;
  std::int64_t lines = 0;               ///< rows of all remainders of the row
  std::int64_t padded = 0, floats = 0;  ///< of one channel of one sample
  std::int64_t distinct = 0, column[kConvolutionOffsets], from[kConvolutionOffsets];
};

TENON_INLINE ConvCopy conv_copy_of(ConvGrids& grids, std::int64_t rows, std::int64_t lanes) {
  ConvCopy c;
  for (std::int64_t g = 0; g < grids.count; ++g)
    for (std::int64_t o = 0; o < grids.grid[g].offsets; ++o) {
      c.down.add(grids.grid[g].row[o], grids.step[0]);
      c.across.add(grids.grid[g].column[o], grids.step[1]);
    }
  c.rows = rows, c.columns = grids.columns, c.by_rows = grids.columns % lanes == 0;
  c.pitch = grids.columns + c.across.span();
  std::int64_t begin[kConvolutionOffsets];
  for (std::int64_t r = 0; r < c.down.count; ++r) {
    begin[r] = c.lines;
    c.lines += rows + c.down.high[r] - c.down.low[r];
  }
  c.padded = c.across.count * c.lines * c.pitch;
  for (std::int64_t g = 0; g < grids.count; ++g) {
    ConvGrid& grid = grids.grid[g];
    for (std::int64_t o = 0; o < grid.offsets; ++o) {
      const std::int64_t r = c.down.add(grid.row[o], grids.step[0]),
                         q = c.across.add(grid.column[o], grids.step[1]);
      const std::int64_t line = begin[r] + conv_floor(grid.row[o], grids.step[0]) - c.down.low[r];
      const std::int64_t from =
          q * c.lines * c.pitch + conv_floor(grid.column[o], grids.step[1]) - c.across.low[q];
      if (c.by_rows) {
        grid.at[o] = line * c.pitch + from;
        continue;
      }
      std::int64_t i = 0;
      while (i < c.distinct && c.column[i] != grid.column[o]) ++i;
      if (i == c.distinct) c.column[i] = grid.column[o], c.from[i] = from, ++c.distinct;
      grid.at[o] = (i * c.lines + line) * grids.columns;
    }
  }
  c.floats = c.by_rows ? c.padded : c.distinct * c.lines * grids.columns;
  return c;
}

/// Whether the grid's points are the source's: a window of one point.
TENON_INLINE bool conv_in_place(const ConvGrids& grids) {
  const ConvGrid& grid = grids.grid[0];
  return grids.count == 1 && grid.offsets == 1 && grid.row[0] == 0 && grid.column[0] == 0 &&
         grids.step[0] == 1 && grids.step[1] == 1 && grids.source[0] == grids.rows &&
         grids.source[1] == grids.columns;
}

/// Floats before the copies of a region: the padded one, and room for a vector after it.
TENON_INLINE std::int64_t conv_stage(const ConvCopy& copy) {
  return copy.by_rows ? 0 : copy.padded + kLanes;
}

/// to[0, count) = from[0, count). Writes whole vectors: up to a vector more.
TENON_INLINE void conv_move(const float* from, std::int64_t count, float* to) {
  if (count <= 4) return __builtin_memcpy(to, from, 4 * sizeof(float)), void();
  for (std::int64_t i = 0; i < count; i += kPartLanes) store_part(to + i, load_part(from + i));
}

/// to[0, count) = from[0, count), and nothing else is read or written.
TENON_INLINE void conv_take(const float* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kPartLanes <= count; i += kPartLanes) store_part(to + i, load_part(from + i));
  for (; i + 4 <= count; i += 4) __builtin_memcpy(to + i, from + i, 4 * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
}

/// Zeros; few of them, for which a call would take longer than the loop.
TENON_INLINE void conv_clear(float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kPartLanes <= count; i += kPartLanes) store_part(to + i, Part{});
  for (; i < count; ++i) {
    to[i] = 0.0f;
    __asm__ volatile("");  // or the compiler calls memset
  }
}

/// to[i] = from[2 i].
TENON_INLINE void conv_take_pairs(const float* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kPartLanes < count; i += kPartLanes) {  // the last element of a pair of registers is read, too
    const Part low = load_part(from + 2 * i), high = load_part(from + 2 * i + kPartLanes);
#if TENON_SIMD_BYTES == 64
    store_part(to + i,
               __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
#else
    store_part(to + i, __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14));
#endif
  }
  for (; i < count; ++i) to[i] = from[2 * i];
}

/// The padded copy of rows [a, a + rows) of the grids for one plane of the source.
inline void conv_pad(const ConvGrids& grids, const ConvCopy& copy, const float* plane, std::int64_t a,
                     float* to) {
  const std::int64_t height = grids.source[0], width = grids.source[1], step = grids.step[1];
  for (std::int64_t q = 0; q < copy.across.count; ++q) {
    const std::int64_t low = copy.across.low[q], shift = low * step + copy.across.remainder[q];
    const std::int64_t begin = conv_least(copy.pitch, shift < 0 ? conv_ceil(-shift, step) : 0);
    const std::int64_t end =
        conv_most(begin, conv_least(copy.pitch, conv_floor(width - 1 - shift, step) + 1));
    for (std::int64_t r = 0; r < copy.down.count; ++r) {
      const std::int64_t count = copy.rows + copy.down.high[r] - copy.down.low[r];
      std::int64_t at = (a + copy.down.low[r]) * grids.step[0] + copy.down.remainder[r];
      for (std::int64_t i = 0; i < count; ++i, at += grids.step[0], to += copy.pitch) {
        if (at < 0 || at >= height) {
          conv_clear(to, copy.pitch);
          continue;
        }
        const float* from = plane + at * width + shift;
        conv_clear(to, begin);
        if (step == 1) {
          conv_take(from + begin, end - begin, to + begin);
        } else {
          conv_take_pairs(from + begin * 2, end - begin, to + begin);
        }
        conv_clear(to + end, copy.pitch - end);
      }
    }
  }
}

/// The copy of one plane; `stage` has room for the padded one.
TENON_INLINE void conv_copy(const ConvGrids& grids, const ConvCopy& copy, const float* plane, std::int64_t a,
                            float* stage, float* to) {
  if (copy.by_rows) return conv_pad(grids, copy, plane, a, to);
  conv_pad(grids, copy, plane, a, stage);
  for (std::int64_t i = 0; i < copy.distinct; ++i)
    for (std::int64_t line = 0; line < copy.lines; ++line, to += copy.columns)
      conv_move(stage + copy.from[i] + line * copy.pitch, copy.columns, to);
}

/// Where a point of the region is in its sample's copy, of offset 0 of the first channel.
TENON_INLINE std::int64_t conv_point(const ConvCopy& copy, std::int64_t point) {
  return copy.by_rows ? point / copy.columns * copy.pitch + point % copy.columns : point;
}

inline void conv_forward_grids(const Window& w, ConvGrids& g) {
  g.rows = w.out[1], g.columns = w.out[2];
  for (int d = 0; d < 2; ++d) g.step[d] = w.stride[d + 1], g.source[d] = w.in[d + 1];
  ConvGrid& grid = g.grid[0];
  for (std::int64_t i = 0; i < w.kernel[1]; ++i)
    for (std::int64_t j = 0; j < w.kernel[2]; ++j, ++grid.offsets) {
      grid.index[grid.offsets] = grid.offsets;
      grid.row[grid.offsets] = i * w.dilation[1] - w.pad[1];
      grid.column[grid.offsets] = j * w.dilation[2] - w.pad[2];
    }
}

inline void conv_backward_grids(const Window& w, ConvGrids& g) {
  g.count = w.stride[1] * w.stride[2];
  g.rows = conv_ceil(w.in[1], w.stride[1]), g.columns = conv_ceil(w.in[2], w.stride[2]);
  for (int d = 0; d < 2; ++d) g.source[d] = w.out[d + 1];
  for (std::int64_t phase = 0; phase < g.count; ++phase) {
    ConvGrid& grid = g.grid[phase];
    for (std::int64_t i = 0; i < w.kernel[1]; ++i)
      for (std::int64_t j = 0; j < w.kernel[2]; ++j) {
        const std::int64_t row = phase / w.stride[2] + w.pad[1] - i * w.dilation[1],
                           column = phase % w.stride[2] + w.pad[2] - j * w.dilation[2];
        if (row % w.stride[1] != 0 || column % w.stride[2] != 0) continue;
        grid.index[grid.offsets] = i * w.kernel[2] + j;
        grid.row[grid.offsets] = row / w.stride[1], grid.column[grid.offsets] = column / w.stride[2];
        ++grid.offsets;
      }
  }
}

/// Two vectors of points times R rows.
struct ConvTile {
  const float* source[kConvVectors];
  std::int64_t depth = 0, stride = 0;  ///< terms, and floats from one to the next in the source
  std::int64_t offsets = 0;
  const std::int64_t* at = nullptr;
  const float* weights = nullptr;
  float* out[kConvVectors];
  std::int64_t out_stride = 0;  ///< from row to row
  std::int64_t count[kConvVectors];
  bool set = false;             ///< sums begin with zero
  const float* bias = nullptr;  ///< of the rows; after the last term
};

template <int R>
[[gnu::noinline]] void conv_tile(const ConvTile& t) {
  Part sums[R][kConvVectors];
  if (t.set) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kConvVectors; ++v) sums[i][v] = Part{};
  } else {
#pragma GCC unroll 2
    for (int v = 0; v < kConvVectors; ++v) {
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const float* p = t.out[v] + i * t.out_stride;
        sums[i][v] = t.count[v] == kPartLanes ? load_part(p) : load_part_first(p, t.count[v]);
      }
    }
  }
  const float *a = t.source[0], *b = t.source[1], *w = t.weights;
  const std::int64_t* const last = t.at + t.offsets;
  for (std::int64_t d = 0; d < t.depth; ++d, a += t.stride, b += t.stride)
    for (const std::int64_t* at = t.at; at != last; ++at, w += R) {
      const Part x = load_part(a + *at), y = load_part(b + *at);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const Part m = w[i] - Part{};
        sums[i][0] = mul_add_part(m, x, sums[i][0]);
        sums[i][1] = mul_add_part(m, y, sums[i][1]);
      }
    }
  if (t.bias != nullptr) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kConvVectors; ++v) sums[i][v] = sums[i][v] + (t.bias[i] - Part{});
  }
#pragma GCC unroll 2
  for (int v = 0; v < kConvVectors; ++v) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      float* p = t.out[v] + i * t.out_stride;
      if (t.count[v] == kPartLanes)
        store_part(p, sums[i][v]);
      else
        store_part_first(p, sums[i][v], t.count[v]);
    }
  }
}

template <int R = kConvRows>
TENON_INLINE void conv_tile_of(std::int64_t rows, const ConvTile& t) {
  if (rows == R) return conv_tile<R>(t);
  if constexpr (R > 1) conv_tile_of<R - 1>(rows, t);
}

/// One pass: `rows` planes of the result, each of `depth` terms for each offset.
struct ConvSums {
  std::int64_t rows = 0, depth = 0;
  const float* source = nullptr;
  std::int64_t source_sample = 0, source_plane = 0;
  float* out = nullptr;
  std::int64_t out_sample = 0, out_extent[2] = {0, 0}, out_step[2] = {1, 1};  ///< steps: of the grids
  const float* weights = nullptr;                                             ///< packed, grid by grid
  const float* bias = nullptr;
  bool accumulate = false;
};

TENON_INLINE std::int64_t conv_tiles(std::int64_t rows) {
  return conv_ceil(rows, kConvRows);
}
TENON_INLINE std::int64_t conv_tile_begin(std::int64_t rows, std::int64_t tile) {
  return rows * tile / conv_tiles(rows);
}

/// packed[term, offset, row] = rows of one tile.
inline void conv_pack(const ConvGrid& grid, const float* w, std::int64_t row_stride,
                      std::int64_t depth_stride, std::int64_t rows, std::int64_t depth, float* packed) {
  for (std::int64_t d = 0; d < depth; ++d)
    for (std::int64_t o = 0; o < grid.offsets; ++o) {
      const float* from = w + d * depth_stride + grid.index[o];
      for (std::int64_t i = 0; i < rows; ++i) *packed++ = from[i * row_stride];
    }
}

/// The samples of a region, and the grid's rows of each.
struct ConvBand {
  std::int64_t sample, samples, row, rows;
};
TENON_INLINE ConvBand conv_band(const ConvolutionRegions& regions, std::int64_t region, std::int64_t batch,
                                std::int64_t rows) {
  const std::int64_t sample = region / regions.bands * regions.samples,
                     row = region % regions.bands * regions.rows;
  return {sample, conv_least(regions.samples, batch - sample), row, conv_least(regions.rows, rows - row)};
}

struct ConvShares {
  ConvolutionRegions regions;
  std::int64_t groups = 1;  ///< of rows
};
inline ConvShares conv_shares(std::int64_t batch, const ConvGrids& grids, std::int64_t out_rows) {
  ConvShares s;
  const std::int64_t all = batch * grids.rows * grids.columns;
  s.regions = convolution_regions(batch, grids.rows, grids.columns,
                                  conv_most(128, conv_least(kConvPoints, all / kConvItems)));
  const std::int64_t tiles = conv_tiles(out_rows);
  if (s.regions.count > 0 && s.regions.count < kConvItems)
    s.groups = conv_least(tiles, conv_ceil(kConvItems, s.regions.count));
  return s;
}

/// Terms whose copies and weights fit the caches.
TENON_INLINE std::int64_t conv_depth(const ConvGrids& grids, std::int64_t samples, const ConvCopy& copy,
                                     std::int64_t depth) {
  std::int64_t offsets = 1;
  for (std::int64_t g = 0; g < grids.count; ++g) offsets = conv_most(offsets, grids.grid[g].offsets);
  const std::int64_t by_source = kConvSourceFloats / conv_most(1, samples * copy.floats),
                     by_weights = kConvWeightFloats / (offsets * kConvRows);
  const std::int64_t most = conv_most(1, conv_least(by_source, by_weights));
  return conv_ceil(depth, conv_ceil(depth, most));
}

/// Windows of one point, whose source is where the sums want it. Planes are often powers of two apart, so the
/// terms of a vector of points share few sets of the caches. Panels have them side by side: `vectors` of them
/// at a time, `depth` terms each. A single tile would not use a panel again: it takes a few planes at a time,
/// along all points.
struct ConvPoints {
  std::int64_t depth = 0, vectors = 0;
};
constexpr std::int64_t kConvPointVectors = kConvPoints / kPartLanes;
TENON_INLINE ConvPoints conv_points_of(std::int64_t depth, bool panels) {
  constexpr std::int64_t kPlanes = 8, kPanelFloats = 16 << 10;
  const std::int64_t most = panels ? kPanelFloats / (kConvVectors * kPartLanes) : kPlanes;
  ConvPoints p;
  p.depth = conv_ceil(depth, conv_ceil(depth, most));
  p.vectors = kConvPointVectors;
  if (panels)
    p.vectors = conv_least(p.vectors, kPanelFloats / (p.depth * kPartLanes) / kConvVectors * kConvVectors);
  return p;
}

/// Points of a sample's line in the buffer of sums, where the grids' points are not neighbours in the result.
TENON_INLINE std::int64_t conv_line(std::int64_t points) {
  return conv_ceil(points, kPartLanes) * kPartLanes;
}

inline std::int64_t conv_grids_workspace(ConvGrids& grids, const ConvShares& shares, std::int64_t rows,
                                         std::int64_t depth) {
  if (shares.regions.count == 0) return 0;
  if (conv_in_place(grids)) {
    const ConvPoints p = conv_points_of(depth, true);
    return p.depth * p.vectors * kPartLanes;
  }
  const ConvCopy copy = conv_copy_of(grids, shares.regions.rows, kPartLanes);
  const std::int64_t samples = shares.regions.samples;
  std::int64_t floats =
      conv_stage(copy) + conv_depth(grids, samples, copy, depth) * samples * copy.floats + kLanes;
  if (grids.count > 1) {
    const std::int64_t tiles = conv_tiles(rows);
    std::int64_t most = 0;  // rows of a group
    for (std::int64_t g = 0; g < shares.groups; ++g)
      most = conv_most(most, conv_tile_begin(rows, tiles * (g + 1) / shares.groups) -
                                 conv_tile_begin(rows, tiles * g / shares.groups));
    floats += grids.count * most * samples * conv_line(shares.regions.rows * grids.columns);
  }
  return floats;
}

/// Lines of sums from grid to grid, row to row and sample to sample.
struct ConvLines {
  float* sums = nullptr;
  std::int64_t rows = 0, samples = 0, line = 0;
  TENON_INLINE float* at(std::int64_t grid, std::int64_t row, std::int64_t sample) const {
    return sums + ((grid * rows + row) * samples + sample) * line;
  }
};

/// The rows of one plane that a region has: from the old values to lines, or from lines.
TENON_INLINE void conv_lines_begin(const ConvGrids& grids, const ConvSums& s, const ConvLines& lines,
                                   std::int64_t a, std::int64_t rows, std::int64_t row, std::int64_t sample,
                                   const float* plane) {
  for (std::int64_t g = 0; g < grids.count; ++g) {
    float* to = lines.at(g, row, sample);
    const std::int64_t down = g / s.out_step[1], across = g % s.out_step[1];
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t at = (a + i) * s.out_step[0] + down;
      if (at >= s.out_extent[0]) break;
      const float* from = plane + at * s.out_extent[1];
      for (std::int64_t b = 0; b * s.out_step[1] + across < s.out_extent[1]; ++b)
        to[i * grids.columns + b] = from[b * s.out_step[1] + across];
    }
  }
}
TENON_INLINE void conv_lines_end(const ConvGrids& grids, const ConvSums& s, const ConvLines& lines,
                                 std::int64_t a, std::int64_t rows, std::int64_t row, std::int64_t sample,
                                 float* plane) {
  const std::int64_t width = s.out_extent[1];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t down = 0; down < s.out_step[0]; ++down) {
      const std::int64_t at = (a + i) * s.out_step[0] + down;
      if (at >= s.out_extent[0]) break;
      float* to = plane + at * width;
      const float* first = lines.at(down * s.out_step[1], row, sample) + i * grids.columns;
      if (s.out_step[1] == 1) {
        for (std::int64_t b = 0; b < width; ++b) to[b] = first[b];
        continue;
      }
      const float* second = lines.at(down * 2 + 1, row, sample) + i * grids.columns;
      const std::int64_t pairs = width / 2;
      for (std::int64_t b = 0; b < pairs; ++b) to[2 * b] = first[b], to[2 * b + 1] = second[b];
      if (width % 2 != 0) to[width - 1] = first[pairs];
    }
}

/// A panel, or several side by side, of points that follow one another in each plane.
template <int Panels>
TENON_INLINE void conv_panels(const float* from, std::int64_t plane, std::int64_t depth, float* to) {
  constexpr std::int64_t kWidth = kConvVectors * kPartLanes;
  for (std::int64_t d = 0; d < depth; ++d, from += plane, to += kWidth)
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < Panels; ++p)
#pragma GCC unroll 2
      for (std::int64_t v = 0; v < kConvVectors; ++v)
        store_part(to + p * depth * kWidth + v * kPartLanes, load_part(from + p * kWidth + v * kPartLanes));
}
/// One vector of a panel.
inline void conv_panel_vector(const float* from, std::int64_t count, std::int64_t plane, std::int64_t depth,
                              float* to) {
  for (std::int64_t d = 0; d < depth; ++d, from += plane, to += kConvVectors * kPartLanes)
    store_part(to, load_part_first(from, count));
}

/// conv_region for windows of one point.
inline void conv_points(const ConvGrids& grids, const ConvSums& s, const ConvolutionRegions& regions,
                        std::int64_t batch, std::int64_t region, std::int64_t tile_begin,
                        std::int64_t tile_end, float* panels) {
  const ConvBand band = conv_band(regions, region, batch, grids.rows);
  const std::int64_t sample = band.sample, samples = band.samples, a = band.row, rows = band.rows;
  const std::int64_t points = rows * grids.columns, plane = grids.rows * grids.columns,
                     vectors = conv_ceil(points, kPartLanes);
  constexpr std::int64_t kTogether = 4 * kConvVectors;
  // A vector that ends after its plane is read by lanes.
  const bool packs = tile_end - tile_begin > 1 || points % kPartLanes != 0;
  const ConvPoints block = conv_points_of(s.depth, packs);
  const std::int64_t zero = 0;
  ConvTile t;
  t.stride = packs ? kConvVectors * kPartLanes : plane, t.out_stride = plane;
  t.offsets = 1, t.at = &zero;
  for (std::int64_t begin = 0; begin < samples * vectors; begin += block.vectors) {
    const std::int64_t count = conv_least(block.vectors, samples * vectors - begin);
    std::int64_t from[kConvPointVectors], to[kConvPointVectors], valid[kConvPointVectors];
    for (std::int64_t v = 0; v < count; ++v) {
      const std::int64_t i = sample + (begin + v) / vectors, point = (begin + v) % vectors * kPartLanes;
      from[v] = i * s.source_sample + a * grids.columns + point;
      to[v] = i * s.out_sample + a * grids.columns + point;
      valid[v] = conv_least(kPartLanes, points - point);
    }
    for (std::int64_t d = 0; d < s.depth; d += block.depth) {
      const std::int64_t depth = conv_least(block.depth, s.depth - d);
      const float* const source = s.source + d * plane;
      for (std::int64_t v = 0; packs && v < count;) {
        const std::int64_t last = v + kTogether - 1;
        float* const panel =
            panels + v / kConvVectors * kConvVectors * depth * kPartLanes + v % kConvVectors * kPartLanes;
        if (v % kConvVectors == 0 && last < count && from[last] - from[v] == (last - v) * kPartLanes &&
            valid[last] == kPartLanes) {
          conv_panels<4>(source + from[v], plane, depth, panel);
          v += kTogether;
        } else {
          conv_panel_vector(source + from[v], valid[v], plane, depth, panel);
          ++v;
        }
      }
      t.depth = depth, t.set = d == 0 && !s.accumulate;
      for (std::int64_t tile = tile_begin; tile < tile_end; ++tile) {
        const std::int64_t row = conv_tile_begin(s.rows, tile), end = conv_tile_begin(s.rows, tile + 1);
        t.weights = s.weights + row * s.depth + d * (end - row);
        t.bias = s.bias != nullptr && d + depth == s.depth ? s.bias + row : nullptr;
        for (std::int64_t v = 0; v < count; v += kConvVectors) {
          for (std::int64_t k = 0; k < kConvVectors; ++k) {
            const bool there = v + k < count;
            const std::int64_t at = there ? v + k : v;
            t.source[k] = packs ? panels + v * depth * kPartLanes + (at - v) * kPartLanes : source + from[at];
            t.out[k] = s.out + row * plane + to[at];
            t.count[k] = there ? valid[at] : 0;
          }
          conv_tile_of(end - row, t);
        }
      }
    }
  }
}

/// One region for tiles [tile_begin, tile_end) of its rows.
inline void conv_region(ConvGrids& grids, const ConvSums& s, const ConvolutionRegions& regions,
                        std::int64_t batch, std::int64_t region, std::int64_t tile_begin,
                        std::int64_t tile_end, float* workspace) {
  const ConvBand band = conv_band(regions, region, batch, grids.rows);
  const std::int64_t sample = band.sample, samples = band.samples, a = band.row, rows = band.rows;
  const std::int64_t points = rows * grids.columns, vectors = conv_ceil(points, kPartLanes);
  const std::int64_t row_begin = conv_tile_begin(s.rows, tile_begin),
                     row_end = conv_tile_begin(s.rows, tile_end);
  const ConvCopy copy = conv_copy_of(grids, rows, kPartLanes);
  const std::int64_t depth_block = conv_depth(grids, samples, copy, s.depth);
  float* const source = workspace + conv_stage(copy);
  const std::int64_t out_plane = s.out_extent[0] * s.out_extent[1];
  const bool direct = grids.count == 1;
  const ConvLines lines{source + depth_block * samples * copy.floats + kLanes, row_end - row_begin, samples,
                        conv_line(points)};
  const auto plane_of = [&](std::int64_t i, std::int64_t row)
                            TENON_BODY { return s.out + (sample + i) * s.out_sample + row * out_plane; };
  if (!direct) {
    if (!s.accumulate)
      for (std::int64_t g = 0; g < grids.count; ++g)
        if (grids.grid[g].offsets == 0)
          __builtin_memset(lines.at(g, 0, 0), 0, lines.rows * samples * lines.line * sizeof(float));
    for (std::int64_t row = row_begin; s.accumulate && row < row_end; ++row)
      for (std::int64_t i = 0; i < samples; ++i)
        conv_lines_begin(grids, s, lines, a, rows, row - row_begin, i, plane_of(i, row));
  }
  ConvTile t;
  t.stride = samples * copy.floats;
  t.out_stride = direct ? out_plane : samples * lines.line;
  for (std::int64_t d = 0; d < s.depth; d += depth_block) {
    t.depth = conv_least(depth_block, s.depth - d);
    for (std::int64_t i = 0; i < t.depth; ++i)
      for (std::int64_t j = 0; j < samples; ++j)
        conv_copy(grids, copy, s.source + (sample + j) * s.source_sample + (d + i) * s.source_plane, a,
                  workspace, source + (i * samples + j) * copy.floats);
    t.set = d == 0 && !s.accumulate;
    const float* weights = s.weights;
    for (std::int64_t g = 0; g < grids.count; ++g) {
      const ConvGrid& grid = grids.grid[g];
      t.offsets = grid.offsets, t.at = grid.at;
      for (std::int64_t tile = tile_begin; grid.offsets > 0 && tile < tile_end; ++tile) {
        const std::int64_t row = conv_tile_begin(s.rows, tile), end = conv_tile_begin(s.rows, tile + 1);
        t.weights = weights + (row * s.depth + d * (end - row)) * grid.offsets;
        t.bias = s.bias != nullptr && d + t.depth == s.depth ? s.bias + row : nullptr;
        for (std::int64_t v = 0; v < samples * vectors; v += kConvVectors) {
          for (int k = 0; k < kConvVectors; ++k) {
            const bool there = v + k < samples * vectors;
            const std::int64_t at = there ? v + k : v, i = at / vectors, point = at % vectors * kPartLanes;
            t.source[k] = source + i * copy.floats + conv_point(copy, point);
            t.out[k] = direct ? plane_of(i, row) + a * grids.columns + point
                              : lines.at(g, row - row_begin, i) + point;
            t.count[k] = !there ? 0 : direct ? conv_least(kPartLanes, points - point) : kPartLanes;
          }
          conv_tile_of(end - row, t);
        }
      }
      weights += s.rows * s.depth * grid.offsets;
    }
  }
  for (std::int64_t row = row_begin; !direct && row < row_end; ++row)
    for (std::int64_t i = 0; i < samples; ++i)
      conv_lines_end(grids, s, lines, a, rows, row - row_begin, i, plane_of(i, row));
}

TENON_INLINE void conv_regions_of_items(ConvGrids& grids, const ConvSums& s, const ConvShares& shares,
                                        std::int64_t batch, std::int64_t begin, std::int64_t end,
                                        float* workspace) {
  const std::int64_t tiles = conv_tiles(s.rows);
  const bool in_place = conv_in_place(grids), direct = grids.count == 1;
  for (std::int64_t item = begin, last = 0; item < end; item = last) {
    // One copy of the source for all groups of a region; sums in lines have room for one group.
    const std::int64_t region = item / shares.groups, group = item % shares.groups;
    last = direct ? conv_least(end, (region + 1) * shares.groups) : item + 1;
    const std::int64_t tile_begin = tiles * group / shares.groups,
                       tile_end = tiles * (last - region * shares.groups) / shares.groups;
    if (in_place)
      conv_points(grids, s, shares.regions, batch, region, tile_begin, tile_end, workspace);
    else
      conv_region(grids, s, shares.regions, batch, region, tile_begin, tile_end, workspace);
  }
}

TENON_INLINE std::int64_t conv_window_offsets(const Window& w) {
  return w.kernel[1] * w.kernel[2];
}
std::int64_t conv_weights_shared(const ConvolutionArgs& args) {
  return args.features * args.channels * conv_window_offsets(args.window);
}

/// A product whose rows are planes of the result: its grids, its sums, and how far its weights' rows and
/// terms are apart in w, in windows.
struct ConvForward {
  static TENON_INLINE void grids(const Window& w, ConvGrids& g) { conv_forward_grids(w, g); }
  static TENON_INLINE std::int64_t rows(const ConvolutionArgs& args) { return args.features; }
  static TENON_INLINE std::int64_t depth(const ConvolutionArgs& args) { return args.channels; }
  static TENON_INLINE std::int64_t row_stride(const ConvolutionArgs& args) { return args.channels; }
  static TENON_INLINE std::int64_t depth_stride(const ConvolutionArgs&) { return 1; }
  static TENON_INLINE ConvSums sums(const ConvolutionArgs& args) {
    const Window& w = args.window;
    ConvSums s;
    s.source = args.x, s.source_plane = w.in[1] * w.in[2];
    s.out = args.y, s.out_extent[0] = w.out[1], s.out_extent[1] = w.out[2];
    s.bias = args.bias;
    return s;
  }
};
struct ConvBackward {
  static TENON_INLINE void grids(const Window& w, ConvGrids& g) { conv_backward_grids(w, g); }
  static TENON_INLINE std::int64_t rows(const ConvolutionArgs& args) { return args.channels; }
  static TENON_INLINE std::int64_t depth(const ConvolutionArgs& args) { return args.features; }
  static TENON_INLINE std::int64_t row_stride(const ConvolutionArgs&) { return 1; }
  static TENON_INLINE std::int64_t depth_stride(const ConvolutionArgs& args) { return args.channels; }
  static TENON_INLINE ConvSums sums(const ConvolutionArgs& args) {
    const Window& w = args.window;
    ConvSums s;
    s.source = args.dy, s.source_plane = w.out[1] * w.out[2];
    s.out = args.dx, s.accumulate = args.accumulate;
    for (int d = 0; d < 2; ++d) s.out_extent[d] = w.in[d + 1], s.out_step[d] = w.stride[d + 1];
    return s;
  }
};

template <class Product>
std::int64_t conv_workspace(const ConvolutionArgs& args) {
  ConvGrids grids;
  Product::grids(args.window, grids);
  const std::int64_t rows = Product::rows(args);
  return conv_grids_workspace(grids, conv_shares(args.batch, grids, rows), rows, Product::depth(args));
}
template <class Product>
std::int64_t conv_prepare_items(const ConvolutionArgs& args) {
  return conv_tiles(Product::rows(args));
}
template <class Product>
void conv_prepare(const ConvolutionArgs& args, std::int64_t begin, std::int64_t end, float* shared) {
  ConvGrids grids;
  Product::grids(args.window, grids);
  const std::int64_t rows = Product::rows(args), depth = Product::depth(args),
                     offsets = conv_window_offsets(args.window),
                     row_stride = Product::row_stride(args) * offsets,
                     depth_stride = Product::depth_stride(args) * offsets;
  for (std::int64_t g = 0; g < grids.count; ++g) {
    const ConvGrid& grid = grids.grid[g];
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t row = conv_tile_begin(rows, tile);
      conv_pack(grid, args.w + row * row_stride, row_stride, depth_stride,
                conv_tile_begin(rows, tile + 1) - row, depth, shared + row * depth * grid.offsets);
    }
    shared += rows * depth * grid.offsets;
  }
}
template <class Product>
std::int64_t conv_items(const ConvolutionArgs& args) {
  ConvGrids grids;
  Product::grids(args.window, grids);
  const ConvShares shares = conv_shares(args.batch, grids, Product::rows(args));
  return shares.regions.count * shares.groups;
}
template <class Product>
void conv_run(const ConvolutionArgs& args, std::int64_t begin, std::int64_t end, float* shared,
              float* workspace) {
  ConvGrids grids;
  Product::grids(args.window, grids);
  ConvSums s = Product::sums(args);
  s.rows = Product::rows(args), s.depth = Product::depth(args);
  s.source_sample = s.depth * s.source_plane;
  s.out_sample = s.rows * s.out_extent[0] * s.out_extent[1];
  s.weights = shared;
  conv_regions_of_items(grids, s, conv_shares(args.batch, grids, s.rows), args.batch, begin, end, workspace);
}

std::int64_t conv_no_items(const ConvolutionArgs&) {
  return 0;
}
void conv_no_finish(const ConvolutionArgs&, std::int64_t, std::int64_t, float*) {}

template <class Product>
constexpr ConvolutionPass make_convolution_pass() {
  return {.shared = conv_weights_shared,
          .workspace = conv_workspace<Product>,
          .prepare_items = conv_prepare_items<Product>,
          .prepare = conv_prepare<Product>,
          .items = conv_items<Product>,
          .run = conv_run<Product>,
          .finish_items = conv_no_items,
          .finish = conv_no_finish};
}

}  // namespace
}  // namespace tenon::kernels

#endif
