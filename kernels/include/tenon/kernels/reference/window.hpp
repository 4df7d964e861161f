// Reference windows: each formula of window.hpp as one loop over places or elements and one over offsets.
#pragma once

#include <limits>
#include <tenon/kernels/reference/scalar.hpp>
#include <tenon/kernels/window.hpp>

namespace tenon::kernels::reference {

inline std::int64_t elements(const Window& w) {
  return w.in[0] * w.in[1] * w.in[2];
}
inline std::int64_t places(const Window& w) {
  return w.out[0] * w.out[1] * w.out[2];
}
inline std::int64_t offsets(const Window& w) {
  return w.kernel[0] * w.kernel[1] * w.kernel[2];
}

/// Element of the plane that offset `o` of the window at place `p` covers, or -1 in the padding.
inline std::int64_t covered(const Window& w, std::int64_t p, std::int64_t o) {
  std::int64_t element = 0, stride = 1;
  for (int d = 2; d >= 0; --d) {
    const std::int64_t i = p % w.out[d] * w.stride[d] + o % w.kernel[d] * w.dilation[d] - w.pad[d];
    if (i < 0 || i >= w.in[d]) return -1;
    element += i * stride;
    stride *= w.in[d];
    p /= w.out[d];
    o /= w.kernel[d];
  }
  return element;
}

/// Place whose window covers `element` with offset `o`, or -1 if none does.
inline std::int64_t covering(const Window& w, std::int64_t element, std::int64_t o) {
  std::int64_t place = 0, stride = 1;
  for (int d = 2; d >= 0; --d) {
    const std::int64_t from = element % w.in[d] + w.pad[d] - o % w.kernel[d] * w.dilation[d];
    if (from < 0 || from % w.stride[d] != 0 || from / w.stride[d] >= w.out[d]) return -1;
    place += from / w.stride[d] * stride;
    stride *= w.out[d];
    element /= w.in[d];
    o /= w.kernel[d];
  }
  return place;
}

template <class S>
void unfold(const UnfoldArgs<S>& args, std::int64_t line_begin, std::int64_t line_end) {
  const Window& w = args.window;
  const std::int64_t width = args.channels * offsets(w);
  for (std::int64_t row = line_begin * w.out[2]; row < line_end * w.out[2]; ++row)
    for (std::int64_t j = 0; j < width; ++j) {
      const S* plane = args.x + row / places(w) * args.sample_stride + j / offsets(w) * elements(w);
      const std::int64_t element = covered(w, row % places(w), j % offsets(w));
      args.columns[row * width + j] = element < 0 ? put<S>(0) : plane[element];
    }
}

/// out[element] (+)= sum over offsets of term(place, offset) where a window covers the element.
template <class S, class Term>
void gather_plane(const Window& w, S* out, bool accumulate, Term term) {
  for (std::int64_t element = 0; element < elements(w); ++element) {
    Arith<S> sum = 0;
    for (std::int64_t o = 0; o < offsets(w); ++o) {
      const std::int64_t place = covering(w, element, o);
      if (place >= 0) sum += term(element, place, o);
    }
    out[element] = put<S>(accumulate ? get(out[element]) + sum : sum);
  }
}

template <class S>
void fold(const FoldArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  const std::int64_t width = args.channels * offsets(w);
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const std::int64_t sample = plane / args.channels, channel = plane % args.channels;
    const S* columns = args.columns + sample * places(w) * width + channel * offsets(w);
    gather_plane(
        w, args.x + sample * args.sample_stride + channel * elements(w), args.accumulate,
        [&](std::int64_t, std::int64_t place, std::int64_t o) { return get(columns[place * width + o]); });
  }
}

template <class S>
void max_pool_forward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  using A = Arith<S>;
  const Window& w = args.window;
  for (std::int64_t i = plane_begin * places(w); i < plane_end * places(w); ++i) {
    const S* x = args.x + i / places(w) * elements(w);
    A most = -std::numeric_limits<A>::infinity();
    std::int64_t index = -1;
    for (std::int64_t o = 0; o < offsets(w); ++o) {
      const std::int64_t element = covered(w, i % places(w), o);
      if (element < 0) continue;
      const A value = get(x[element]);
      if (index < 0 || value > most || (value != value && most == most)) most = value, index = element;
    }
    args.y[i] = index < 0 ? put<S>(most) : x[index];
    args.index[i] = static_cast<std::int32_t>(index);
  }
}

template <class S>
void max_pool_backward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  const Window& w = args.window;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const std::int64_t first = plane * places(w);
    gather_plane(w, args.dx + plane * elements(w), args.accumulate,
                 [&](std::int64_t element, std::int64_t place, std::int64_t) {
                   return args.index[first + place] == element ? get(args.dy[first + place]) : Arith<S>{0};
                 });
  }
}

/// Divisor of an average at a place.
template <class A>
A divisor(const Window& w, bool count_padding, std::int64_t place) {
  std::int64_t count = 0;
  for (std::int64_t o = 0; o < offsets(w); ++o) count += count_padding || covered(w, place, o) >= 0 ? 1 : 0;
  return static_cast<A>(count);
}

template <class S>
void average_pool_forward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  using A = Arith<S>;
  const Window& w = args.window;
  for (std::int64_t i = plane_begin * places(w); i < plane_end * places(w); ++i) {
    A sum = 0;
    for (std::int64_t o = 0; o < offsets(w); ++o) {
      const std::int64_t element = covered(w, i % places(w), o);
      if (element >= 0) sum += get(args.x[i / places(w) * elements(w) + element]);
    }
    args.y[i] = put<S>(sum / divisor<A>(w, args.count_padding, i % places(w)));
  }
}

template <class S>
void average_pool_backward(const PoolArgs<S>& args, std::int64_t plane_begin, std::int64_t plane_end) {
  using A = Arith<S>;
  const Window& w = args.window;
  for (std::int64_t plane = plane_begin; plane < plane_end; ++plane) {
    const S* dy = args.dy + plane * places(w);
    gather_plane(w, args.dx + plane * elements(w), args.accumulate,
                 [&](std::int64_t, std::int64_t place, std::int64_t) {
                   return get(dy[place]) / divisor<A>(w, args.count_padding, place);
                 });
  }
}

}  // namespace tenon::kernels::reference
