// The GPT that the step benchmarks train.
#pragma once

#include "step_bench.hpp"

namespace tenon::bench {

struct GptShape {
  int layers = 6, width = 384, heads = 6, context = 256, batch = 16, vocabulary = 256;

  /// Multiply-adds of forward and backward per token, times two: 6 per weight of a product, and the two
  /// products of attention over half the context on average.
  double flops_per_token() const {
    const double weights = 12.0 * layers * width * width + static_cast<double>(vocabulary) * width;
    return 6.0 * weights + 6.0 * layers * width * context;
  }
};

/// The shape that studies of strategies train: 8 layers of width 128, so that many runs fit a small machine.
inline GptShape study_shape() {
  return {.layers = 8, .width = 128, .heads = 8, .context = 64, .batch = 8};
}

/// precision: lines of [precision].
inline std::string config_text(const GptShape& shape, const std::string& precision,
                               const Settings& settings) {
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
{}
[optimizer]
type = "adamw"
)",
                     settings.steps, std::max(1, settings.steps / 2), settings.threads, shape.context,
                     shape.batch, shape.layers, shape.width, shape.heads, precision);
}

}  // namespace tenon::bench
