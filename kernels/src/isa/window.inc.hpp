// Columns of sliding windows (contract: window.hpp), by lines: places that differ in the last dimension alone
// are one inner loop. Sums have the order of the reference, offsets ascending, so the bits are the same.
#pragma once

#include <tenon/kernels/window.hpp>

#include "isa/simd.inc.hpp"
#include "isa/transpose.inc.hpp"

namespace tenon::kernels {
namespace {

TENON_INLINE std::int64_t volume(const std::int64_t (&extents)[3]) {
  return extents[0] * extents[1] * extents[2];
}

TENON_INLINE std::int64_t shorter(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// a / b for a >= 0. A division costs as much as dozens of moves, and most strides are 1 or 2.
TENON_INLINE std::int64_t quotient(std::int64_t a, std::int64_t b) {
  return b == 1 ? a : b == 2 ? a >> 1 : a / b;
}

/// Offsets [begin, end) of one dimension that are inside when the window's first element is at `at`.
struct Inside {
  std::int64_t begin, end;
};
TENON_INLINE Inside inside(const Window& w, int d, std::int64_t at) {
  const std::int64_t step = w.dilation[d];
  const std::int64_t begin = at < 0 ? quotient(step - 1 - at, step) : 0;
  const std::int64_t end = at < w.in[d] ? shorter(w.kernel[d], quotient(w.in[d] - 1 - at, step) + 1) : 0;
  return {begin, end < begin ? begin : end};
}
TENON_INLINE std::int64_t start(const Window& w, int d, std::int64_t place) {
  return place * w.stride[d] - w.pad[d];
}

/// Whether x and columns differ by a transposition alone. Pads after the elements show in the extents.
TENON_INLINE bool is_point(const Window& w) {
  bool result = true;
  for (int d = 0; d < 3; ++d)
    result = result && w.kernel[d] == 1 && w.stride[d] == 1 && w.pad[d] == 0 && w.in[d] == w.out[d];
  return result;
}

/// Lines of windows of one element: channels of a sample become rows of its places.
template <class S>
TENON_INLINE void unfold_points(const UnfoldArgs<S>& args, std::int64_t line_begin, std::int64_t line_end) {
  const std::int64_t lines = args.window.out[0] * args.window.out[1], points = args.window.out[2];
  while (line_begin < line_end) {
    const std::int64_t sample = line_begin / lines, end = shorter(line_end, (sample + 1) * lines);
    transpose(args.x + sample * args.sample_stride + line_begin % lines * points, lines * points,
              args.channels, (end - line_begin) * points, args.columns + line_begin * points * args.channels,
              args.channels);
    line_begin = end;
  }
}

/// Calls fn(extent), which the compiler sees five times: with the usual extents as literals, so that their
/// loops unroll.
template <class Fn>
TENON_INLINE void with_extent(std::int64_t extent, Fn fn) {
  switch (extent) {
    case 2:
      return fn(2);
    case 3:
      return fn(3);
    case 5:
      return fn(5);
    case 7:
      return fn(7);
    default:
      return fn(extent);
  }
}

/// Elements that one line of windows reads for one channel and all but the last offset: `extent` elements,
/// null in the padding. The window of place r begins at element `first + r stride`.
template <class S>
struct Run {
  const S* from;
  std::int64_t first, stride, dilation, extent;
};

/// `kernel` elements of each of `count` windows, the windows `width` apart. With a `kernel` known to the
/// compiler the copies become register moves.
template <class S>
TENON_INLINE void unfold_run(const Run<S>& run, std::int64_t kernel, std::int64_t count, std::int64_t width,
                             S* to) {
  const auto edge = [&](std::int64_t begin, std::int64_t end) TENON_BODY {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t k = 0; k < kernel; ++k) {
        const std::int64_t i = run.first + r * run.stride + k * run.dilation;
        to[r * width + k] = run.from != nullptr && i >= 0 && i < run.extent ? run.from[i] : S{};
      }
  };
  // Windows [begin, end) are inside.
  const std::int64_t room = run.extent - kernel - run.first;
  std::int64_t begin = run.first < 0 ? quotient(run.stride - 1 - run.first, run.stride) : 0;
  std::int64_t end =
      run.from == nullptr || run.dilation != 1 || room < 0 ? 0 : quotient(room, run.stride) + 1;
  begin = shorter(begin, count), end = shorter(end < begin ? begin : end, count);
  edge(0, begin);
  for (std::int64_t r = begin; r < end; ++r)
    __builtin_memcpy(to + r * width, run.from + run.first + r * run.stride, kernel * sizeof(S));
  edge(end, count);
}

/// The rows of columns of one line of places. Windows are copied run by run, places inside: rows of a line
/// stay in the first cache.
template <class S>
TENON_INLINE void unfold_line(const UnfoldArgs<S>& args, const S* sample, std::int64_t od, std::int64_t oh,
                              S* rows) {
  const Window& w = args.window;
  const std::int64_t width = args.channels * volume(w.kernel);
  for (std::int64_t c = 0; c < args.channels; ++c)
    for (std::int64_t kd = 0; kd < w.kernel[0]; ++kd)
      for (std::int64_t kh = 0; kh < w.kernel[1]; ++kh, rows += w.kernel[2]) {
        const std::int64_t id = start(w, 0, od) + kd * w.dilation[0],
                           ih = start(w, 1, oh) + kh * w.dilation[1];
        const bool padding = id < 0 || id >= w.in[0] || ih < 0 || ih >= w.in[1];
        const Run<S> run{padding ? nullptr : sample + ((c * w.in[0] + id) * w.in[1] + ih) * w.in[2],
                         -w.pad[2], w.stride[2], w.dilation[2], w.in[2]};
        with_extent(w.kernel[2],
                    [&](std::int64_t kernel) TENON_BODY { unfold_run(run, kernel, w.out[2], width, rows); });
      }
}

template <class S>
void unfold(const UnfoldArgs<S>& args, std::int64_t line_begin, std::int64_t line_end) {
  const Window& w = args.window;
  if (is_point(w)) return unfold_points(args, line_begin, line_end);
  const std::int64_t width = args.channels * volume(w.kernel), lines = w.out[0] * w.out[1];
  for (std::int64_t line = line_begin; line < line_end; ++line)
    unfold_line(args, args.x + line / lines * args.sample_stride, line % lines / w.out[1], line % w.out[1],
                args.columns + line * w.out[2] * width);
}

/// The place whose window covers element `i` of dimension d with offset k, or -1.
TENON_INLINE std::int64_t meeting(const Window& w, int d, std::int64_t i, std::int64_t k) {
  const std::int64_t from = i + w.pad[d] - k * w.dilation[d];
  if (from < 0) return -1;
  const std::int64_t place = quotient(from, w.stride[d]);
  return place * w.stride[d] == from && place < w.out[d] ? place : -1;
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
        const std::int64_t last = shorter(w.out[2] - 1, quotient(high, stride));
        for (std::int64_t ow = low > 0 ? quotient(low + stride - 1, stride) : 0; ow <= last; ++ow) {
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

/// Planes of windows of one element: rows of a sample's places become channels.
template <class S>
TENON_INLINE void fold_points(const FoldArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const std::int64_t points = volume(args.window.in);
  while (plane_begin < plane_end) {
    const std::int64_t sample = plane_begin / args.channels, channel = plane_begin % args.channels;
    const std::int64_t end = shorter(plane_end, (sample + 1) * args.channels);
    const S* columns = args.columns + sample * points * args.channels + channel;
    S* x = args.x + sample * args.sample_stride + channel * points;
    transpose_sums(columns, args.channels, end - plane_begin, points, x, args.accumulate);
    plane_begin = end;
  }
}

/// Terms of a block of elements for each offset of the last dimension, with margins; those of elements that
/// an offset does not reach stay zero.
constexpr std::int64_t kMostOffsets = 8, kMargin = 16;
typedef float Terms[kMostOffsets][kMargin + kLineBlock + kMargin];

/// A plane of windows that step by one. The terms of a line are collected offset by offset, then added side
/// by side; additional zeros change no sum, since none is a negative zero.
template <class S>
TENON_INLINE void fold_plane(const Window& w, std::int64_t kernel, const S* columns, std::int64_t width,
                             S* out, bool accumulate) {
  const std::int64_t dilation = w.dilation[2];
  Terms terms;
  for (std::int64_t begin = 0; begin < w.in[2]; begin += kLineBlock) {
    const std::int64_t end = shorter(w.in[2], begin + kLineBlock);
    const std::int64_t first = begin + w.pad[2] - (kernel - 1) * dilation,
                       last = shorter(w.out[2], end + w.pad[2]);
    __builtin_memset(terms, 0, sizeof terms);
    for (std::int64_t line = 0; line < w.in[0] * w.in[1]; ++line) {
      F sums[kLineBlock / kLanes];
      for (F& sum : sums) sum = splat(0.0f);
      for (std::int64_t kd = 0; kd < w.kernel[0]; ++kd) {
        const std::int64_t od = meeting(w, 0, line / w.in[1], kd);
        if (od < 0) continue;
        for (std::int64_t kh = 0; kh < w.kernel[1]; ++kh) {
          const std::int64_t oh = meeting(w, 1, line % w.in[1], kh);
          if (oh < 0) continue;
          const S* from =
              columns + (od * w.out[1] + oh) * w.out[2] * width + (kd * w.kernel[1] + kh) * kernel;
          for (std::int64_t ow = first > 0 ? first : 0; ow < last; ++ow)
            for (std::int64_t kw = 0; kw < kernel; ++kw)
              terms[kw][kMargin + ow - w.pad[2] - begin + kw * dilation] = load_one(from + ow * width + kw);
          for (std::int64_t i = 0; i < end - begin; i += kLanes)
            for (std::int64_t kw = 0; kw < kernel; ++kw)
              sums[i / kLanes] = sums[i / kLanes] + load(terms[kw] + kMargin + i);
        }
      }
      S* to = out + line * w.in[2] + begin;
      for_lanes(0, end - begin, [&](std::int64_t i, std::int64_t n) TENON_BODY {
        const F sum = sums[i / kLanes];
        store_group(to + i, accumulate ? load_group(to + i, n) + sum : sum, n);
      });
    }
  }
}

/// Whether fold_plane() handles these windows.
TENON_INLINE bool steps_by_one(const Window& w) {
  return w.stride[2] == 1 && w.kernel[2] <= kMostOffsets && (w.kernel[2] - 1) * w.dilation[2] <= kMargin;
}

template <class S>
void fold(const FoldArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  if (is_point(w)) return fold_points(args, plane_begin, plane_end);
  const std::int64_t offsets = volume(w.kernel), width = args.channels * offsets;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const std::int64_t sample = plane / args.channels, channel = plane % args.channels;
    const S* columns = args.columns + sample * volume(w.out) * width + channel * offsets;
    S* out = args.x + sample * args.sample_stride + channel * volume(w.in);
    if (!steps_by_one(w)) {
      gather_plane(w, out, args.accumulate,
                   [&](std::int64_t, std::int64_t place, std::int64_t offset)
                       TENON_BODY { return load_one(columns + place * width + offset); });
      continue;
    }
    with_extent(w.kernel[2], [&](std::int64_t kernel)
                                 TENON_BODY { fold_plane(w, kernel, columns, width, out, args.accumulate); });
  }
}

}  // namespace
}  // namespace tenon::kernels
