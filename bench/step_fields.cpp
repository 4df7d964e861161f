// Training steps of a Fourier neural operator (Li et al. 2021: width 32, 12 modes, four layers, 64 x 64
// points, batch 16) and of LeNet-5 (batch 64) against eager PyTorch, as it comes and with malloc told to keep
// freed memory, interleaved in one run: samples per second and the ratios. Batches are in memory on both
// sides. Usage: step_fields [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include "data_sets.hpp"
#include "field_shape.hpp"

namespace {

using namespace tenon;
using bench::Settings;

TENON_STATIC_PLUGIN(batches,
                    PluginInfo{.id = "bench.batches", .version = "1.0.0", .summary = "batches in memory"},
                    bench::ReadyBatches, bench::RandomFields)

struct Workload {
  const char* title;
  bench::FieldShape shape;
  int per_step;  ///< steps that count as one of the settings', so that short steps are timed long enough
};

const Workload kWorkloads[] = {
    {"FNO over 64 x 64 points, width 32, 12 modes, batch 16", bench::fno_shape(16), 1},
    {"LeNet-5, batch 64", bench::lenet5_shape(64), 40},
};

void compare(const Workload& workload, const Settings& settings) {
  Settings keeping = settings;
  keeping.python =
      "env MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=4000000000 " + settings.python;
  Settings timed = settings;
  timed.steps *= workload.per_step;
  const std::string arguments = bench::peer_arguments(workload.shape, timed);
  std::vector<double> ours, plain, kept;
  for (int round = 0; round < settings.rounds; ++round) {
    ours.push_back(
        bench::our_rate(bench::config_text(workload.shape, timed), "train/samples_per_s", &batches));
    const double peer = bench::peer_rate(settings, "step_fields_torch.py", arguments);
    if (peer <= 0) continue;
    plain.push_back(ours.back() / peer);
    kept.push_back(ours.back() / bench::peer_rate(keeping, "step_fields_torch.py", arguments));
  }
  fmt::print("{}, {} thread(s): {:.0f} samples/s\n", workload.title, settings.threads, bench::median(ours));
  if (plain.empty()) {
    fmt::print("  PyTorch: skipped, '{}' cannot import torch\n", settings.python);
    return;
  }
  fmt::print("  {} x eager PyTorch; {} x with malloc told to keep memory\n", bench::spread(plain),
             bench::spread(kept));
}

int run(const Settings& settings) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const Workload& workload : kWorkloads) compare(workload, settings);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_fields", argc, argv, {.steps = 16}, run);
}
