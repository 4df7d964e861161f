// Kernel bodies of pooling. Forward, one thread per place; backward, one thread per element of x that gathers
// from the places whose windows cover it, offsets ascending: the bits of reference/window.hpp.
#pragma once

#include <limits>
#include <tenon/kernels/cuda/window.hpp>

namespace tenon::kernels::cuda {

/// The first greatest element of each window; a NaN is above all.
template <class S>
struct MaxPool {
  PoolArgs<S> args;
  std::int64_t planes;

  std::int64_t items() const { return planes * volume(args.window.out); }
  TENON_BOTH void operator()(const Block& block) const {
    using A = Arith<S>;
    const PoolArgs<S>& a = args;
    const std::int64_t places = volume(args.window.out), elements = volume(args.window.in);
    for_each_element(block, planes * places, [&](std::int64_t i) {
      const S* const x = a.x + i / places * elements;
      A most = -std::numeric_limits<A>::infinity();
      std::int64_t index = -1;
      for_each_covered(a.window, i % places, [&](std::int64_t element) {
        const A value = get(x[element]);
        if (index < 0 || value > most || (value != value && most == most)) most = value, index = element;
      });
      a.y[i] = index < 0 ? put<S>(most) : x[index];
      a.index[i] = static_cast<std::int32_t>(index);
    });
  }
};

/// dx (+)= the dy of windows whose greatest element this is.
template <class S>
struct MaxPoolBackward {
  PoolArgs<S> args;
  std::int64_t planes;

  std::int64_t items() const { return planes * volume(args.window.in); }
  TENON_BOTH void operator()(const Block& block) const {
    const PoolArgs<S>& a = args;
    const std::int64_t places = volume(args.window.out), elements = volume(args.window.in);
    for_each_element(block, planes * elements, [&](std::int64_t i) {
      const std::int64_t first = i / elements * places, element = i % elements;
      Arith<S> sum = 0;
      for_each_covering(a.window, element, [&](std::int64_t place, std::int64_t) {
        if (a.index[first + place] == element) sum += get(a.dy[first + place]);
      });
      a.dx[i] = put<S>(a.accumulate ? get(a.dx[i]) + sum : sum);
    });
  }
};

/// Divisor of an average at a place: all offsets, or those inside the plane.
TENON_BOTH inline std::int64_t divisor(const Window& w, bool count_padding, std::int64_t place) {
  if (count_padding) return volume(w.kernel);
  const WindowCoordinates p(place, w.out);
  std::int64_t inside[3] = {0, 0, 0};
  for (int d = 0; d < 3; ++d)
    for (std::int64_t k = 0; k < w.kernel[d]; ++k)
      inside[d] += in_plane(w, d, covered_along(w, d, p.at[d], k)) ? 1 : 0;
  return volume(inside);
}

template <class S>
struct AveragePool {
  PoolArgs<S> args;
  std::int64_t planes;

  std::int64_t items() const { return planes * volume(args.window.out); }
  TENON_BOTH void operator()(const Block& block) const {
    using A = Arith<S>;
    const PoolArgs<S>& a = args;
    const std::int64_t places = volume(args.window.out), elements = volume(args.window.in);
    for_each_element(block, planes * places, [&](std::int64_t i) {
      const S* const x = a.x + i / places * elements;
      A sum = 0;
      for_each_covered(a.window, i % places, [&](std::int64_t element) { sum += get(x[element]); });
      a.y[i] = put<S>(sum / static_cast<A>(divisor(a.window, a.count_padding, i % places)));
    });
  }
};

template <class S>
struct AveragePoolBackward {
  PoolArgs<S> args;
  std::int64_t planes;

  std::int64_t items() const { return planes * volume(args.window.in); }
  TENON_BOTH void operator()(const Block& block) const {
    using A = Arith<S>;
    const PoolArgs<S>& a = args;
    const std::int64_t places = volume(args.window.out), elements = volume(args.window.in);
    for_each_element(block, planes * elements, [&](std::int64_t i) {
      const S* const dy = a.dy + i / elements * places;
      A sum = 0;
      for_each_covering(a.window, i % elements, [&](std::int64_t place, std::int64_t) {
        sum += get(dy[place]) / static_cast<A>(divisor(a.window, a.count_padding, place));
      });
      a.dx[i] = put<S>(a.accumulate ? get(a.dx[i]) + sum : sum);
    });
  }
};

}  // namespace tenon::kernels::cuda
