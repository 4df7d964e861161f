// The three products of each convolution of ResNet-18 and LeNet-5, and of some others, by oneDNN and by the
// kernels of this tree in turns: GFLOP/s of both and their ratio. The figures in
// plugins/device/cpu/convolution.cpp are from here. Usage: convolutions [--isa avx2|avx512] [--rounds N]
// [--threads N] [NAME]...
// --isa: limits both sides to an instruction set. NAME: only the shape that is called so.
#include "step_bench.hpp"

#include "convolution.hpp"

#include <dnnl.h>
#include <tenon/kernels/dispatch.hpp>
#include <tenon/parallel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::bench {
namespace {

struct ConvolutionShapeRow {
  const char* name;
  std::int64_t batch, channels, features, side, kernel, stride, padding;
};

constexpr ConvolutionShapeRow kShapes[] = {
    {"resnet18 stem", 64, 3, 64, 32, 3, 1, 1},
    {"resnet18 64", 64, 64, 64, 32, 3, 1, 1},
    {"resnet18 64-128", 64, 64, 128, 32, 3, 2, 1},
    {"resnet18 64-128 1x1", 64, 64, 128, 32, 1, 2, 0},
    {"resnet18 128", 64, 128, 128, 16, 3, 1, 1},
    {"resnet18 128-256", 64, 128, 256, 16, 3, 2, 1},
    {"resnet18 128-256 1x1", 64, 128, 256, 16, 1, 2, 0},
    {"resnet18 256", 64, 256, 256, 8, 3, 1, 1},
    {"resnet18 256-512", 64, 256, 512, 8, 3, 2, 1},
    {"resnet18 256-512 1x1", 64, 256, 512, 8, 1, 2, 0},
    {"resnet18 512", 64, 512, 512, 4, 3, 1, 1},
    {"lenet5 1", 256, 1, 6, 28, 5, 1, 2},
    {"lenet5 2", 256, 6, 16, 14, 5, 1, 0},
    {"56 x 56, 64", 4, 64, 64, 56, 3, 1, 1},
    {"28 x 28, 128", 8, 128, 128, 28, 3, 1, 1},
    {"14 x 14, 256", 16, 256, 256, 14, 3, 1, 1},
    {"224 x 224 stem", 2, 3, 64, 224, 7, 2, 3},
    {"56 x 56 1x1, 64-256", 4, 64, 256, 56, 1, 1, 0},
    {"14 x 14 1x1, 256-64", 16, 256, 64, 14, 1, 1, 0},
    {"13 x 13, 20-30", 32, 20, 30, 13, 3, 1, 1},
    {"64 x 64 1x1, 3-32", 16, 3, 32, 64, 1, 1, 0},
    {"64 x 64 1x1, 32-32", 16, 32, 32, 64, 1, 1, 0},
    {"64 x 64 1x1, 32-128", 16, 32, 128, 64, 1, 1, 0},
    {"64 x 64 1x1, 128-1", 16, 128, 1, 64, 1, 1, 0},
};

ConvolutionSpec spec_of(const ConvolutionShapeRow& row) {
  ConvolutionSpec spec;
  for (int d = 0; d < 2; ++d) {
    spec.window.extent[d] = row.side, spec.window.kernel[d] = row.kernel;
    spec.window.stride[d] = row.stride;
    spec.window.pad_low[d] = spec.window.pad_high[d] = row.padding;
  }
  spec.batch = row.batch, spec.channels = row.channels, spec.features = row.features;
  return spec;
}

class Memory {
 public:
  explicit Memory(std::int64_t elements, DType dtype = DType::kF32)
      : values_(static_cast<std::size_t>(elements) * (dtype == DType::kF32 ? sizeof(float) : 1) + kAlign),
        view_{values_.data(), Shape{elements}, dtype, MemorySpace::kHost} {
    const auto over = reinterpret_cast<std::uintptr_t>(view_.data) % kAlign;
    view_.data = values_.data() + (kAlign - over) % kAlign;
    for (std::int64_t i = 0; dtype == DType::kF32 && i < elements; ++i)
      view_.as<float>()[i] = static_cast<float>(i % 7 - 3) * 0.125f;
  }
  const TensorView& view() const { return view_; }

 private:
  static constexpr std::size_t kAlign = 64;
  std::vector<std::byte> values_;
  TensorView view_;
};

/// Processor time of all threads of this process: other programs disturb it less than time by the clock.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr const char* kPasses[] = {"forward", "input", "weight"};

class Side {
 public:
  explicit Side(std::unique_ptr<Convolution> plan) : plan_(std::move(plan)) {
    if (plan_ != nullptr)
      scratch_ = std::make_unique<Memory>(static_cast<std::int64_t>(plan_->scratch_bytes()), DType::kU8);
  }
  bool there() const { return plan_ != nullptr; }
  double scratch_mib() const {
    return there() ? static_cast<double>(plan_->scratch_bytes()) / (1 << 20) : 0.0;
  }
  /// The least seconds of a call.
  double best = std::numeric_limits<double>::infinity();
  void measure(int pass, const Memory& x, const Memory& w, const Memory& y) {
    if (!there()) return;
    const double begin = processor_seconds();
    if (pass == 0) plan_->forward(x.view(), w.view(), {}, y.view(), scratch_->view());
    if (pass == 1) plan_->backward_input(w.view(), y.view(), x.view(), false, scratch_->view());
    if (pass == 2) plan_->backward_weight(x.view(), y.view(), w.view(), false, scratch_->view());
    best = std::min(best, processor_seconds() - begin);
  }

 private:
  std::unique_ptr<Convolution> plan_;
  std::unique_ptr<Memory> scratch_;
};

void print_row(const ConvolutionShapeRow& row, const cpu::Kernels& kernels, int rounds) {
  const ConvolutionSpec spec = spec_of(row);
  const std::int64_t places = spec.window.places();
  const double flops = 2.0 * static_cast<double>(row.batch * places * row.features) *
                       static_cast<double>(row.channels * spec.window.offsets());
  for (int pass = 0; pass < 3; ++pass) {
    Memory x(row.batch * row.channels * row.side * row.side),
        w(row.features * row.channels * spec.window.offsets()), y(row.batch * row.features * places);
    Side library(cpu::make_onednn_convolution(kernels, spec)),
        own(cpu::make_kernel_convolution(kernels, spec));
    for (int round = 0; round < rounds; ++round) {
      library.measure(pass, x, w, y);
      own.measure(pass, x, w, y);
    }
    fmt::print("{:<22} {:<8} library {:7.1f}  own {:7.1f}  ratio {:5.2f}  scratch {:5.1f} and {:5.1f} MiB\n",
               row.name, kPasses[pass], library.there() ? 1e-9 * flops / library.best : 0.0,
               own.there() ? 1e-9 * flops / own.best : 0.0, library.best / own.best, library.scratch_mib(),
               own.scratch_mib());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  using namespace tenon;
  std::string isa = "auto";
  int rounds = 5, threads = 2;
  std::vector<std::string_view> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--isa" && more)
      isa = argv[++i];
    else if (word == "--rounds" && more)
      rounds = std::atoi(argv[++i]);
    else if (word == "--threads" && more)
      threads = std::atoi(argv[++i]);
    else
      names.push_back(word);
  }
  // The library takes the limit from its environment, before its first call.
  if (isa == "avx2") dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  const kernels::KernelTable* table = kernels::select_kernels(isa, kernels::detect_cpu_features());
  if (table == nullptr) {
    fmt::print(stderr, "convolutions: this processor has no kernels '{}'\n", isa);
    return 2;
  }
  set_parallel_threads(threads);
  fmt::print("kernels {}, {} thread(s), the least processor time of {} calls each in turns, GFLOP/s\n",
             table->name, threads, rounds);
  const cpu::Kernels kernels{.table = table, .f64 = &kernels::reference_double_kernels(), .onednn = true};
  for (const auto& row : bench::kShapes) {
    const bool wanted =
        names.empty() || std::find(names.begin(), names.end(), std::string_view(row.name)) != names.end();
    if (wanted) bench::print_row(row, kernels, rounds);
  }
  return 0;
}
