// Training steps of a small GPT against eager PyTorch and against the machine's own matrix products,
// interleaved in one run: tokens per second, the ratio, and the share of the product rate. Absolute figures
// are only worth their ratio. Usage: step_gpt [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include "gpt_shape.hpp"

#include <tenon/executor.hpp>
#include <tenon/operators.hpp>
#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>

#include <chrono>

namespace {

using namespace tenon;
using bench::GptShape;
using bench::Settings;

/// Multiply-adds x 2 per second of the model's largest product through the device.
double product_rate(const GptShape& shape, DType dtype, Device& device) {
  GemmSpec spec;
  spec.m = static_cast<std::int64_t>(shape.batch) * shape.context;
  spec.n = 4 * shape.width;
  spec.k = shape.width;
  spec.transpose_b = true;
  spec.a = spec.b = spec.c = dtype;
  const auto gemm = device.family<Blas>().gemm(spec);
  const auto tensor = [&](std::int64_t rows, std::int64_t columns) {
    TensorView view;
    view.dtype = dtype;
    view.shape = tenon::Shape{rows, columns};
    view.data = device.allocate(static_cast<std::size_t>(view.bytes()));
    return view;
  };
  const TensorView a = tensor(spec.m, spec.k), b = tensor(spec.n, spec.k), c = tensor(spec.m, spec.n);
  TensorView scratch;
  scratch.dtype = DType::kU8;
  scratch.shape = tenon::Shape{static_cast<std::int64_t>(gemm->scratch_bytes())};
  if (gemm->scratch_bytes() > 0) scratch.data = device.allocate(gemm->scratch_bytes());
  gemm->run(a, b, c, {}, 1.0f, scratch);
  constexpr int kRepeats = 10;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) gemm->run(a, b, c, {}, 1.0f, scratch);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const TensorView& view : {a, b, c, scratch}) {
    if (view.data != nullptr) device.release(view.data, static_cast<std::size_t>(view.bytes()));
  }
  return kRepeats * 2.0 * static_cast<double>(spec.m * spec.n * spec.k) / seconds;
}

/// Of the peer's script.
std::string arguments(const GptShape& shape, const std::string& precision, const Settings& settings) {
  return fmt::format(
      "--precision {} --steps {} --threads {} --layers {} --width {} --heads {} --context {} --batch {}",
      precision, settings.steps, settings.threads, shape.layers, shape.width, shape.heads, shape.context,
      shape.batch);
}

int run(const Settings& settings) {
  const GptShape shape;
  Runtime runtime;
  runtime.discover({});
  testing::QuietHost host;
  auto device = testing::make<Device>(runtime.registry(), host, "cpu", "");
  set_parallel_threads(settings.threads);
  device->open({0, settings.threads, "auto"});
  fmt::print("GPT of {} layers, width {}, context {}, batch {}, {} thread(s), kernels {}\n", shape.layers,
             shape.width, shape.context, shape.batch, settings.threads, device->kernel_choice());
  for (const std::string precision : {"fp32", "bf16"}) {
    std::vector<double> ours, ratios, shares;
    bool torch = true;
    for (int round = 0; round < settings.rounds; ++round) {
      // Two windows: the first holds the warm-up, the last line is the rate of the rest.
      const double rate = bench::our_rate(bench::config_text(shape, "type = \"" + precision + "\"", settings),
                                          "train/tokens_per_s", nullptr);
      const double product = product_rate(shape, precision == "bf16" ? DType::kBF16 : DType::kF32, *device);
      const double peer =
          torch ? bench::peer_rate(settings, "step_gpt_torch.py", arguments(shape, precision, settings)) : -1;
      torch = peer > 0;
      ours.push_back(rate);
      shares.push_back(100 * rate * shape.flops_per_token() / product);
      if (torch) ratios.push_back(rate / peer);
    }
    fmt::print("{}: {:.0f} tokens/s; {} % of the product rate; ", precision, bench::median(ours),
               bench::spread(shares));
    if (ratios.empty()) {
      fmt::print("PyTorch: skipped, '{}' cannot import torch\n", settings.python);
    } else {
      fmt::print("{} x eager PyTorch\n", bench::spread(ratios));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_gpt", argc, argv, {}, run);
}
