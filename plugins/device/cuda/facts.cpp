// Facts about the machine, and probes of what the device claims to compute, for tenon doctor: a flag that a
// library or a driver sets is no proof. Probes are small and of odd sizes, on numbers that every format
// represents, so that a correct implementation gets exactly the host's result.
#include "facts.hpp"

#include "queue.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/bf16.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/spectral.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace tenon::cuda {
namespace {

/// Tensors of the device under a probe.
class ProbeBench {
 public:
  explicit ProbeBench(Device& device) : device_(device) {}
  ~ProbeBench() {
    for (const TensorView& view : views_) device_.release(view.data, view.bytes());
  }
  ProbeBench(const ProbeBench&) = delete;
  ProbeBench& operator=(const ProbeBench&) = delete;

  Device& device() const { return device_; }
  TensorView room(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, device_.space()};
    view.data = device_.allocate(view.bytes());
    views_.push_back(view);
    return view;
  }
  /// Whole numbers of at most 3 bits.
  TensorView drawn(DType dtype, const Shape& shape, int seed, std::vector<double>& values) {
    values.resize(shape.elements());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>((static_cast<int>(i) * 7 + seed) % 13 - 6);
    const TensorView view = room(dtype, shape);
    with_type(dtype, [&](auto zero) {
      std::vector<decltype(zero)> there(values.size());
      for (std::size_t i = 0; i < there.size(); ++i) put(values[i], there[i]);
      device_.copy({there.data(), shape, dtype, MemorySpace::kHost}, view);
      device_.synchronize();
    });
    return view;
  }
  template <class T>
  TensorView copied(std::vector<T>& from, DType dtype) {
    const TensorView view = room(dtype, {static_cast<std::int64_t>(from.size())});
    device_.copy({from.data(), view.shape, dtype, MemorySpace::kHost}, view);
    device_.synchronize();
    return view;
  }
  std::vector<double> values(const TensorView& view) {
    std::vector<double> result(view.elements());
    with_type(view.dtype, [&](auto zero) {
      std::vector<decltype(zero)> there(result.size());
      device_.copy(view, {there.data(), view.shape, view.dtype, MemorySpace::kHost});
      device_.synchronize();
      for (std::size_t i = 0; i < there.size(); ++i) result[i] = get(there[i]);
    });
    return result;
  }

 private:
  template <class Visit>
  static void with_type(DType dtype, Visit visit) {
    if (dtype == DType::kF64) return visit(double{});
    if (dtype == DType::kBF16) return visit(kernels::Bf16{});
    visit(float{});
  }
  template <class T>
  static void put(double value, T& at) {
    at = static_cast<T>(value);
  }
  static void put(double value, kernels::Bf16& at) { at = kernels::to_bf16(static_cast<float>(value)); }
  template <class T>
  static double get(T value) {
    return static_cast<double>(value);
  }
  static double get(kernels::Bf16 value) { return kernels::to_float(value); }

  Device& device_;
  std::vector<TensorView> views_;
};

/// "" = equal.
inline std::string difference(const std::vector<double>& found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return fmt::format("element {} is {}, and on the host {}", i, found[i], expected[i]);
  }
  return "";
}

inline constexpr const char* kEqual = "equal to the host's numbers";

/// Reports an error of call() as a claim that does not hold.
template <class Call>
void guarded(FactReport& report, const std::string& claim, Call call) {
  try {
    call();
  } catch (const Error& error) {
    report.probe(claim, false, error.what());
  }
}

/// attempt(bench) returns what is wrong; "" = nothing.
template <class Attempt>
void run_probe(Device& device, FactReport& report, const std::string& claim, const std::string& right,
               Attempt attempt) {
  guarded(report, claim, [&] {
    ProbeBench bench(device);
    const std::string wrong = attempt(bench);
    report.probe(claim, wrong.empty(), wrong.empty() ? right : wrong);
  });
}

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
  std::vector<double> expected(kM * kN, 0.0);
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t l = 0; l < kK; ++l)
      for (std::int64_t j = 0; j < kN; ++j) expected[i * kN + j] += a[i * kK + l] * b[l * kN + j];
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
      const double a = points[2 * t], b = points[2 * t + 1];
      re += a * std::cos(angle) - b * std::sin(angle), im += a * std::sin(angle) + b * std::cos(angle);
    }
    const std::size_t at = 2 * i;
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
            const std::size_t i = ((b * spec.channels + c) * height + row) * width + column;
            const std::size_t j = (f * spec.channels + c) * window.offsets() + offset;
            const std::size_t k = (b * spec.features + f) * window.places() + place;
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

/// Maps, sums and products.
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

/// Convolutions from images, where a library computes them.
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

/// Formats that the GPU's units may read, each with a product of odd rows whose sums f32 holds exactly.
struct CodeFormat {
  const char* name;
  ScaledOperand operand;
};
constexpr CodeFormat kCodeFormats[] = {
    {"fp8", {ElementFormat::kE4M3, BlockScale::kTensor, 1, 1}},
    {"fp8 with a scale per row", {ElementFormat::kE4M3, BlockScale::kFloat, 1, 96}},
    {"mxfp8", {ElementFormat::kE4M3, BlockScale::kPower, 1, 32}},
    {"nvfp4", {ElementFormat::kE2M1, BlockScale::kTwoLevel, 1, 16}}};
constexpr std::int64_t kCodeRows = 33, kCodeColumns = 48, kCodeDepth = 96;

ScaledProductSpec product_of(const CodeFormat& format) {
  ScaledProductSpec spec;
  spec.product = {.m = kCodeRows, .n = kCodeColumns, .k = kCodeDepth, .transpose_b = true};
  spec.a = spec.b = format.operand;
  return spec;
}

/// Rows of codes of 0, +-1 and +-2 under scales of 1 and 2, and the values that they represent.
struct ProbeCodes {
  ScaledMatrix matrix;
  std::vector<double> values;

  ProbeCodes(ProbeBench& bench, const ScaledOperand& operand, std::int64_t rows, int seed)
      : values(static_cast<std::size_t>(rows * kCodeDepth)) {
    const bool fours = operand.element == ElementFormat::kE2M1;
    const std::uint8_t codes_of[] = {0, static_cast<std::uint8_t>(fours ? 2 : 0x38),
                                     static_cast<std::uint8_t>(fours ? 4 : 0x40)};
    const std::int64_t block = operand.scale == BlockScale::kTensor ? kCodeDepth : operand.block_columns;
    const std::int64_t blocks = kCodeDepth / block;
    std::vector<std::uint8_t> codes(values.size() / (fours ? 2 : 1)), bits;
    std::vector<float> floats;
    for (std::int64_t i = 0; i < rows * blocks; ++i) {
      const bool twice = (i * 5 + seed) % 3 == 0 && operand.scale != BlockScale::kTensor;
      floats.push_back(twice ? 2.0f : 1.0f);
      bits.push_back(static_cast<std::uint8_t>(operand.scale == BlockScale::kPower ? (twice ? 128 : 127)
                                                                                   : (twice ? 0x40 : 0x38)));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int pick = (static_cast<int>(i) * 7 + seed) % 5, size = pick % 3;
      const bool negative = pick > 2 && size > 0;
      const int code = codes_of[size] | (negative ? (fours ? 8 : 0x80) : 0);
      codes[fours ? i / 2 : i] |= static_cast<std::uint8_t>(fours && i % 2 != 0 ? code << 4 : code);
      values[i] = size * (negative ? -1.0 : 1.0) * floats[i / static_cast<std::size_t>(block)];
    }
    matrix.codes = bench.copied(codes, DType::kU8);
    if (operand.scale == BlockScale::kFloat) matrix.scales = bench.copied(floats, DType::kF32);
    if (operand.scale == BlockScale::kPower || operand.scale == BlockScale::kTwoLevel)
      matrix.scales = bench.copied(bits, DType::kU8);
  }
};

std::string try_codes(ProbeBench& bench, ScaledProducts& family, const CodeFormat& format) {
  const auto product = family.prepare(product_of(format));
  const ProbeCodes a(bench, format.operand, kCodeRows, 1), b(bench, format.operand, kCodeColumns, 2);
  const TensorView c = bench.room(DType::kF32, {kCodeRows, kCodeColumns}),
                   scratch = bench.room(DType::kU8, {static_cast<std::int64_t>(product->scratch_bytes())});
  product->run(a.matrix, b.matrix, c, {}, 1, scratch);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < kCodeRows; ++i)
    for (std::int64_t j = 0; j < kCodeColumns; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < kCodeDepth; ++l)
        sum += a.values[i * kCodeDepth + l] * b.values[j * kCodeDepth + l];
      expected.push_back(sum);
    }
  return difference(bench.values(c), expected);
}

/// Products of codes: tries the available formats; for the rest the reason is reported as a fact.
void probe_codes(Device& device, FactReport& report) {
  auto* const family = static_cast<ScaledProducts*>(device.query(ScaledProducts::kId));
  if (family == nullptr) return;
  for (const CodeFormat& format : kCodeFormats) {
    const std::string name = fmt::format("products of codes, {}", format.name);
    guarded(report, name, [&] {
      const std::string reason = family->refusal(product_of(format));
      if (!reason.empty()) return report.fact(name, "none: " + reason);
      run_probe(device, report, name, kEqual,
                [&](ProbeBench& bench) { return try_codes(bench, *family, format); });
    });
  }
}

#ifndef TENON_CUDA_EMULATED
struct KnownLibrary {
  const char* name;
  const char* file;
  const char* without;  ///< the replacement where it is absent
};
constexpr KnownLibrary kLibraries[] = {
    {"cuBLASLt", "libcublasLt.so.13", "products run on this device's own kernels"},
    {"cuFFT", "libcufft.so.12", "transforms run on this device's own kernels"},
    {"cuDNN", "libcudnn.so.9", "convolutions make windows, for products"},
    {"NCCL", "libnccl.so.2", "ranks exchange tensors through host memory"}};

/// Path where the loader found it; "" = nowhere.
std::string place_of(const char* file) {
  for (const std::string& name : {std::string(file), std::string("/usr/local/cuda/lib64/") + file}) {
    void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    link_map* map = nullptr;
    const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
    return known ? map->l_name : name;  // stays open: these libraries outlive their handles
  }
  return "";
}

void report_libraries(FactReport& report) {
  for (const KnownLibrary& library : kLibraries) {
    const std::string place = place_of(library.file);
    report.fact(library.name,
                place.empty() ? fmt::format("absent ({}): {}", library.file, library.without) : place);
  }
}

#endif

}  // namespace

int CudaFacts::preference() const {
#ifdef TENON_CUDA_EMULATED
  return 0;
#else
  return 100;
#endif
}

int CudaFacts::usable() const {
  return usable_devices(reason_);
}

std::string_view CudaFacts::reason() const {
  usable_devices(reason_);
  return reason_;
}

void CudaFacts::report(FactReport& report) {
#ifndef TENON_CUDA_EMULATED
  report.fact("driver", driver_text());
  report_libraries(report);
#endif
  const bool open = device_.query(Elementwise::kId) != nullptr;
  if (!open) return;
  report.fact("device", device_.features());
  probe_arithmetic(device_, report);
  probe_codes(device_, report);
  probe_transforms(device_, report);
  probe_convolutions(device_, report);
}

}  // namespace tenon::cuda
