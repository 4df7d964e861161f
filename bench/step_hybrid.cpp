// The state space model of Mamba-2 layers, forward and backward, against eager PyTorch of the same chunked
// algorithm and against our own recurrence token by token; then training steps of a model of one Mamba-2
// layer and of hybrid_tiny against PyTorch. Interleaved in one run: absolute figures are only worth their
// ratio. Usage: step_hybrid [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include "product_limit.hpp"

#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <memory>

namespace tenon::bench {
namespace {

constexpr std::int64_t kTime = 2048, kHeads = 16, kHeadWidth = 64, kState = 64;

/// Rows of z, x, B, C and steps of one group, and everything that the three calls need.
class Scanning {
 public:
  Scanning(Device& device, std::int64_t chunk, DType dtype) : device_(device), dtype_(dtype) {
    spec_.batch = 1, spec_.time = kTime, spec_.heads = kHeads, spec_.head_width = kHeadWidth;
    spec_.state = kState, spec_.chunk = chunk;
    spec_.columns = kHeads * kHeadWidth + spec_.xbc_columns() + kHeads;
    spec_.steps = {{spec_.columns - kHeads, kHeads}};
    spec_.dtype = dtype;
    kernel_ = device.family<Ssd>().prepare(spec_);
    const Shape xbc{1, kTime, spec_.xbc_columns()}, projected{1, kTime, spec_.columns}, heads{kHeads},
        rows{1, kTime, kHeads * kHeadWidth};
    inputs_.xbc = filled(xbc, dtype, "xbc"), inputs_.projected = filled(projected, dtype, "projected");
    inputs_.a_log = filled(heads, DType::kF32, "a_log"),
    inputs_.dt_bias = filled(heads, DType::kF32, "dt_bias");
    inputs_.d = filled(heads, DType::kF32, "d");
    dy_ = filled(rows, dtype, "dy"), y_ = empty(rows, dtype);
    states_ = empty({1, spec_.chunks(), kHeads, kState, kHeadWidth}, DType::kF32);
    gradients_.xbc = empty(xbc, dtype), gradients_.projected = empty(projected, dtype);
    gradients_.a_log = empty(heads, DType::kF32), gradients_.dt_bias = empty(heads, DType::kF32);
    gradients_.d = empty(heads, DType::kF32);
    scratch_ = empty({static_cast<std::int64_t>(kernel_->scratch_bytes())}, DType::kU8);
    kept_ = empty({1, kernel_->sequence_bytes()}, DType::kU8);
  }

  void forward() { kernel_->forward(inputs_, y_, states_, {}, scratch_); }
  void backward() { kernel_->backward(inputs_, states_, dy_, {}, gradients_, scratch_); }
  /// The recurrence over the whole sequence.
  void scan() {
    const std::int64_t first = 0, count = kTime, kept = 0;
    kernel_->step(inputs_, {{&first, 1}, {&count, 1}, {&kept, 1}}, kept_, y_, scratch_);
  }

 private:
  TensorView empty(const Shape& shape, DType dtype) {
    memory_.push_back(std::make_unique<DeviceMemory>(device_, shape, dtype));
    return memory_.back()->view();
  }
  TensorView filled(const Shape& shape, DType dtype, const char* name) {
    const TensorView view = empty(shape, dtype);
    testing::write(device_, view, testing::normals(shape.elements(), name));
    return view;
  }

  Device& device_;
  DType dtype_;
  SsdSpec spec_;
  std::unique_ptr<SsdKernel> kernel_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  SsdInputs inputs_;
  SsdGradients gradients_;
  TensorView dy_, y_, states_, scratch_, kept_;
};

void measure_scans(const Settings& settings, Device& device) {
  bool torch = true;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t chunk : {64, 128, 256}) {
      Scanning scanning(device, chunk, dtype);
      std::vector<double> forward, both, over_scan, over_torch;
      const double least = 0.02 * settings.steps;
      for (int round = 0; round < settings.rounds; ++round) {
        const double alone = seconds_of_calls(least, [&] { scanning.forward(); });
        const double seconds = seconds_of_calls(least, [&] {
          scanning.forward();
          scanning.backward();
        });
        const double scan = seconds_of_calls(least, [&] { scanning.scan(); });
        forward.push_back(1e3 * alone), both.push_back(1e3 * seconds), over_scan.push_back(scan / alone);
        if (!torch || dtype != DType::kF32) continue;
        const double peer = peer_rate(
            settings, "step_hybrid_torch.py",
            fmt::format("--part ssd --steps {} --threads {} --batch 1 --time {} --heads {} --head_width {} "
                        "--state {} --groups 1 --chunk {}",
                        settings.steps, settings.threads, kTime, kHeads, kHeadWidth, kState, chunk));
        torch = peer > 0;
        if (torch) over_torch.push_back(kTime / seconds / peer);
      }
      fmt::print("{}, chunk {}: forward {} ms, with backward {} ms; forward {} x the scan token by token",
                 dtype_name(dtype), chunk, spread(forward), spread(both), spread(over_scan));
      if (!over_torch.empty()) fmt::print("; {} x eager PyTorch", spread(over_torch));
      fmt::print("\n");
      std::fflush(stdout);
    }
  if (!torch) fmt::print("PyTorch: skipped, '{}' cannot import torch\n", settings.python);
}

/// A model of the pattern's layers, on bytes.
struct HybridShape {
  const char* name;
  const char* pattern;
  int width, hidden, time, batch, heads, head_width, state, groups, chunk;

  std::string config(const Settings& settings) const {
    return run_on_text(settings, time, batch) + fmt::format(R"(path = "{}/data/text/tinyshakespeare.txt"
[model]
type = "decoder"
pattern = "{}"
width = {}
position = "none"
heads = 4
kv_heads = 2
hidden = {}
ffn = "squared_relu"
mamba_heads = {}
mamba_head_width = {}
mamba_state = {}
mamba_groups = {}
mamba_chunk = {}
vocabulary = 256
[precision]
type = "fp32"
[optimizer]
type = "adamw"
lr = 1e-3
weight_decay = 0.1
)",
                                                            TENON_SOURCE_DIR, pattern, width, hidden, heads,
                                                            head_width, state, groups, chunk);
  }
  std::string arguments(const Settings& settings) const {
    return fmt::format(
        "--part model --pattern={} --steps {} --threads {} --batch {} --time {} --width {} --hidden {} "
        "--heads {} "
        "--head_width {} --state {} --groups {} --chunk {}",
        pattern, settings.steps, settings.threads, batch, time, width, hidden, heads, head_width, state,
        groups, chunk);
  }
};

constexpr HybridShape kShapes[] = {
    {"one Mamba-2 layer of width 512", "M", 512, 512, 2048, 1, 16, 64, 64, 1, 128},
    {"hybrid_tiny", "M-M-M*-M-", 128, 384, 128, 8, 16, 16, 32, 2, 32},
    {"hybrid_tiny, context 1,024", "M-M-M*-M-", 128, 384, 1024, 1, 16, 16, 32, 2, 64}};

void measure_models(const Settings& settings) {
  bool torch = true;
  for (const HybridShape& shape : kShapes) {
    std::vector<double> rates, ratios;
    for (int round = 0; round < settings.rounds; ++round) {
      rates.push_back(our_rate(shape.config(settings), "train/tokens_per_s", nullptr));
      const double peer = torch ? peer_rate(settings, "step_hybrid_torch.py", shape.arguments(settings)) : -1;
      torch = peer > 0;
      if (torch) ratios.push_back(rates.back() / peer);
    }
    fmt::print("{}: {:.0f} tokens/s", shape.name, median(rates));
    fmt::print("{}\n", ratios.empty() ? "" : "; " + spread(ratios) + " x eager PyTorch");
    std::fflush(stdout);
  }
}

int measure(const Settings& settings) {
  testing::Bench bench("cpu", "auto", settings.threads);
  fmt::print("{} positions, {} heads of {}, state {}, kernels {}, {} thread(s)\n", kTime, kHeads, kHeadWidth,
             kState, bench.device->kernel_choice(), settings.threads);
  measure_scans(settings, *bench.device);
  measure_models(settings);
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_hybrid", argc, argv, {.rounds = 5, .steps = 8},
                                   tenon::bench::measure);
}
