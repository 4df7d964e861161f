#include "probes.hpp"

#include "probe_bench.hpp"

#include <tenon/ops/convolution.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/spectral.hpp>

#include <cmath>
#include <utility>

namespace tenon::cuda {
namespace {

std::string try_maps(ProbeBench& bench, DType dtype) {
  std::vector<double> x, y;
  const TensorView a = bench.drawn(dtype, {1001}, 1, x), b = bench.drawn(dtype, {1001}, 5, y);
  bench.device().family<Elementwise>().axpy(2, a, b);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += 2 * x[i];
  return difference(bench.values(b), y);
}

std::string try_sums(ProbeBench& bench, DType dtype) {
  std::vector<double> x;
  const TensorView a = bench.drawn(dtype, {1001}, 3, x);
  double expected = 0;
  for (const double value : x) expected += value;
  return difference({bench.device().family<ReduceOps>().sum(a)}, {expected});
}

// Sums of 65 products of such numbers are below 2^12, so f32 holds them exactly.
std::string try_products(ProbeBench& bench, DType dtype) {
  constexpr std::int64_t kM = 33, kN = 17, kK = 65;
  const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<double> a, b;
  const TensorView left = bench.drawn(dtype, {kM, kK}, 2, a), right = bench.drawn(dtype, {kK, kN}, 4, b);
  const auto gemm =
      bench.device().family<Blas>().gemm({.m = kM, .n = kN, .k = kK, .a = dtype, .b = dtype, .c = wide});
  const TensorView c = bench.room(wide, {kM, kN}),
                   scratch = bench.room(DType::kU8, {static_cast<std::int64_t>(gemm->scratch_bytes())});
  gemm->run(left, right, c, {}, 1, scratch);
  std::vector<double> expected(static_cast<std::size_t>(kM * kN), 0.0);
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t l = 0; l < kK; ++l)
      for (std::int64_t j = 0; j < kN; ++j)
        expected[static_cast<std::size_t>(i * kN + j)] +=
            a[static_cast<std::size_t>(i * kK + l)] * b[static_cast<std::size_t>(l * kN + j)];
  return difference(bench.values(c), expected);
}

/// Lines of both algorithms: by the matrix of kept modes, and, where most of many are kept, by the library.
/// "" = right.
std::string try_transform(ProbeBench& bench, std::int64_t length, std::int64_t low, std::int64_t high) {
  FftSpec spec;
  spec.length = length, spec.low = low, spec.high = high;
  std::vector<double> points;
  const TensorView reals = bench.drawn(DType::kF32, {2 * length}, 3, points),
                   x{reals.data, Shape{1, length, 1}, DType::kC64, reals.space},
                   found = bench.room(DType::kF32, {2 * (low + high)}),
                   y{found.data, Shape{1, low + high, 1}, DType::kC64, found.space};
  const auto transform = bench.device().family<Fft>().prepare(spec);
  const TensorView scratch = bench.room(DType::kU8, {static_cast<std::int64_t>(transform->scratch_bytes())});
  transform->run(x, y, false, scratch);
  const std::vector<double> modes = bench.values(found);
  double size = 0;
  for (const double point : points) size += std::abs(point);
  for (std::int64_t i = 0; i < low + high; ++i) {
    const std::int64_t k = i < low ? i : length - (low + high) + i;
    double re = 0, im = 0;
    for (std::int64_t t = 0; t < length; ++t) {
      const double angle =
          -2 * std::acos(-1.0) * static_cast<double>(k * t % length) / static_cast<double>(length);
      const double a = points[static_cast<std::size_t>(2 * t)],
                   b = points[static_cast<std::size_t>(2 * t + 1)];
      re += a * std::cos(angle) - b * std::sin(angle), im += a * std::sin(angle) + b * std::cos(angle);
    }
    const auto at = static_cast<std::size_t>(2 * i);
    if (std::abs(modes[at] - re) <= 1e-6 * size && std::abs(modes[at + 1] - im) <= 1e-6 * size) continue;
    return fmt::format("mode {} is {} + {}i, and on the host {} + {}i", k, modes[at], modes[at + 1], re, im);
  }
  return "";
}

/// All three passes of a small image, against sums over places and offsets. "" = right.
std::string try_convolution(ProbeBench& bench, Convolution& convolution, const ConvolutionSpec& spec) {
  const WindowSpec& window = spec.window;
  std::vector<double> x, w, dy;
  const TensorView images = bench.drawn(DType::kF32, {spec.batch * spec.channels * window.elements()}, 1, x),
                   filters =
                       bench.drawn(DType::kF32, {spec.features * spec.channels * window.offsets()}, 2, w),
                   above = bench.drawn(DType::kF32, {spec.batch * spec.features * window.places()}, 3, dy),
                   scratch = bench.room(DType::kU8, {static_cast<std::int64_t>(convolution.scratch_bytes())});
  const TensorView y = bench.room(DType::kF32, above.shape), dx = bench.room(DType::kF32, images.shape),
                   dw = bench.room(DType::kF32, filters.shape);
  convolution.forward(images, filters, {}, y, scratch);
  convolution.backward_input(filters, above, dx, false, scratch);
  convolution.backward_weight(images, above, dw, false, scratch);
  std::vector<double> sums_y(dy.size()), sums_x(x.size()), sums_w(w.size());
  const std::int64_t height = window.extent[0], width = window.extent[1];
  for (std::int64_t place = 0; place < window.places(); ++place)
    for (std::int64_t offset = 0; offset < window.offsets(); ++offset) {
      const std::int64_t row = place / window.places(1) + offset / window.kernel[1] - window.pad_low[0],
                         column = place % window.places(1) + offset % window.kernel[1] - window.pad_low[1];
      if (row < 0 || row >= height || column < 0 || column >= width) continue;
      for (std::int64_t b = 0; b < spec.batch; ++b)
        for (std::int64_t f = 0; f < spec.features; ++f)
          for (std::int64_t c = 0; c < spec.channels; ++c) {
            const auto i =
                static_cast<std::size_t>(((b * spec.channels + c) * height + row) * width + column);
            const auto j = static_cast<std::size_t>((f * spec.channels + c) * window.offsets() + offset);
            const auto k = static_cast<std::size_t>((b * spec.features + f) * window.places() + place);
            sums_y[k] += x[i] * w[j], sums_x[i] += dy[k] * w[j], sums_w[j] += dy[k] * x[i];
          }
    }
  const struct {
    const char* name;
    std::string wrong;
  } passes[] = {{"y", difference(bench.values(y), sums_y)},
                {"dx", difference(bench.values(dx), sums_x)},
                {"dw", difference(bench.values(dw), sums_w)}};
  for (const auto& pass : passes)
    if (!pass.wrong.empty()) return fmt::format("{}: {}", pass.name, pass.wrong);
  return "";
}

}  // namespace

void probe_arithmetic(Device& device, FactReport& report) {
  const std::pair<const char*, std::string (*)(ProbeBench&, DType)> kinds[] = {
      {"maps", try_maps}, {"sums", try_sums}, {"products", try_products}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const auto& [kind, attempt] : kinds) {
      const bool native = device.family<Blas>().native(dtype);
      const std::string claim = fmt::format("{} of {}{}", kind, dtype_name(dtype),
                                            attempt != &try_products ? ""
                                            : native                 ? ", native"
                                                                     : ", by conversion");
      run_probe(device, report, claim, kEqual,
                [&, run = attempt](ProbeBench& bench) { return run(bench, dtype); });
    }
  }
}

void probe_transforms(Device& device, FactReport& report) {
  if (device.query(Fft::kId) == nullptr) return;
  const struct {
    const char* claim;
    std::int64_t length, low, high;
  } kinds[] = {{"transforms of few modes, to 1e-6", 37, 5, 4},
               {"transforms of all modes, to 1e-6", 512, 256, 256}};
  for (const auto& kind : kinds)
    run_probe(device, report, kind.claim, "within 1e-6 of the host's sums",
              [&](ProbeBench& bench) { return try_transform(bench, kind.length, kind.low, kind.high); });
}

void probe_convolutions(Device& device, FactReport& report) {
  auto* const family = static_cast<Convolutions*>(device.query(Convolutions::kId));
  if (family == nullptr) return;
  const ConvolutionSpec spec{
      .window = {.extent = {6, 5}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}},
      .batch = 2,
      .channels = 3,
      .features = 5};
  constexpr const char* kClaim = "convolutions from images";
  guarded(report, kClaim, [&] {
    const auto convolution = family->prepare(spec);
    if (convolution == nullptr) return report.fact(kClaim, "none: windows are multiplied");
    run_probe(device, report, kClaim, kEqual,
              [&](ProbeBench& bench) { return try_convolution(bench, *convolution, spec); });
  });
}

}  // namespace tenon::cuda
