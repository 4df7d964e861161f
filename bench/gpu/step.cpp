// Whole training steps on a device: GPT-Neo-125M at sequences of 1024 in bf16, against the arithmetic that
// the device's own bf16 product of the same round allows (model FLOP utilisation; no peak of a data sheet)
// and against compiled PyTorch; and a stack of linear layers of width 4096 under the policy fp8 against bf16.
#include "../data_sets.hpp"
#include "../gpt_shape.hpp"
#include "families.hpp"

namespace tenon::bench::gpu {
namespace {

TENON_STATIC_PLUGIN(parts, PluginInfo{.id = "bench.parts", .version = "1.0.0", .summary = "data"},
                    RandomImages)

/// Opens the device for this measurement only: a run takes all memory of the device.
double product_flops(const GpuSettings& settings) {
  testing::Bench bench(settings.device, "auto", 1);
  const std::int64_t n = (settings.tiny ? kTiny : kFull).product;
  const double extent = static_cast<double>(n);
  const Call call = product_call(*bench.device, product_spec(n, DType::kBF16, DType::kBF16));
  return 2 * extent * extent * extent / seconds_on(*bench.device, settings.least(), call);
}

std::string run_tables(const GpuSettings& settings, int steps) {
  return fmt::format(
      "[run]\nname = \"bench\"\nsteps = {}\nlog_every = {}\neval_batches = 1\n[device]\ntype = \"{}\"\n",
      steps, steps / 2, settings.device);
}

std::string gpt_config(const GpuSettings& settings, const GptShape& shape, int steps) {
  return run_tables(settings, steps) +
         fmt::format(
             "[data]\ntype = \"text\"\ncontext = {}\nbatch = {}\n[model]\ntype = \"gpt_neo\"\nlayers = {}\n"
             "width = {}\nheads = {}\nvocabulary = {}\n[precision]\ntype = \"bf16\"\n[optimizer]\ntype = "
             "\"adamw\"\n",
             shape.context, shape.batch, shape.layers, shape.width, shape.heads, shape.vocabulary);
}

/// Images of few points, so that copies to the device do not count.
std::string stack_config(const GpuSettings& settings, const std::string& precision, int steps) {
  const std::string width = settings.tiny ? "32" : "4096";
  std::string widths = width;
  for (int layer = 1; layer < (settings.tiny ? 3 : 8); ++layer) widths += ", " + width;
  return run_tables(settings, steps) + fmt::format(
                                           "[data]\ntype = \"random_images\"\nside = 4\nbatch = "
                                           "{}\n[model]\ntype = \"mlp\"\nhidden = [{}]\n"
                                           "[precision]\n{}\n[optimizer]\ntype = \"sgd\"\n",
                                           settings.tiny ? 16 : 8192, widths, precision);
}

int run(const GpuSettings& settings) {
  const GptShape shape =
      settings.tiny
          ? GptShape{.layers = 2, .width = 16, .heads = 2, .context = 32, .batch = 1}
          : GptShape{
                .layers = 12, .width = 768, .heads = 12, .context = 1024, .batch = 16, .vocabulary = 50257};
  const int steps = settings.tiny ? 4 : 40;
  Row use{.name = "GPT-Neo-125M bf16, FLOP utilisation", .unit = "tokens/s"};
  use.limit = "6 N and attention at the bf16 product's rate of this run";
  Row peer{.name = "GPT-Neo-125M bf16, against PyTorch", .unit = "tokens/s"};
  peer.limit = "torch.compile and scaled_dot_product_attention", peer.aim = 0.9;
  if (settings.device != "cuda" || settings.tiny) peer.skipped = "the peer runs at full scale on cuda alone";
  Row stack{.name = "linear stack, policy fp8, products = auto", .unit = "samples/s"};
  stack.limit = "the same in bf16", stack.aim = 1;
  const Settings for_peer{.rounds = 1, .steps = steps, .threads = 4, .python = settings.python};
  const int rounds = settings.rounds > 0 ? settings.rounds : settings.tiny ? 1 : 3;
  for (int round = 0; round < rounds; ++round) {
    use.limits.push_back(product_flops(settings) / shape.flops_per_token());
    const double tokens = our_rate(gpt_config(settings, shape, steps), "train/tokens_per_s", nullptr);
    const double seconds = static_cast<double>(shape.batch) * shape.context / tokens;
    use.rates.push_back(tokens), use.seconds.push_back(seconds);
    if (peer.skipped.empty()) {
      const double theirs = peer_rate(for_peer, "step_gpt_torch.py",
                                      peer_arguments(shape, "bf16", for_peer) + " --device cuda");
      if (theirs <= 0)
        peer.skipped = fmt::format("'{}' cannot import torch, or has none for this GPU", settings.python);
      peer.limits.push_back(theirs), peer.rates.push_back(tokens), peer.seconds.push_back(seconds);
    }
    const auto samples = [&](const char* precision) {
      return our_rate(stack_config(settings, precision, steps), "train/samples_per_s", &parts);
    };
    stack.limits.push_back(samples("type = \"bf16\""));
    stack.rates.push_back(
        samples("type = \"fp8\"\nrecipe = \"current\"\nproducts = \"auto\"\nkeep_first = 0\nkeep_last = 0"));
    stack.seconds.push_back((settings.tiny ? 16 : 8192) / stack.rates.back());
  }
  print_rows("gpu_step", settings, "products measured in the same run", {use, peer, stack});
  return 0;
}

}  // namespace
}  // namespace tenon::bench::gpu

int main(int argc, char** argv) {
  return tenon::bench::gpu::run_gpu_program("gpu_step", argc, argv, tenon::bench::gpu::run);
}
