// The GPT that the step benchmarks train: its configuration, the arguments of its peer, its arithmetic.
#pragma once

#include "step_bench.hpp"

namespace tenon::bench {

struct GptShape {
  int layers = 6, width = 384, heads = 6, context = 256, batch = 16, vocabulary = 256;

  /// Multiply-adds of the products of attention per token, times two, forward and backward. Every second
  /// layer looks at a window of 256.
  double attention_flops_per_token() const {
    constexpr double kWindow = 256;
    const double whole = context / 2.0;
    const double local = context <= kWindow ? whole : kWindow - kWindow * kWindow / (2.0 * context);
    return 12.0 * width * ((layers + 1) / 2 * whole + layers / 2 * local);
  }
  /// The same of all products: 6 per weight, and attention's.
  double flops_per_token() const {
    const double weights = 12.0 * layers * width * width + static_cast<double>(vocabulary) * width;
    return 6.0 * weights + attention_flops_per_token();
  }
};

/// GPT-Neo-125M.
inline GptShape neo_125m_shape() {
  return {.layers = 12, .width = 768, .heads = 12, .context = 512, .batch = 2, .vocabulary = 50257};
}

/// configs/base/gpt_tiny.toml.
inline GptShape tiny_shape() {
  return {.layers = 4, .width = 128, .heads = 4, .context = 128, .batch = 8};
}

/// The shape that studies of strategies train: 8 layers of width 128, so that many runs fit a small machine.
inline GptShape study_shape() {
  return {.layers = 8, .width = 128, .heads = 8, .context = 64, .batch = 8};
}

/// precision: lines of [precision].
inline std::string config_text(const GptShape& shape, const std::string& precision,
                               const Settings& settings) {
  return run_on_text(settings, shape.context, shape.batch) +
         fmt::format(R"([model]
type = "gpt_neo"
layers = {}
width = {}
heads = {}
vocabulary = {}
[precision]
{}
[optimizer]
type = "adamw"
)",
                     shape.layers, shape.width, shape.heads, shape.vocabulary, precision);
}

/// Arguments of step_gpt_torch.py; precision: fp32 or bf16.
inline std::string peer_arguments(const GptShape& shape, const std::string& precision,
                                  const Settings& settings) {
  return fmt::format(
      "--precision {} --steps {} --threads {} --layers {} --width {} --heads {} --context {} --batch {} "
      "--vocabulary {}",
      precision, settings.steps, settings.threads, shape.layers, shape.width, shape.heads, shape.context,
      shape.batch, shape.vocabulary);
}

}  // namespace tenon::bench
