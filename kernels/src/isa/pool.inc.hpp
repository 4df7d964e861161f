// Pools over sliding windows (contract: window.hpp). The greatest of up to 16 neighbouring windows are found
// side by side; bits are those of the reference.
#pragma once

#include "isa/window.inc.hpp"

namespace tenon::kernels {
namespace {

/// The greatest element of each of up to 16 windows.
struct Greatest {
  F most;
  I element;  ///< -1: none yet

  TENON_INLINE void take(F value, I at, I valid) {
    const I first = element < splat_int(0), greater = most < value;
    const I nan = select(value == value, splat_int(0), most == most);
    const I takes = valid & (first | greater | nan);
    most = select(takes, value, most);
    element = select(takes, at, element);
  }
  /// The same in all lanes, none of which is the first.
  TENON_INLINE void follow(F value, I at) {
    const I takes = (most < value) | select(value == value, splat_int(0), most == most);
    most = select(takes, value, most);
    element = select(takes, at, element);
  }
};

/// Lanes kPhase, kPhase + 2, ... of two neighbouring parts.
template <int kPhase>
TENON_INLINE Part every_second(Part a, Part b) {
#if TENON_SIMD_BYTES == 64
  return __builtin_shufflevector(a, b, kPhase, kPhase + 2, kPhase + 4, kPhase + 6, kPhase + 8, kPhase + 10,
                                 kPhase + 12, kPhase + 14, kPhase + 16, kPhase + 18, kPhase + 20, kPhase + 22,
                                 kPhase + 24, kPhase + 26, kPhase + 28, kPhase + 30);
#elif TENON_SIMD_BYTES == 32
  return __builtin_shufflevector(a, b, kPhase, kPhase + 2, kPhase + 4, kPhase + 6, kPhase + 8, kPhase + 10,
                                 kPhase + 12, kPhase + 14);
#else
  return __builtin_shufflevector(a, b, kPhase, kPhase + 2, kPhase + 4, kPhase + 6);
#endif
}
template <int kPhase>
TENON_INLINE F every_second(const F (&halves)[2]) {
  const auto part = [&](int i) { return halves[i / kParts].v[i % kParts]; };
  return each<F>([&](int i) { return every_second<kPhase>(part(2 * i), part(2 * i + 1)); });
}

/// Loads elements 0, stride, ... of which n are in memory, into lanes.
template <class S>
TENON_INLINE F load_apart(const S* p, std::int64_t stride, std::int64_t n) {
  if (stride == 1) return load_group(p, n);
  if (stride == 2) {
    const std::int64_t elements = 2 * n - 1;
    const F halves[2] = {load_group(p, shorter(kLanes, elements)),
                         elements > kLanes ? load_group(p + kLanes, elements - kLanes) : splat(0.0f)};
    return every_second<0>(halves);
  }
  float values[kLanes] = {};
  for (std::int64_t lane = 0; lane < n; ++lane) values[lane] = load_one(p + lane * stride);
  return load(values);
}

/// The places of one line from `ow` on, of which `count` exist: their elements at offset kw of the last
/// dimension.
template <class S>
TENON_INLINE void meet(const Window& w, const S* x, std::int64_t line, std::int64_t ow, std::int64_t kw,
                       std::int64_t count, I steps, Greatest& greatest) {
  const std::int64_t stride = w.stride[2], first = start(w, 2, ow) + kw * w.dilation[2];
  const std::int64_t begin = first < 0 ? quotient(stride - 1 - first, stride) : 0;
  const std::int64_t end = first < w.in[2] ? shorter(count, quotient(w.in[2] - 1 - first, stride) + 1) : 0;
  if (begin >= end) return;
  const std::int32_t at = static_cast<std::int32_t>(line + first);
  if (begin == 0) {
    greatest.take(load_apart(x + line + first, stride, end), splat_int(at) + steps, first_lanes(end));
    return;
  }
  float values[kLanes] = {};
  for (std::int64_t lane = begin; lane < end; ++lane)
    values[lane] = load_one(x + line + first + lane * stride);
  greatest.take(load(values), splat_int(at) + steps,
                first_lanes(end) & (splat_int(static_cast<std::int32_t>(begin - 1)) < lanes_from(0)));
}

/// Whether windows are squares of two by two, side by side, all of them inside: the usual pool.
TENON_INLINE bool is_square_of_two(const Window& w) {
  bool result = w.kernel[0] == 1 && w.kernel[1] == 2 && w.kernel[2] == 2 && w.stride[2] == 2 &&
                w.dilation[1] == 1 && w.dilation[2] == 1;
  for (int d = 0; d < 3; ++d)
    result = result && w.pad[d] == 0 && (w.out[d] - 1) * w.stride[d] + w.kernel[d] <= w.in[d];
  return result;
}

/// The greatest of `count` such windows; the first begins at element `first`.
template <class S>
TENON_INLINE Greatest greatest_of_squares(const Window& w, const S* x, std::int64_t first, std::int64_t count,
                                          I steps) {
  const std::int64_t elements = 2 * count;
  F lines[2][2];
  for (int h = 0; h < 2; ++h) {
    const S* line = x + first + h * w.in[2];
    lines[h][0] = load_group(line, shorter(kLanes, elements));
    lines[h][1] = elements > kLanes ? load_group(line + kLanes, elements - kLanes) : splat(0.0f);
  }
  const I at = splat_int(static_cast<std::int32_t>(first)) + steps;
  const I below = at + splat_int(static_cast<std::int32_t>(w.in[2]));
  Greatest greatest{every_second<0>(lines[0]), at};
  greatest.follow(every_second<1>(lines[0]), at + splat_int(1));
  greatest.follow(every_second<0>(lines[1]), below);
  greatest.follow(every_second<1>(lines[1]), below + splat_int(1));
  return greatest;
}

TENON_INLINE void store_elements(std::int32_t* p, I a, std::int64_t n) {
#if TENON_SIMD_BYTES == 64
  _mm512_mask_storeu_epi32(p, static_cast<__mmask16>((1u << n) - 1u), (__m512i)a.v[0]);
#else
  __builtin_memcpy(p, &a, n * sizeof(std::int32_t));
#endif
}

/// The places of one line of a plane. `square`: result of is_square_of_two().
template <class S>
TENON_INLINE void max_pool_line(const Window& w, bool square, const S* x, std::int64_t id, std::int64_t ih,
                                I steps, S* y, std::int32_t* index) {
  const Inside d = inside(w, 0, id), h = inside(w, 1, ih);
  for (std::int64_t ow = 0; ow < w.out[2]; ow += kLanes) {
    const std::int64_t count = shorter(kLanes, w.out[2] - ow);
    Greatest greatest{splat(-__builtin_inff()), splat_int(-1)};
    if (square) {
      greatest = greatest_of_squares(w, x, (id * w.in[1] + ih) * w.in[2] + 2 * ow, count, steps);
    } else {
      for (std::int64_t kd = d.begin; kd < d.end; ++kd)
        for (std::int64_t kh = h.begin; kh < h.end; ++kh) {
          const std::int64_t line = ((id + kd * w.dilation[0]) * w.in[1] + ih + kh * w.dilation[1]) * w.in[2];
          for (std::int64_t kw = 0; kw < w.kernel[2]; ++kw) meet(w, x, line, ow, kw, count, steps, greatest);
        }
    }
    store_elements(index + ow, greatest.element, count);
    if constexpr (sizeof(S) == sizeof(float)) {
      store_group(y + ow, greatest.most, count);
    } else {
      std::int32_t elements[kLanes];
      __builtin_memcpy(elements, &greatest.element, sizeof elements);
      // Bit for bit, which a conversion would not do to every NaN.
      for (std::int64_t lane = 0; lane < count; ++lane) {
        if (elements[lane] < 0)
          store_one(y + ow + lane, -__builtin_inff());
        else
          y[ow + lane] = x[elements[lane]];
      }
    }
  }
}

/// 0, stride, 2 stride, ...
TENON_INLINE I strided_lanes(std::int64_t stride) {
  std::int32_t values[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = static_cast<std::int32_t>(lane * stride);
  I result;
  __builtin_memcpy(&result, values, sizeof result);
  return result;
}

template <class S>
void max_pool_forward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  const bool square = is_square_of_two(w);
  const I steps = strided_lanes(w.stride[2]);
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    std::int64_t place = plane * volume(w.out);
    for (std::int64_t od = 0; od < w.out[0]; ++od)
      for (std::int64_t oh = 0; oh < w.out[1]; ++oh, place += w.out[2])
        max_pool_line(w, square, args.x + plane * volume(w.in), start(w, 0, od), start(w, 1, oh), steps,
                      args.y + place, args.index + place);
  }
}

/// Elements of a plane whose sums fit the stack.
constexpr std::int64_t kPlane = 4096;

/// Last places first, so that the terms of an element come in the order of their offsets.
template <class S>
TENON_INLINE void scatter_plane(const Window& w, const std::int32_t* index, const S* dy, S* out,
                                bool accumulate) {
  const std::int64_t elements = volume(w.in);
  float sums[kPlane];
  __builtin_memset(sums, 0, elements * sizeof(float));
  for (std::int64_t place = volume(w.out) - 1; place >= 0; --place) {
    const std::int64_t element = index[place];
    if (element >= 0 && element < elements) sums[element] += load_one(dy + place);
  }
  for_lanes(0, elements, [&](std::int64_t i, std::int64_t n) TENON_BODY {
    const F sum = load_group(sums + i, n);
    store_group(out + i, accumulate ? load_group(out + i, n) + sum : sum, n);
  });
}

/// Interleaves the lanes of a and b: the lower half of the result, or the upper.
TENON_INLINE Part in_turns(Part a, Part b, bool upper) {
#if TENON_SIMD_BYTES == 64
  return upper ? __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
               : __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif TENON_SIMD_BYTES == 32
  return upper ? __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
               : __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return upper ? __builtin_shufflevector(a, b, 2, 6, 3, 7) : __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}

/// The first n (1 .. 16) elements, followed by zeros.
TENON_INLINE I load_elements(const std::int32_t* p, std::int64_t n) {
  I result;
#if TENON_SIMD_BYTES == 64
  result.v[0] = (IntPart)_mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << n) - 1u), p);
#else
  std::int32_t buffer[kLanes] = {};
  __builtin_memcpy(buffer, p, n * sizeof(std::int32_t));
  __builtin_memcpy(&result, buffer, sizeof result);
#endif
  return result;
}

/// A plane that squares of two by two fill: each element has one window, which sends it dy or nothing.
/// `steps`: as in max_pool_line().
template <class S>
TENON_INLINE void spread_squares(const Window& w, const std::int32_t* index, const S* dy, I steps, S* out,
                                 bool accumulate) {
  const std::int64_t width = w.in[2];
  for (std::int64_t line = 0; line < w.out[0] * w.out[1]; ++line)
    for (std::int64_t ow = 0; ow < w.out[2]; ow += kLanes) {
      const std::int64_t count = shorter(kLanes, w.out[2] - ow), place = line * w.out[2] + ow;
      const I elements = load_elements(index + place, count);
      const F above = load_group(dy + place, count) + splat(0.0f);  // a sum from zero on, which is never -0
      for (int h = 0; h < 2; ++h) {
        const std::int64_t first = (2 * line + h) * width + 2 * ow;
        const I at = splat_int(static_cast<std::int32_t>(first)) + steps;
        const F even = select(elements == at, above, splat(0.0f)),
                odd = select(elements == at + splat_int(1), above, splat(0.0f));
        for (int half = 0; half < 2; ++half) {
          const std::int64_t n = shorter(kLanes, 2 * count - half * kLanes);
          if (n <= 0) break;
          const F terms = each<F>([&](int i) {
            const int part = half * kParts + i;
            return in_turns(even.v[part / 2], odd.v[part / 2], part % 2 != 0);
          });
          S* to = out + first + half * kLanes;
          store_group(to, accumulate ? load_group(to, n) + terms : terms, n);
        }
      }
    }
}

template <class S>
void max_pool_backward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  const bool filled = is_square_of_two(w) && w.in[0] == w.out[0] && w.stride[0] == 1 && w.stride[1] == 2 &&
                      w.in[1] == 2 * w.out[1] && w.in[2] == 2 * w.out[2];
  const I steps = strided_lanes(w.stride[2]);
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const S* dy = args.dy + plane * volume(w.out);
    const std::int32_t* index = args.index + plane * volume(w.out);
    S* dx = args.dx + plane * volume(w.in);
    if (filled) {
      spread_squares(w, index, dy, steps, dx, args.accumulate);
      continue;
    }
    if (volume(w.in) <= kPlane) {
      scatter_plane(w, index, dy, dx, args.accumulate);
      continue;
    }
    gather_plane(w, dx, args.accumulate,
                 [&](std::int64_t element, std::int64_t place, std::int64_t)
                     TENON_BODY { return index[place] == element ? load_one(dy + place) : 0.0f; });
  }
}

/// Calls fn(place, id, ih, iw) for each place of a plane, with the begin of its window.
template <class Fn>
TENON_INLINE void for_places(const Window& w, Fn fn) {
  std::int64_t place = 0;
  for (std::int64_t od = 0; od < w.out[0]; ++od)
    for (std::int64_t oh = 0; oh < w.out[1]; ++oh)
      for (std::int64_t ow = 0; ow < w.out[2]; ++ow)
        fn(place++, start(w, 0, od), start(w, 1, oh), start(w, 2, ow));
}

/// Calls fn(element) for each element of a plane that a window beginning there covers, in order.
template <class Fn>
TENON_INLINE void for_covered(const Window& w, std::int64_t id, std::int64_t ih, std::int64_t iw, Fn fn) {
  const Inside d = inside(w, 0, id), h = inside(w, 1, ih), v = inside(w, 2, iw);
  for (std::int64_t kd = d.begin; kd < d.end; ++kd)
    for (std::int64_t kh = h.begin; kh < h.end; ++kh) {
      const std::int64_t line = ((id + kd * w.dilation[0]) * w.in[1] + ih + kh * w.dilation[1]) * w.in[2];
      for (std::int64_t kw = v.begin; kw < v.end; ++kw) fn(line + iw + kw * w.dilation[2]);
    }
}

/// Divisor of the average of a window that begins there.
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
      store_one(y + place, sum / divisor(w, args.count_padding, id, ih, iw));
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
