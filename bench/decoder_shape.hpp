// The Llama that bench/compare trains: its configuration, the arguments of its peer, its arithmetic.
#pragma once

#include "step_bench.hpp"

#include <string>

namespace tenon::bench {

struct DecoderShape {
  int layers = 6, width = 384, heads = 6, kv_heads = 2, hidden = 1024, context = 256, batch = 16,
      vocabulary = 256;

  int kv_width() const { return width / heads * kv_heads; }
  /// Multiply-adds of the products of attention per token, times two, forward and backward.
  double attention_flops_per_token() const { return 12.0 * layers * width * (context / 2.0); }
  /// The same of all products: 6 per weight, and attention's.
  double flops_per_token() const {
    const double of_layer = 2.0 * width * width + 2.0 * width * kv_width() + 3.0 * width * hidden;
    return 6.0 * (layers * of_layer + static_cast<double>(vocabulary) * width) + attention_flops_per_token();
  }
};

inline std::string config_text(const DecoderShape& shape, const std::string& precision,
                               const Settings& settings) {
  return run_on_text(settings, shape.context, shape.batch) +
         fmt::format(R"([model]
type = "decoder"
pattern = "*-"
repeat = {}
width = {}
heads = {}
kv_heads = {}
hidden = {}
vocabulary = {}
[precision]
type = "{}"
[optimizer]
type = "adamw"
)",
                     shape.layers, shape.width, shape.heads, shape.kv_heads, shape.hidden, shape.vocabulary,
                     precision);
}

/// Arguments of step_decoder_torch.py; precision: fp32 or bf16.
inline std::string peer_arguments(const DecoderShape& shape, const std::string& precision,
                                  const Settings& settings) {
  return fmt::format(
      "--precision {} --steps {} --threads {} --layers {} --width {} --heads {} --kv-heads {} --hidden {} "
      "--context {} --batch {} --vocabulary {}",
      precision, settings.steps, settings.threads, shape.layers, shape.width, shape.heads, shape.kv_heads,
      shape.hidden, shape.context, shape.batch, shape.vocabulary);
}

}  // namespace tenon::bench
