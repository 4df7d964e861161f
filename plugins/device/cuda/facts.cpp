// Probes are small and of odd sizes, on numbers that every format represents, so that whoever computes right
// gets exactly the host's result.
#include "facts.hpp"

#include "queue.hpp"

#include <tenon/error.hpp>
#include <tenon/kernels/bf16.hpp>
#include <tenon/operators.hpp>
#include <tenon/operators_extra.hpp>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cmath>
#include <vector>

namespace tenon::cuda {
namespace {

#ifndef TENON_CUDA_EMULATED
struct KnownLibrary {
  const char* name;
  const char* file;
  const char* without;  ///< what is there instead
};
constexpr KnownLibrary kLibraries[] = {
    {"cuBLASLt", "libcublasLt.so.13", "products run on this device's own kernels"},
    {"cuFFT", "libcufft.so.12", "transforms run on this device's own kernels"},
    {"cuDNN", "libcudnn.so.9", "nothing here uses it"},
    {"NCCL", "libnccl.so.2", "ranks exchange tensors through host memory"}};

/// Where the loader found it; "" = nowhere.
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

/// Tensors of the device under a probe.
class ProbeBench {
 public:
  explicit ProbeBench(Device& device) : device_(device) {}
  ~ProbeBench() {
    for (const TensorView& view : views_) device_.release(view.data, static_cast<std::size_t>(view.bytes()));
  }
  ProbeBench(const ProbeBench&) = delete;
  ProbeBench& operator=(const ProbeBench&) = delete;

  Device& device() const { return device_; }
  TensorView room(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, device_.space()};
    view.data = device_.allocate(static_cast<std::size_t>(view.bytes()));
    views_.push_back(view);
    return view;
  }
  /// Whole numbers of at most 3 bits.
  TensorView drawn(DType dtype, const Shape& shape, int seed, std::vector<double>& values) {
    values.resize(static_cast<std::size_t>(shape.elements()));
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
  std::vector<double> values(const TensorView& view) {
    std::vector<double> result(static_cast<std::size_t>(view.elements()));
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
std::string difference(const std::vector<double>& found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return fmt::format("element {} is {}, and on the host {}", i, found[i], expected[i]);
  }
  return "";
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
  std::vector<double> expected(static_cast<std::size_t>(kM * kN), 0.0);
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t l = 0; l < kK; ++l)
      for (std::int64_t j = 0; j < kN; ++j)
        expected[static_cast<std::size_t>(i * kN + j)] +=
            a[static_cast<std::size_t>(i * kK + l)] * b[static_cast<std::size_t>(l * kN + j)];
  return difference(bench.values(c), expected);
}

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
  const std::pair<const char*, std::string (*)(ProbeBench&, DType)> kinds[] = {
      {"maps", try_maps}, {"sums", try_sums}, {"products", try_products}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const auto& [kind, attempt] : kinds) {
      const bool native = device_.family<Blas>().native(dtype);
      const std::string claim = fmt::format("{} of {}{}", kind, dtype_name(dtype),
                                            attempt != &try_products ? ""
                                            : native                 ? ", native"
                                                                     : ", by conversion");
      try {
        ProbeBench bench(device_);
        const std::string wrong = attempt(bench, dtype);
        report.probe(claim, wrong.empty(), wrong.empty() ? "equal to the host's numbers" : wrong);
      } catch (const Error& error) {
        report.probe(claim, false, error.what());
      }
    }
  }
}

}  // namespace tenon::cuda
