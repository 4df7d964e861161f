// Kernel bodies around a library's transforms of whole lines: points or kept modes are packed line by line as
// the library requires, and unpacked to their places. Lines come a few at a time; excess lines of a batch are
// zero. Real points have spectra of length / 2 + 1 modes, or are passed as complex ones: with cuFFT on an
// H200 the bits of real lines of odd length, and of no others, depended on their neighbours.
#pragma once

#include <tenon/kernels/cuda/fft.hpp>

namespace tenon::kernels::cuda {

/// Lines first ... first + count - 1 of all `lines` lines.
struct FftBatch {
  std::int64_t first, count, lines;
  bool complex = false;  ///< real points are passed as complex ones
};

/// Reals of a line of points in the library.
TENON_BOTH constexpr std::int64_t fft_packed(const FftSide& points, const FftBatch& batch) {
  return batch.complex ? 2 * points.elements : points.reals();
}

/// packed[line, reals] = the points.
template <class S, class T>
struct PackPoints {
  const S* points;
  T* packed;
  FftSide side;
  FftBatch batch;

  std::int64_t items() const { return batch.count * fft_packed(side, batch); }
  TENON_BOTH void operator()(const Block& block) const {
    const PackPoints& a = *this;
    const std::int64_t reals = fft_packed(side, batch), step = batch.complex ? 2 : 1;
    for_each_element(block, batch.count * reals, [&](std::int64_t i) {
      const std::int64_t line = a.batch.first + i / reals, real = i % reals;
      a.packed[i] = line < a.batch.lines && real % step == 0
                        ? static_cast<T>(get(a.points[a.side.place(line, real / step)]))
                        : T{0};
    });
  }
};

/// points (+)= packed[line, reals]
template <class S, class T>
struct UnpackPoints {
  const T* packed;
  S* points;
  FftSide side;
  FftBatch batch;
  bool accumulate;

  std::int64_t items() const { return batch.count * side.reals(); }
  TENON_BOTH void operator()(const Block& block) const {
    const UnpackPoints& a = *this;
    const std::int64_t reals = side.reals(), step = batch.complex ? 2 : 1;
    for_each_element(block, batch.count * reals, [&](std::int64_t i) {
      const std::int64_t line = a.batch.first + i / reals;
      if (line >= a.batch.lines) return;
      const T value = a.packed[i * step];
      S& point = a.points[a.side.place(line, i % reals)];
      point = put<S>(a.accumulate ? get(point) + value : value);
    });
  }
};

/// Number of modes of a whole spectrum in the library.
TENON_BOTH constexpr std::int64_t fft_spectrum(const FftModes& modes, bool complex) {
  return modes.real && !complex ? modes.length / 2 + 1 : modes.length;
}

/// spectrum[line, k] = the kept modes times their factors, and zero elsewhere. The library itself counts
/// conjugates of modes of real points, unless these are passed as complex ones.
template <class T>
struct PackModes {
  const T* z;
  T* spectrum;
  FftSide side;
  FftModes modes;
  FftBatch batch;

  std::int64_t items() const { return batch.count * 2 * fft_spectrum(modes, batch.complex); }
  TENON_BOTH void operator()(const Block& block) const {
    const PackModes& a = *this;
    const std::int64_t reals = 2 * fft_spectrum(modes, batch.complex);
    for_each_element(block, batch.count * reals, [&](std::int64_t i) {
      const FftModes& m = a.modes;
      const std::int64_t line = a.batch.first + i / reals, place = i % reals / 2;
      const bool conjugate = m.real && 2 * place > m.length;
      const std::int64_t k = conjugate ? m.length - place : place,
                         j = k < m.low ? k : k - (m.length - m.kept), real = 2 * j + i % 2;
      const bool kept = j < m.low ? k < m.low : j < m.kept;
      T value = 0;
      if (line < a.batch.lines && kept && !m.is_zero(real)) {
        const auto factor = static_cast<T>(m.inverse ? 1 / static_cast<double>(m.length) : 1 / m.terms(j));
        value = factor * a.z[a.side.place(line, real)];
        if (conjugate && i % 2 == 1) value = -value;
      }
      a.spectrum[i] = value;
    });
  }
};

/// z (+)= the kept ones of spectrum[line, k] times their factors.
template <class T>
struct UnpackModes {
  const T* spectrum;
  T* z;
  FftSide side;
  FftModes modes;
  FftBatch batch;
  bool accumulate;

  std::int64_t items() const { return batch.count * side.reals(); }
  TENON_BOTH void operator()(const Block& block) const {
    const UnpackModes& a = *this;
    const std::int64_t reals = side.reals(), whole = fft_spectrum(modes, batch.complex);
    for_each_element(block, batch.count * reals, [&](std::int64_t i) {
      const FftModes& m = a.modes;
      const std::int64_t own = i / reals, line = a.batch.first + own, real = i % reals, j = real / 2;
      if (line >= a.batch.lines) return;
      const auto factor = static_cast<T>(m.inverse ? m.terms(j) / static_cast<double>(m.length) : 1.0);
      const T value = m.is_zero(real) ? T{0} : factor * a.spectrum[2 * (own * whole + m.mode(j)) + real % 2];
      T& out = a.z[a.side.place(line, real)];
      out = a.accumulate ? out + value : value;
    });
  }
};

}  // namespace tenon::kernels::cuda
