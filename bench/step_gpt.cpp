// Training steps of a small GPT against eager PyTorch and against the machine's own matrix products,
// interleaved in one run: tokens per second, the ratio, and the share of the product rate. Absolute figures
// are only worth their ratio. Usage: step_gpt [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/operators.hpp>
#include <tenon/parallel.hpp>
#include <tenon/runtime.hpp>
#include <tenon/testing/components.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace tenon;

struct GptShape {
  int layers = 6, width = 384, heads = 6, context = 256, batch = 16, vocabulary = 256;

  /// Multiply-adds of forward and backward per token, times two: 6 per weight of a product, and the two
  /// products of attention over half the context on average.
  double flops_per_token() const {
    const double weights = 12.0 * layers * width * width + static_cast<double>(vocabulary) * width;
    return 6.0 * weights + 6.0 * layers * width * context;
  }
};

struct Settings {
  int rounds = 5, steps = 8, threads = 2;
  std::string python = "python3";
};

std::string config_text(const GptShape& shape, const std::string& precision, const Settings& settings) {
  return fmt::format(R"([run]
name = "bench"
steps = {}
log_every = {}
eval_batches = 1
clip = 1.0
[device]
type = "cpu"
threads = {}
[data]
type = "text"
context = {}
batch = {}
[model]
type = "gpt_neo"
layers = {}
width = {}
heads = {}
[precision]
type = "{}"
[optimizer]
type = "adamw"
)",
                     settings.steps, std::max(1, settings.steps / 2), settings.threads, shape.context,
                     shape.batch, shape.layers, shape.width, shape.heads, precision);
}

/// Tokens per second after a warm-up of a quarter of the steps.
double our_rate(const GptShape& shape, const std::string& precision, const Settings& settings) {
  Runtime runtime;
  runtime.discover({});
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tenon-bench-{}", ::getpid());
  TrainRequest request;
  request.run_dir = folder.string();
  request.quiet = true;
  // Two windows: the first holds the warm-up, the last line is the rate of the rest.
  std::string text = config_text(shape, precision, settings);
  const RunResult result = runtime.train(Config::parse(text, "bench.toml", {}), request);
  std::filesystem::remove_all(folder);
  if (!result.error.empty()) fail_run(result.error);
  return result.metrics.at("train/tokens_per_s");
}

/// Tokens per second of the same model in eager PyTorch; negative when it cannot run.
double torch_rate(const GptShape& shape, const std::string& precision, const Settings& settings,
                  const std::string& script) {
  const std::string command = fmt::format(
      "{} {} --precision {} --steps {} --threads {} --layers {} --width {} --heads {} --context {} --batch "
      "{} 2>/dev/null",
      settings.python, script, precision, settings.steps, settings.threads, shape.layers, shape.width,
      shape.heads, shape.context, shape.batch);
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return -1;
  std::array<char, 128> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  const int status = ::pclose(pipe);
  return read && status == 0 ? std::atof(line.data()) : -1;
}

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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", values[values.size() / 2], values.front(), values.back());
}

int run(const Settings& settings) {
  const GptShape shape;
  const std::string script = std::string(TENON_SOURCE_DIR) + "/bench/step_gpt_torch.py";
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
      const double rate = our_rate(shape, precision, settings);
      const double product = product_rate(shape, precision == "bf16" ? DType::kBF16 : DType::kF32, *device);
      const double peer = torch ? torch_rate(shape, precision, settings, script) : -1;
      torch = peer > 0;
      ours.push_back(rate);
      shares.push_back(100 * rate * shape.flops_per_token() / product);
      if (torch) ratios.push_back(rate / peer);
    }
    fmt::print("{}: {:.0f} tokens/s; {} % of the product rate; ", precision, median(ours), spread(shares));
    if (ratios.empty()) {
      fmt::print("PyTorch: skipped, '{}' cannot import torch\n", settings.python);
    } else {
      fmt::print("{} x eager PyTorch\n", spread(ratios));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--rounds")
      settings.rounds = std::atoi(argv[i + 1]);
    else if (name == "--steps")
      settings.steps = std::atoi(argv[i + 1]);
    else if (name == "--threads")
      settings.threads = std::atoi(argv[i + 1]);
    else if (name == "--python")
      settings.python = argv[i + 1];
    else {
      fmt::print(stderr,
                 "step_gpt: unknown option '{}'; usage: step_gpt [--rounds N] [--steps N] [--threads N] "
                 "[--python PYTHON]\n",
                 name);
      return 2;
    }
  }
  try {
    return run(settings);
  } catch (const tenon::Error& error) {
    fmt::print(stderr, "step_gpt: {}\n", error.what());
    return error.exit_status();
  }
}
