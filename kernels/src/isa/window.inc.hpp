// Sliding windows (contract: window.hpp), by lines: what differs in the last dimension alone is one inner
// loop. Sums have the order of the reference, offsets ascending, so the bits are the same.
#pragma once

#include <tenon/kernels/window.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

TENON_INLINE std::int64_t volume(const std::int64_t (&extents)[3]) {
  return extents[0] * extents[1] * extents[2];
}

TENON_INLINE std::int64_t shorter(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// Offsets [begin, end) of one dimension that lie inside when the window's first element lies at `at`.
struct Inside {
  std::int64_t begin, end;
};
TENON_INLINE Inside inside(const Window& w, int d, std::int64_t at) {
  const std::int64_t step = w.dilation[d];
  const std::int64_t begin = at < 0 ? (step - 1 - at) / step : 0;
  const std::int64_t end = at < w.in[d] ? shorter(w.kernel[d], (w.in[d] - 1 - at) / step + 1) : 0;
  return {begin, end < begin ? begin : end};
}
TENON_INLINE std::int64_t start(const Window& w, int d, std::int64_t place) {
  return place * w.stride[d] - w.pad[d];
}

constexpr std::int64_t kTile = 16;

/// Elements at which one offset meets `count` successive places of a line, into a run of a tile; `from` is
/// null in the padding.
template <class S>
TENON_INLINE void copy_run(const S* from, std::int64_t first, std::int64_t stride, std::int64_t extent,
                           std::int64_t count, S* to) {
  // Moves of a whole tile have a size that the compiler knows: no call, and no loop.
  if (from != nullptr && stride == 1 && first >= 0 && first + kTile <= extent) {
    __builtin_memcpy(to, from + first, kTile * sizeof(S));
    return;
  }
  __builtin_memset(to, 0, kTile * sizeof(S));
  if (from == nullptr || first >= extent) return;
  const std::int64_t begin = first < 0 ? (stride - 1 - first) / stride : 0;
  const std::int64_t end = shorter(count, (extent - 1 - first) / stride + 1);
  if (stride == 1) {
    for (std::int64_t r = begin; r < end; ++r) to[r] = from[first + r];
  } else {
    for (std::int64_t r = begin; r < end; ++r) to[r] = from[first + r * stride];
  }
}

/// Runs of a line lie across the rows of columns: they are collected and turned round in tiles.
template <class S>
struct Tile {
  S runs[kTile][kTile];
  std::int64_t filled = 0;

  TENON_INLINE void flush(S* rows, std::int64_t width, std::int64_t count) {
    if (filled == kTile) {
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t t = 0; t < kTile; ++t) rows[r * width + t] = runs[t][r];
    } else {
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t t = 0; t < filled; ++t) rows[r * width + t] = runs[t][r];
    }
    filled = 0;
  }
};

/// `count` rows of columns from place `ow` of the line (od, oh) on.
template <class S>
TENON_INLINE void unfold_rows(const UnfoldArgs<S>& args, const S* sample, std::int64_t od, std::int64_t oh,
                              std::int64_t ow, std::int64_t count, S* rows) {
  const Window& w = args.window;
  const std::int64_t width = args.channels * volume(w.kernel);
  Tile<S> tile;
  for (std::int64_t c = 0; c < args.channels; ++c)
    for (std::int64_t kd = 0; kd < w.kernel[0]; ++kd)
      for (std::int64_t kh = 0; kh < w.kernel[1]; ++kh) {
        const std::int64_t id = start(w, 0, od) + kd * w.dilation[0],
                           ih = start(w, 1, oh) + kh * w.dilation[1];
        const bool padding = id < 0 || id >= w.in[0] || ih < 0 || ih >= w.in[1];
        const S* line = padding ? nullptr : sample + ((c * w.in[0] + id) * w.in[1] + ih) * w.in[2];
        for (std::int64_t kw = 0; kw < w.kernel[2]; ++kw) {
          copy_run(line, start(w, 2, ow) + kw * w.dilation[2], w.stride[2], w.in[2], count,
                   tile.runs[tile.filled]);
          if (++tile.filled < kTile) continue;
          tile.flush(rows, width, count);
          rows += kTile;
        }
      }
  tile.flush(rows, width, count);
}

template <class S>
void unfold(const UnfoldArgs<S>& args, std::int64_t line_begin, std::int64_t line_end) {
  const Window& w = args.window;
  const std::int64_t width = args.channels * volume(w.kernel), lines = w.out[0] * w.out[1];
  for (std::int64_t line = line_begin; line < line_end; ++line) {
    const S* sample = args.x + line / lines * args.sample_stride;
    for (std::int64_t ow = 0; ow < w.out[2]; ow += kTile)
      unfold_rows(args, sample, line % lines / w.out[1], line % w.out[1], ow, shorter(kTile, w.out[2] - ow),
                  args.columns + (line * w.out[2] + ow) * width);
  }
}

/// The place whose window meets element `i` of dimension d with offset k, or -1.
TENON_INLINE std::int64_t meeting(const Window& w, int d, std::int64_t i, std::int64_t k) {
  const std::int64_t from = i + w.pad[d] - k * w.dilation[d];
  if (from < 0 || from % w.stride[d] != 0) return -1;
  const std::int64_t place = from / w.stride[d];
  return place < w.out[d] ? place : -1;
}

constexpr std::int64_t kLineBlock = 64;

/// Elements [begin, end) of the last dimension of line (id, ih): sums[i - begin] over all offsets of
/// term(element, place, offset).
template <class Term>
TENON_INLINE void gather_block(const Window& w, std::int64_t id, std::int64_t ih, std::int64_t begin,
                               std::int64_t end, float* sums, Term term) {
  const std::int64_t stride = w.stride[2], line = (id * w.in[1] + ih) * w.in[2];
  for (std::int64_t kd = 0; kd < w.kernel[0]; ++kd) {
    const std::int64_t od = meeting(w, 0, id, kd);
    if (od < 0) continue;
    for (std::int64_t kh = 0; kh < w.kernel[1]; ++kh) {
      const std::int64_t oh = meeting(w, 1, ih, kh);
      if (oh < 0) continue;
      for (std::int64_t kw = 0; kw < w.kernel[2]; ++kw) {
        const std::int64_t shift = kw * w.dilation[2] - w.pad[2];  // element = place stride + shift
        const std::int64_t low = begin - shift, high = end - 1 - shift;
        if (high < 0) continue;
        const std::int64_t last = shorter(w.out[2] - 1, high / stride);
        for (std::int64_t ow = low > 0 ? (low + stride - 1) / stride : 0; ow <= last; ++ow) {
          const std::int64_t i = ow * stride + shift;
          sums[i - begin] += term(line + i, (od * w.out[1] + oh) * w.out[2] + ow,
                                  (kd * w.kernel[1] + kh) * w.kernel[2] + kw);
        }
      }
    }
  }
}

template <class S, class Term>
TENON_INLINE void gather_plane(const Window& w, S* out, bool accumulate, Term term) {
  for (std::int64_t id = 0; id < w.in[0]; ++id)
    for (std::int64_t ih = 0; ih < w.in[1]; ++ih)
      for (std::int64_t begin = 0; begin < w.in[2]; begin += kLineBlock) {
        const std::int64_t end = shorter(w.in[2], begin + kLineBlock);
        float sums[kLineBlock] = {};
        gather_block(w, id, ih, begin, end, sums, term);
        S* line = out + (id * w.in[1] + ih) * w.in[2];
        for_lanes(begin, end, [&](std::int64_t i, std::int64_t n) TENON_BODY {
          const F sum = load_group(sums + (i - begin), n);
          store_group(line + i, accumulate ? load_group(line + i, n) + sum : sum, n);
        });
      }
}

template <class S>
void fold(const FoldArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  const std::int64_t offsets = volume(w.kernel), width = args.channels * offsets;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const std::int64_t sample = plane / args.channels, channel = plane % args.channels;
    const S* columns = args.columns + sample * volume(w.out) * width + channel * offsets;
    gather_plane(w, args.x + sample * args.sample_stride + channel * volume(w.in), args.accumulate,
                 [&](std::int64_t, std::int64_t place, std::int64_t offset)
                     TENON_BODY { return load_one(columns + place * width + offset); });
  }
}

/// fn(place, id, ih, iw) for each place of a plane, with where its window begins.
template <class Fn>
TENON_INLINE void for_places(const Window& w, Fn fn) {
  std::int64_t place = 0;
  for (std::int64_t od = 0; od < w.out[0]; ++od)
    for (std::int64_t oh = 0; oh < w.out[1]; ++oh)
      for (std::int64_t ow = 0; ow < w.out[2]; ++ow)
        fn(place++, start(w, 0, od), start(w, 1, oh), start(w, 2, ow));
}

/// fn(element) for each element of a plane that a window beginning there covers, in order.
template <class Fn>
TENON_INLINE void for_covered(const Window& w, std::int64_t id, std::int64_t ih, std::int64_t iw, Fn fn) {
  const Inside d = inside(w, 0, id), h = inside(w, 1, ih), v = inside(w, 2, iw);
  for (std::int64_t kd = d.begin; kd < d.end; ++kd)
    for (std::int64_t kh = h.begin; kh < h.end; ++kh) {
      const std::int64_t line = ((id + kd * w.dilation[0]) * w.in[1] + ih + kh * w.dilation[1]) * w.in[2];
      for (std::int64_t kw = v.begin; kw < v.end; ++kw) fn(line + iw + kw * w.dilation[2]);
    }
}

TENON_INLINE void put_one(float* p, float value) {
  *p = value;
}
TENON_INLINE void put_one(Bf16* p, float value) {
  store(p, splat(value), 1);
}

template <class S>
void max_pool_forward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const S* x = args.x + plane * volume(w.in);
    S* y = args.y + plane * volume(w.out);
    std::int32_t* index = args.index + plane * volume(w.out);
    for_places(w, [&](std::int64_t place, std::int64_t id, std::int64_t ih, std::int64_t iw) TENON_BODY {
      float most = -__builtin_inff();
      std::int64_t best = -1;
      for_covered(w, id, ih, iw, [&](std::int64_t element) TENON_BODY {
        const float value = load_one(x + element);
        if (best < 0 || value > most || (value != value && most == most)) most = value, best = element;
      });
      if (best < 0)
        put_one(y + place, most);
      else
        y[place] = x[best];
      index[place] = static_cast<std::int32_t>(best);
    });
  }
}

template <class S>
void max_pool_backward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const S* dy = args.dy + plane * volume(w.out);
    const std::int32_t* index = args.index + plane * volume(w.out);
    gather_plane(w, args.dx + plane * volume(w.in), args.accumulate,
                 [&](std::int64_t element, std::int64_t place, std::int64_t)
                     TENON_BODY { return index[place] == element ? load_one(dy + place) : 0.0f; });
  }
}

/// What the average of a window that begins there divides by.
TENON_INLINE float divisor(const Window& w, bool count_padding, std::int64_t id, std::int64_t ih,
                           std::int64_t iw) {
  if (count_padding) return static_cast<float>(volume(w.kernel));
  const Inside d = inside(w, 0, id), h = inside(w, 1, ih), v = inside(w, 2, iw);
  return static_cast<float>((d.end - d.begin) * (h.end - h.begin) * (v.end - v.begin));
}

template <class S>
void average_pool_forward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const S* x = args.x + plane * volume(w.in);
    S* y = args.y + plane * volume(w.out);
    for_places(w, [&](std::int64_t place, std::int64_t id, std::int64_t ih, std::int64_t iw) TENON_BODY {
      float sum = 0.0f;
      for_covered(w, id, ih, iw, [&](std::int64_t element) TENON_BODY { sum += load_one(x + element); });
      put_one(y + place, sum / divisor(w, args.count_padding, id, ih, iw));
    });
  }
}

template <class S>
void average_pool_backward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const S* dy = args.dy + plane * volume(w.out);
    gather_plane(w, args.dx + plane * volume(w.in), args.accumulate,
                 [&](std::int64_t, std::int64_t place, std::int64_t) TENON_BODY {
                   const std::int64_t ow = place % w.out[2], oh = place / w.out[2] % w.out[1],
                                      od = place / w.out[2] / w.out[1];
                   return load_one(dy + place) /
                          divisor(w, args.count_padding, start(w, 0, od), start(w, 1, oh), start(w, 2, ow));
                 });
  }
}

}  // namespace
}  // namespace tenon::kernels
