// Training steps of a small GPT against eager PyTorch and against the machine's own matrix products,
// interleaved in one run: tokens per second, the ratio, and the share of the product rate. Absolute figures
// are only worth their ratio. Usage: step_gpt [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include "gpt_shape.hpp"
#include "product_limit.hpp"

#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>

namespace {

using namespace tenon;
using bench::GptShape;
using bench::Settings;

/// Multiply-adds x 2 per second of the model's largest product through the device.
double product_rate(const GptShape& shape, DType dtype, Device& device) {
  const bench::ProductShape products{
      .m = static_cast<std::int64_t>(shape.batch) * shape.context, .n = 4 * shape.width, .k = shape.width};
  return products.flops() / bench::product_seconds(products, dtype, device);
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
      const double peer = torch ? bench::peer_rate(settings, "step_gpt_torch.py",
                                                   bench::peer_arguments(shape, precision, settings))
                                : -1;
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
