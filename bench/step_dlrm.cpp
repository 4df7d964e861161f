// Training steps of a DLRM with 26 tables against eager PyTorch with sparse tables, interleaved in one run:
// samples per second and the ratio. Absolute figures are only worth their ratio. Batches are in memory on
// both sides. Usage: step_dlrm [--rounds N] [--steps N] [--threads N] [--python PYTHON]
#include "data_sets.hpp"
#include "dlrm_shape.hpp"

namespace {

using namespace tenon;
using bench::Settings;

TENON_STATIC_PLUGIN(ready,
                    PluginInfo{.id = "bench.ready", .version = "1.0.0", .summary = "batches in memory"},
                    bench::ReadyBatches)

int run(const Settings& settings) {
  const bench::DlrmShape shape;
  fmt::print("DLRM of {} tables x {} rows, bottom {}, top {}, batch {}, {} thread(s)\n", shape.tables,
             shape.rows, shape.bottom, shape.top, shape.batch, settings.threads);
  for (const std::string precision : {"fp32", "bf16"}) {
    std::vector<double> ours, ratios;
    bool torch = true;
    for (int round = 0; round < settings.rounds; ++round) {
      const double rate =
          bench::our_rate(bench::config_text(shape, precision, settings), "train/samples_per_s", &ready);
      const double peer = torch ? bench::peer_rate(settings, "step_dlrm_torch.py",
                                                   bench::peer_arguments(shape, precision, settings))
                                : -1;
      torch = peer > 0;
      ours.push_back(rate);
      if (torch) ratios.push_back(rate / peer);
    }
    fmt::print("{}: {:.0f} samples/s; ", precision, bench::median(ours));
    if (ratios.empty()) {
      fmt::print("PyTorch: skipped, '{}' cannot import torch\n", settings.python);
    } else {
      fmt::print("{} x eager PyTorch\n", bench::spread(ratios));
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("step_dlrm", argc, argv, {.steps = 60}, run);
}
