// Decoders whose layers are one mixer alone, Mamba-2 or attention, so that a step shows how it grows with the
// length of the sequence: configuration and arithmetic.
#pragma once

#include "step_bench.hpp"

#include <string>

namespace tenon::bench {

struct MixerShape {
  char letter = 'M';  ///< of the decoder's pattern: 'M' or '*'
  int layers = 2, width = 256, context = 1024, batch = 1, vocabulary = 256;
  static constexpr int kHeadWidth = 64, kState = 64, kChunk = 128;

  int mamba_heads() const { return 2 * width / kHeadWidth; }
  /// Multiply-adds of all products per token, times two, forward and backward.
  double flops_per_token() const {
    const double inner = 2.0 * width, heads = mamba_heads();
    double weights = static_cast<double>(vocabulary) * width, mixed = 0;
    if (letter == 'M') {
      weights += layers * (width * (2 * inner + 2 * kState + heads) + inner * width);
      mixed = layers * heads * (kChunk * (kState + kHeadWidth) + 2.0 * kState * kHeadWidth);
    } else {
      weights += layers * 4.0 * width * width;
      mixed = layers * 2.0 * width * (context / 2.0);
    }
    return 6.0 * (weights + mixed);
  }
};

inline std::string config_text(const MixerShape& shape, const Settings& settings) {
  return run_on_text(settings, shape.context, shape.batch) +
         fmt::format(R"([model]
type = "decoder"
pattern = "{}"
repeat = {}
width = {}
position = "none"
heads = {}
hidden = {}
mamba_heads = {}
mamba_head_width = {}
mamba_state = {}
mamba_chunk = {}
vocabulary = {}
[precision]
type = "fp32"
[optimizer]
type = "adamw"
)",
                     shape.letter, shape.layers, shape.width,
                     std::max(1, shape.width / MixerShape::kHeadWidth), shape.width, shape.mamba_heads(),
                     MixerShape::kHeadWidth, MixerShape::kState, MixerShape::kChunk, shape.vocabulary);
}

}  // namespace tenon::bench
