// Kernel body of Fourier transforms along one dimension as products with the matrix of the kept modes, all in
// real numbers. A block processes a tile of lines and results and walks over the terms in pieces that it
// keeps in shared memory. A result is the ascending sum of its pieces' ascending sums: its bits depend on its
// own line and on the matrix alone, and a long line loses fewer digits than in one chain.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// The kept modes 0 ... low - 1 and length - (kept - low) ... length - 1 of a line, and their factors.
struct FftModes {
  std::int64_t length, low, kept;
  bool real;
  bool inverse;  ///< over the length, and real points count a mode's conjugate, too

  TENON_BOTH std::int64_t mode(std::int64_t j) const { return j < low ? j : length - kept + j; }
  /// With real points the imaginary part of such a mode counts as zero.
  TENON_BOTH bool own_conjugate(std::int64_t j) const { return real && (j == 0 || 2 * j == length); }
  TENON_BOTH bool is_zero(std::int64_t mode_real) const {
    return mode_real % 2 == 1 && own_conjugate(mode_real / 2);
  }
  /// Number of terms of a mode in a sum over the whole spectrum: itself, and its conjugate where that
  /// differs.
  TENON_BOTH double terms(std::int64_t j) const { return real && !own_conjugate(j) ? 2 : 1; }
};

/// The matrix between the reals of a line's points and those of its kept modes. Real points have one real
/// each, complex ones and modes two. The matrix of a map from modes to points is the transpose of one from
/// points to modes.
struct FftWaves {
  const double* waves;  ///< cos and sin of 2 pi n / length, for every n: length pairs
  FftModes modes;

  /// Matrix element of real `p` of the points and real `q` of the modes.
  TENON_BOTH double at(std::int64_t p, std::int64_t q) const {
    if (modes.is_zero(q)) return 0;
    const std::int64_t n = modes.real ? p : p / 2, j = q / 2, turn = modes.mode(j) * n % modes.length;
    const bool imaginary_point = !modes.real && p % 2 == 1, imaginary_mode = q % 2 == 1;
    const double wave = waves[2 * turn + (imaginary_point != imaginary_mode ? 1 : 0)];
    const double factor = modes.inverse ? modes.terms(j) / static_cast<double>(modes.length) : 1;
    return factor * (imaginary_mode && !imaginary_point ? -wave : wave);
  }
};

/// The matrix [points' reals, modes' reals], computed as it is read: for lines whose matrix is large.
template <class T>
struct ComputedMatrix {
  FftWaves waves;
  TENON_BOTH T operator()(std::int64_t p, std::int64_t q) const { return static_cast<T>(waves.at(p, q)); }
};
/// The same, stored.
template <class T>
struct StoredMatrix {
  const T* elements;
  std::int64_t mode_reals;
  TENON_BOTH T operator()(std::int64_t p, std::int64_t q) const { return elements[p * mode_reals + q]; }
};

/// Lines [outer, n, inner] of elements with `pair` reals, n being the elements of a line.
struct FftSide {
  std::int64_t elements, inner, pair;

  TENON_BOTH std::int64_t reals() const { return elements * pair; }
  /// Index of real `i` of a line.
  TENON_BOTH std::int64_t place(std::int64_t line, std::int64_t i) const {
    return ((line / inner * elements + i / pair) * inner + line % inner) * pair + i % pair;
  }
};

struct FftTile {
  static constexpr int kLines = 64, kResults = 32, kTerms = 32;
  /// Threads along the lines and along the results, and a thread's share of both.
  static constexpr int kAlong = 16, kAcross = 16, kOwnLines = kLines / kAlong,
                       kOwnResults = kResults / kAcross;
  static_assert(kAlong * kAcross == kThreads && kTerms == kResults);
  /// One more element in a row spreads a warp that reads a column over different banks.
  static constexpr int kStride = kTerms + 1;
};

/// to (+)= from times the matrix. From or To is T, the other one may be stored in fewer bits.
template <class From, class To, class T, class Matrix>
struct DirectFft {
  const From* from;
  To* to;
  FftSide from_side, to_side;
  Matrix matrix;
  FftModes modes;  ///< which of their reals count as zero
  std::int64_t lines;
  bool to_modes, accumulate;

  Grid mesh() const {
    const std::int64_t tiles = (lines + FftTile::kLines - 1) / FftTile::kLines;
    return {tiles * tiles_across(), kThreads,
            (FftTile::kLines + FftTile::kTerms) * FftTile::kStride * sizeof(T)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    using F = FftTile;
    const DirectFft& a = *this;
    const std::int64_t first_line = block.index() / tiles_across() * F::kLines,
                       first_result = block.index() % tiles_across() * F::kResults,
                       all_terms = from_side.reals(), results = to_side.reals();
    T* const inputs = block.shared<T>();
    T* const factors = inputs + F::kLines * F::kStride;
    PerThread<Totals> totals;
    block.each([&](int thread) { totals[thread] = {}; });
    for (std::int64_t first_term = 0; first_term < all_terms; first_term += F::kTerms) {
      const std::int64_t left = all_terms - first_term;
      const int terms = left < F::kTerms ? static_cast<int>(left) : F::kTerms;
      block.each([&](int thread) {
        for (int i = thread; i < F::kLines * F::kTerms; i += kThreads) {
          const Cell cell = cell_of(i, a.from_side.inner, F::kTerms);
          const std::int64_t line = first_line + cell.line, term = first_term + cell.other;
          if (line >= a.lines || cell.other >= terms) continue;
          const bool zero = !a.to_modes && a.modes.is_zero(term);
          inputs[cell.line * F::kStride + cell.other] =
              zero ? T{0} : static_cast<T>(get(a.from[a.from_side.place(line, term)]));
        }
        for (int i = thread; i < F::kTerms * F::kResults; i += kThreads) {
          // The modes' reals are the matrix's rows' neighbours.
          const int term = a.to_modes ? i / F::kResults : i % F::kTerms,
                    result = a.to_modes ? i % F::kResults : i / F::kTerms;
          if (term < terms && first_result + result < results)
            factors[term * F::kStride + result] = a.to_modes
                                                      ? a.matrix(first_term + term, first_result + result)
                                                      : a.matrix(first_result + result, first_term + term);
        }
      });
      block.each([&](int thread) { add_piece(inputs, factors, terms, thread, totals[thread]); });
    }
    // Through shared memory, so that neighbouring threads write neighbouring reals.
    block.each([&](int thread) {
      TENON_UNROLL
      for (int l = 0; l < F::kOwnLines; ++l) TENON_UNROLL
      for (int r = 0; r < F::kOwnResults; ++r)
        inputs[(thread / F::kAcross + l * F::kAlong) * F::kStride + thread % F::kAcross + r * F::kAcross] =
            totals[thread].of[l][r];
    });
    block.each([&](int thread) {
      for (int i = thread; i < F::kLines * F::kResults; i += kThreads) {
        const Cell cell = cell_of(i, a.to_side.inner, F::kResults);
        const std::int64_t line = first_line + cell.line, result = first_result + cell.other;
        if (line >= a.lines || result >= results) continue;
        const bool zero = a.to_modes && a.modes.is_zero(result);
        const T total = zero ? T{0} : inputs[cell.line * F::kStride + cell.other];
        To& out = a.to[a.to_side.place(line, result)];
        out = put<To>(a.accumulate ? get(out) + total : total);
      }
    });
  }

 private:
  struct Totals {
    T of[FftTile::kOwnLines][FftTile::kOwnResults];
  };
  struct Cell {
    int line, other;
  };

  TENON_BOTH std::int64_t tiles_across() const {
    return (to_side.reals() + FftTile::kResults - 1) / FftTile::kResults;
  }
  /// Cell i of a tile, whose neighbours are adjacent in memory: along a line that is contiguous, else from
  /// line to line.
  static TENON_BOTH Cell cell_of(int i, std::int64_t inner, int others) {
    if (inner == 1) return {i / others, i % others};
    return {i % FftTile::kLines, i / FftTile::kLines};
  }

  static TENON_BOTH void add_piece(const T* inputs, const T* factors, int terms, int thread, Totals& totals) {
    using F = FftTile;
    const T* const input = inputs + thread / F::kAcross * F::kStride;
    const T* const factor = factors + thread % F::kAcross;
    Totals piece = {};
    for (int term = 0; term < terms; ++term) {
      T right[F::kOwnResults];
      TENON_UNROLL
      for (int r = 0; r < F::kOwnResults; ++r) right[r] = factor[term * F::kStride + r * F::kAcross];
      TENON_UNROLL
      for (int l = 0; l < F::kOwnLines; ++l) {
        const T left = input[l * F::kAlong * F::kStride + term];
        TENON_UNROLL
        for (int r = 0; r < F::kOwnResults; ++r) piece.of[l][r] += left * right[r];
      }
    }
    TENON_UNROLL
    for (int l = 0; l < F::kOwnLines; ++l) TENON_UNROLL
    for (int r = 0; r < F::kOwnResults; ++r) totals.of[l][r] += piece.of[l][r];
  }
};

}  // namespace tenon::kernels::cuda
