// Each element of a product is one chain (tenon/kernels/gemm.hpp), so a line's bits depend on nothing else.
#include "fft.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tenon::cpu {
namespace {

/// Beyond these limits a chain loses digits, or FFTW is faster.
constexpr std::int64_t kMostPoints = 128, kMostModes = 32;
/// Lines of real points in one product, and neighbours along the inner extent.
constexpr std::int64_t kLineBlock = 192, kInnerBlock = 32;

/// exp(2 pi i mode n / length), the angle reduced before it is rounded.
struct Wave {
  double re, im;
};
Wave wave(std::int64_t mode, std::int64_t n, std::int64_t length) {
  const double angle =
      2 * 3.14159265358979323846 * static_cast<double>(mode * n % length) / static_cast<double>(length);
  return {std::cos(angle), std::sin(angle)};
}

class DirectFft : public FftKernel {
 public:
  DirectFft(const Kernels& kernels, const FftSpec& spec)
      : spec_(spec),
        kept_(kept_modes(spec)),
        to_modes_(reads_points(spec.map)),
        gemm_(kernels.table->f32.gemm),
        parts_(parallel_threads()) {}

 protected:
  /// Factor of a kept mode in a sum over the whole spectrum (the forward maps) or over the points.
  double factor(std::int64_t kept) const {
    const bool inverse = spec_.map == FftMap::kInverse || spec_.map == FftMap::kInverseAdjoint;
    return inverse ? mode_terms(spec_, kept) / static_cast<double>(spec_.length) : 1;
  }

  static float* reals(const TensorView& view, std::int64_t count, const char* name) {
    return device_arguments::checked_reals<float>(view, count, "fft", name);
  }

  FftSpec spec_;
  std::int64_t kept_;
  bool to_modes_;
  kernels::GemmOps<float> gemm_;
  std::int64_t parts_;
  std::vector<float> matrix_;
};

/// Lines of real points: [lines, length] times [length, 2 kept], or [lines, 2 kept] times [2 kept, length].
class RealLines final : public DirectFft {
 public:
  RealLines(const Kernels& kernels, const FftSpec& spec) : DirectFft(kernels, spec) {
    matrix_.resize(2 * kept_ * spec.length);
    for (std::int64_t j = 0; j < kept_; ++j)
      for (std::int64_t n = 0; n < spec.length; ++n) {
        const Wave w = wave(j, n, spec.length);
        const double parts[] = {factor(j) * w.re, is_own_conjugate(spec, j) ? 0 : -factor(j) * w.im};
        for (std::int64_t part = 0; part < 2; ++part) {
          const std::int64_t at = to_modes_ ? n * 2 * kept_ + 2 * j + part : (2 * j + part) * spec.length + n;
          matrix_[at] = static_cast<float>(parts[part]);
        }
      }
  }

  std::size_t scratch_bytes() const override {
    return spec_.inner == 1 ? 0 : (parts_ * kInnerBlock * (from() + to())) * sizeof(float);
  }

  void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) override {
    const std::int64_t lines = spec_.outer * spec_.inner;
    kernels::GemmArgs<float, float> args;
    args.m = lines, args.n = to(), args.k = from();
    args.a = reals(in, lines * from(), "in"), args.lda = from();
    args.b = matrix_.data(), args.ldb = to();
    args.c = reals(out, lines * to(), "out"), args.ldc = to();
    args.beta = accumulate ? 1.0f : 0.0f;
    if (spec_.inner > 1) return run_apart(args, scratch);
    parallel_for(lines, kLineBlock,
                 [&](std::int64_t begin, std::int64_t end) { gemm_.gemm(gemm_rows(args, begin, end)); });
  }

 private:
  std::int64_t from() const { return to_modes_ ? spec_.length : 2 * kept_; }
  std::int64_t to() const { return to_modes_ ? 2 * kept_ : spec_.length; }

  /// Gathers lines whose elements are not contiguous, a few at a time. Modes are pairs.
  void run_apart(const kernels::GemmArgs<float, float>& all, const TensorView& scratch) const {
    if (scratch.data == nullptr || scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()))
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), "fft", "scratch");
    const std::int64_t share = (all.m + parts_ - 1) / parts_, in_pair = to_modes_ ? 1 : 2,
                       out_pair = to_modes_ ? 2 : 1;
    parallel_for(all.m, share, [&](std::int64_t begin, std::int64_t end) {
      float* in = static_cast<float*>(scratch.data) + begin / share * kInnerBlock * (from() + to());
      float* out = in + kInnerBlock * from();
      for (std::int64_t first = begin; first < end; first += kInnerBlock) {
        kernels::GemmArgs<float, float> args = all;
        args.m = std::min(kInnerBlock, end - first), args.a = in, args.c = out, args.beta = 0;
        for (std::int64_t l = 0; l < args.m; ++l)
          for (std::int64_t i = 0; i < from(); ++i)
            in[l * from() + i] = all.a[place(first + l, i, from(), in_pair)];
        gemm_.gemm(args);
        for (std::int64_t l = 0; l < args.m; ++l)
          for (std::int64_t i = 0; i < to(); ++i) {
            float& element = all.c[place(first + l, i, to(), out_pair)];
            element = all.beta != 0 ? element + out[l * to() + i] : out[l * to() + i];
          }
      }
    });
  }
  /// Index of real `i` out of `reals` of a line, in a tensor whose elements have `pair` reals.
  std::int64_t place(std::int64_t line, std::int64_t i, std::int64_t reals, std::int64_t pair) const {
    return (line / spec_.inner * (reals / pair) + i / pair) * spec_.inner * pair + line % spec_.inner * pair +
           i % pair;
  }
};

/// Complex points. Modes m and length - m share cosines and sines, so both sums are computed once per
/// frequency f = min(m, length - m): X_m = C_f - i S_f and X_(length - m) = C_f + i S_f, and the inverse
/// begins with their sum and difference. The matrix [cosines; sines] is real and its columns are the real and
/// imaginary parts of neighbours, so nothing is transposed: the inner extent stays where it is.
class ComplexLines final : public DirectFft {
 public:
  ComplexLines(const Kernels& kernels, const FftSpec& spec)
      : DirectFft(kernels, spec), together_(lines_together(spec.inner)) {
    for (std::int64_t j = 0; j < kept_; ++j) {
      const std::int64_t mode = mode_number(spec, j), mirror = (spec.length - mode) % spec.length;
      const std::int64_t frequency = std::min(mode, mirror);
      const auto found = std::find(frequencies_.begin(), frequencies_.end(), frequency);
      modes_.push_back({found - frequencies_.begin(), mode == frequency ? 1.0f : -1.0f});
      if (found == frequencies_.end()) frequencies_.push_back(frequency);
    }
    const std::int64_t sums = sums_of_line(), half = sums / 2;
    matrix_.resize(sums * spec.length);
    for (std::int64_t f = 0; f < half; ++f)
      for (std::int64_t n = 0; n < spec.length; ++n) {
        const Wave w = wave(frequencies_[f], n, spec.length);
        // Factors of complex points are one number for all modes.
        place(f, n) = static_cast<float>(factor(0) * w.re);
        place(half + f, n) = static_cast<float>(factor(0) * w.im);
      }
  }

  std::size_t scratch_bytes() const override { return (parts_ * room()) * sizeof(float); }

  void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) override {
    const std::int64_t points = spec_.outer * spec_.length * spec_.inner * 2,
                       modes = spec_.outer * kept_ * spec_.inner * 2;
    const float* source = reals(in, to_modes_ ? points : modes, "in");
    float* target = reals(out, to_modes_ ? modes : points, "out");
    if (scratch.data == nullptr || scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()))
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), "fft", "scratch");
    const std::int64_t blocks = (spec_.inner + kInnerBlock - 1) / kInnerBlock,
                       groups = (spec_.outer + together_ - 1) / together_, items = groups * blocks,
                       share = (items + parts_ - 1) / parts_;
    if (items == 0) return;
    parallel_for(items, share, [&](std::int64_t begin, std::int64_t end) {
      float* mine = static_cast<float*>(scratch.data) + begin / share * room();
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t outer = item / blocks * together_, first = item % blocks * kInnerBlock;
        const Columns columns{outer, std::min(together_, spec_.outer - outer), first * 2,
                              2 * std::min(kInnerBlock, spec_.inner - first)};
        if (to_modes_) {
          sum_points(source, columns, target, accumulate, mine);
        } else {
          spread_modes(source, columns, target, accumulate, mine);
        }
      }
    });
  }

 private:
  /// Lines in one product, and of each of them `width` reals of every element, from real `first` on.
  struct Columns {
    std::int64_t outer, lines, first, width;
    std::int64_t all() const { return lines * width; }
  };
  /// Frequency of a kept mode, and the sign of its sines.
  struct Mode {
    std::int64_t frequency;
    float sign;
  };

  /// Lines of few neighbours in one product, so that its columns fill vectors.
  static std::int64_t lines_together(std::int64_t inner) {
    constexpr std::int64_t kPanel = 16, kMost = 64;  // complex columns
    std::int64_t best = 1;
    double most = 0;
    for (std::int64_t lines = 1; lines * inner <= kMost; ++lines) {
      const std::int64_t columns = lines * inner;
      const double filled =
          static_cast<double>(columns) / static_cast<double>((columns + kPanel - 1) / kPanel * kPanel);
      if (filled > most) most = filled, best = lines;
    }
    return inner < kInnerBlock ? best : 1;
  }

  std::int64_t sums_of_line() const { return 2 * static_cast<std::int64_t>(frequencies_.size()); }
  std::int64_t widest() const { return 2 * std::max(kInnerBlock, together_ * spec_.inner); }
  /// Points of several lines side by side, and sums.
  std::int64_t room() const { return (spec_.length + sums_of_line()) * widest(); }

  /// Matrix element with the wave of a sum at a point: rows are the outputs.
  float& place(std::int64_t sum, std::int64_t n) {
    return matrix_[to_modes_ ? sum * spec_.length + n : n * sums_of_line() + sum];
  }

  /// Index of element `n` of a line, `extent` long, in a tensor.
  std::int64_t at(const Columns& c, std::int64_t line, std::int64_t extent, std::int64_t n) const {
    return ((c.outer + line) * extent + n) * spec_.inner * 2 + c.first;
  }

  void sum_points(const float* points, const Columns& c, float* modes, bool accumulate, float* room) const {
    float* sums = room + spec_.length * c.all();
    kernels::GemmArgs<float, float> args;
    args.m = sums_of_line(), args.n = c.all(), args.k = spec_.length;
    args.a = matrix_.data(), args.lda = spec_.length;
    args.b = room, args.ldb = c.all();
    args.c = sums, args.ldc = c.all();
    if (c.lines == 1) {
      args.b = points + at(c, 0, spec_.length, 0), args.ldb = 2 * spec_.inner;
    } else {
      for (std::int64_t line = 0; line < c.lines; ++line)
        for (std::int64_t n = 0; n < spec_.length; ++n)
          std::copy_n(points + at(c, line, spec_.length, n), c.width, room + n * c.all() + line * c.width);
    }
    gemm_.gemm(args);
    for (std::int64_t line = 0; line < c.lines; ++line)
      for (std::int64_t j = 0; j < kept_; ++j) {
        const Mode mode = modes_[j];
        const float* cosines = sums + mode.frequency * c.all() + line * c.width;
        const float* sines = cosines + sums_of_line() / 2 * c.all();
        float* to = modes + at(c, line, kept_, j);
        for (std::int64_t i = 0; i < c.width; i += 2) {
          const float re = cosines[i] + mode.sign * sines[i + 1], im = cosines[i + 1] - mode.sign * sines[i];
          to[i] = accumulate ? to[i] + re : re;
          to[i + 1] = accumulate ? to[i + 1] + im : im;
        }
      }
  }

  void spread_modes(const float* modes, const Columns& c, float* points, bool accumulate, float* room) const {
    float* sums = room + spec_.length * c.all();
    std::fill_n(sums, sums_of_line() * c.all(), 0.0f);
    for (std::int64_t line = 0; line < c.lines; ++line)
      for (std::int64_t j = 0; j < kept_; ++j) {
        const Mode mode = modes_[j];
        float* cosines = sums + mode.frequency * c.all() + line * c.width;
        float* sines = cosines + sums_of_line() / 2 * c.all();
        const float* from = modes + at(c, line, kept_, j);
        for (std::int64_t i = 0; i < c.width; i += 2) {
          cosines[i] += from[i];
          cosines[i + 1] += from[i + 1];
          sines[i] -= mode.sign * from[i + 1];
          sines[i + 1] += mode.sign * from[i];
        }
      }
    kernels::GemmArgs<float, float> args;
    args.m = spec_.length, args.n = c.all(), args.k = sums_of_line();
    args.a = matrix_.data(), args.lda = sums_of_line();
    args.b = sums, args.ldb = c.all();
    if (c.lines == 1) {
      args.c = points + at(c, 0, spec_.length, 0), args.ldc = 2 * spec_.inner;
      args.beta = accumulate ? 1.0f : 0.0f;
      gemm_.gemm(args);
      return;
    }
    args.c = room, args.ldc = c.all();
    gemm_.gemm(args);
    for (std::int64_t line = 0; line < c.lines; ++line)
      for (std::int64_t n = 0; n < spec_.length; ++n) {
        const float* from = room + n * c.all() + line * c.width;
        float* to = points + at(c, line, spec_.length, n);
        if (!accumulate) {
          std::copy_n(from, c.width, to);
        } else {
          for (std::int64_t i = 0; i < c.width; ++i) to[i] = from[i] + to[i];
        }
      }
  }

  std::vector<std::int64_t> frequencies_;
  std::vector<Mode> modes_;
  std::int64_t together_;
};

}  // namespace

bool is_direct(const FftSpec& spec) {
  return spec.points == (spec.real ? DType::kF32 : DType::kC64) && spec.length <= kMostPoints &&
         kept_modes(spec) <= kMostModes;
}

std::unique_ptr<FftKernel> make_direct_fft(const Kernels& kernels, const FftSpec& spec) {
  if (spec.real) return std::make_unique<RealLines>(kernels, spec);
  return std::make_unique<ComplexLines>(kernels, spec);
}

}  // namespace tenon::cpu
