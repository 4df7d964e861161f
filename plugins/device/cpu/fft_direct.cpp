// A product's elements are one chain each (tenon/kernels/gemm.hpp), so a line's bits depend on nothing else.
#include "fft_direct.hpp"

#include "fft_modes.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tenon::cpu {
namespace {

/// Beyond them a chain loses digits, or FFTW is faster.
constexpr std::int64_t kMostPoints = 128, kMostModes = 32;
/// Lines of real points that one product takes, and neighbours along the inner extent.
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
  /// Of a kept mode in a sum over the whole spectrum (the forward maps) or over the points.
  double factor(std::int64_t kept) const {
    const bool inverse = spec_.map == FftMap::kInverse || spec_.map == FftMap::kInverseAdjoint;
    return inverse ? mode_terms(spec_, kept) / static_cast<double>(spec_.length) : 1;
  }

  static float* reals(const TensorView& view, std::int64_t count, const char* name) {
    const bool complex = view.dtype == DType::kC64;
    if ((!complex && view.dtype != DType::kF32) || view.elements() * (complex ? 2 : 1) != count ||
        (view.data == nullptr && count > 0))
      refuse_view(view, complex ? DType::kC64 : DType::kF32, complex ? count / 2 : count, "fft", name);
    return view.as<float>();
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
    matrix_.resize(static_cast<std::size_t>(2 * kept_ * spec.length));
    for (std::int64_t j = 0; j < kept_; ++j)
      for (std::int64_t n = 0; n < spec.length; ++n) {
        const Wave w = wave(j, n, spec.length);
        const double parts[] = {factor(j) * w.re, is_own_conjugate(spec, j) ? 0 : -factor(j) * w.im};
        for (std::int64_t part = 0; part < 2; ++part) {
          const std::int64_t at = to_modes_ ? n * 2 * kept_ + 2 * j + part : (2 * j + part) * spec.length + n;
          matrix_[static_cast<std::size_t>(at)] = static_cast<float>(parts[part]);
        }
      }
  }

  std::size_t scratch_bytes() const override {
    return spec_.inner == 1
               ? 0
               : static_cast<std::size_t>(parts_ * kInnerBlock * (from() + to())) * sizeof(float);
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

  /// Lines whose elements lie apart are brought together, a few at a time. Modes are pairs.
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
  /// Of real `i` of `reals` ones of a line, in a tensor whose elements have `pair` reals.
  std::int64_t place(std::int64_t line, std::int64_t i, std::int64_t reals, std::int64_t pair) const {
    return (line / spec_.inner * (reals / pair) + i / pair) * spec_.inner * pair + line % spec_.inner * pair +
           i % pair;
  }
};

/// Complex points: a real matrix [rows, 2 terms] times the terms and i times the terms, whose columns are the
/// parts of neighbours. Nothing is turned round: the inner extent stays where it is.
class ComplexLines final : public DirectFft {
 public:
  ComplexLines(const Kernels& kernels, const FftSpec& spec)
      : DirectFft(kernels, spec),
        terms_(to_modes_ ? spec.length : kept_),
        rows_(to_modes_ ? kept_ : spec.length),
        together_(lines_together(spec.inner)) {
    matrix_.resize(static_cast<std::size_t>(rows_ * 2 * terms_));
    for (std::int64_t j = 0; j < kept_; ++j)
      for (std::int64_t n = 0; n < spec.length; ++n) {
        const Wave w = wave(mode_number(spec, j), n, spec.length);
        const std::int64_t row = to_modes_ ? j : n, term = to_modes_ ? n : j;
        float* first = matrix_.data() + row * 2 * terms_ + term;
        first[0] = static_cast<float>(factor(j) * w.re);
        first[terms_] = static_cast<float>(factor(j) * (to_modes_ ? -w.im : w.im));
      }
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(parts_ * (stacked() + products())) * sizeof(float);
  }

  void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) override {
    const float* source = reals(in, spec_.outer * terms_ * spec_.inner * 2, "in");
    float* target = reals(out, spec_.outer * rows_ * spec_.inner * 2, "out");
    if (scratch.data == nullptr || scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()))
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), "fft", "scratch");
    const std::int64_t blocks = (spec_.inner + kInnerBlock - 1) / kInnerBlock,
                       groups = (spec_.outer + together_ - 1) / together_, items = groups * blocks,
                       share = (items + parts_ - 1) / parts_;
    if (items == 0) return;
    parallel_for(items, share, [&](std::int64_t begin, std::int64_t end) {
      float* stack = static_cast<float*>(scratch.data) + begin / share * (stacked() + products());
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t outer = item / blocks * together_, first = item % blocks * kInnerBlock;
        const std::int64_t lines = std::min(together_, spec_.outer - outer),
                           width = 2 * std::min(kInnerBlock, spec_.inner - first);
        for (std::int64_t line = 0; line < lines; ++line)
          stack_terms(source + ((outer + line) * terms_ * spec_.inner + first) * 2, width, lines * width,
                      stack + line * width);
        kernels::GemmArgs<float, float> args;
        args.m = rows_, args.n = lines * width, args.k = 2 * terms_;
        args.a = matrix_.data(), args.lda = 2 * terms_;
        args.b = stack, args.ldb = lines * width;
        args.c = target + (outer * rows_ * spec_.inner + first) * 2, args.ldc = 2 * spec_.inner;
        args.beta = accumulate ? 1.0f : 0.0f;
        if (lines == 1) {
          gemm_.gemm(args);
        } else {
          multiply_apart(args, lines, stack + stacked());
        }
      }
    });
  }

 private:
  /// Lines of few neighbours that one product takes, so that its columns fill vectors.
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

  std::int64_t columns() const { return std::max(kInnerBlock, together_ * spec_.inner); }
  std::int64_t stacked() const { return 2 * terms_ * 2 * columns(); }
  std::int64_t products() const { return together_ == 1 ? 0 : rows_ * 2 * columns(); }

  /// A product of several lines, whose results lie apart: line by line, of `args.n / lines` columns each.
  void multiply_apart(const kernels::GemmArgs<float, float>& all, std::int64_t lines, float* products) const {
    kernels::GemmArgs<float, float> args = all;
    args.c = products, args.ldc = all.n, args.beta = 0;
    gemm_.gemm(args);
    const std::int64_t width = all.n / lines;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* from = products + row * all.n + line * width;
        float* to = all.c + (line * rows_ + row) * width;
        if (all.beta == 0) {
          std::copy_n(from, width, to);
        } else {
          for (std::int64_t c = 0; c < width; ++c) to[c] = from[c] + to[c];
        }
      }
  }

  /// `width` reals of every term, then of i times every term, in rows of `row` reals.
  void stack_terms(const float* from, std::int64_t width, std::int64_t row, float* stack) const {
    float* turned = stack + terms_ * row;
    for (std::int64_t term = 0; term < terms_; ++term, from += 2 * spec_.inner, stack += row, turned += row) {
      std::copy_n(from, width, stack);
      for (std::int64_t c = 0; c < width; c += 2) {
        turned[c] = -from[c + 1];
        turned[c + 1] = from[c];
      }
    }
  }

  std::int64_t terms_, rows_, together_;
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
